"""A foreign-key join: each flight with the plane that flies it, as often as either of them changes."""

from dataclasses import dataclass

from penstock import Consumed, KafkaStreams, Materialized, Produced, Serdes, StreamsBuilder


@dataclass(frozen=True)
class Flight:
    carrier: str
    flight: int
    tailnum: str
    origin: str
    dest: str
    departed: int
    delay: int


@dataclass(frozen=True)
class Plane:
    tailnum: str
    manufacturer: str
    model: str
    seats: int
    year: int | None = None


@dataclass(frozen=True)
class PlannedFlight:
    origin: str
    dest: str
    plane: str
    seats: int


config = {"application.id": "flights-with-planes", "default.key.serde": Serdes.string()}
planned_serde = Serdes.json(PlannedFlight)


def with_plane(flight: Flight, plane: Plane) -> PlannedFlight:
    return PlannedFlight(flight.origin, flight.dest, f"{plane.manufacturer} {plane.model}", plane.seats)


builder = StreamsBuilder()
flights = builder.table("flights", Consumed.with_(key_serde=Serdes.string(), value_serde=Serdes.json(Flight)))
planes = builder.table("planes", Consumed.with_(key_serde=Serdes.string(), value_serde=Serdes.json(Plane)))
planned = flights.join(
    planes,
    with_plane,
    foreign_key_extractor=lambda flight: flight.tailnum,
    materialized=Materialized.as_("planned").with_key_serde(Serdes.string()).with_value_serde(planned_serde),
)
planned.to_stream().to("planned-flights", Produced.with_(key_serde=Serdes.string(), value_serde=planned_serde))
topology = builder.build()

if __name__ == "__main__":
    with KafkaStreams(topology, config) as streams:
        streams.await_termination()
