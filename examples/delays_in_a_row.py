"""Sessions and suppress: how many flights left an airport late with no more than ten minutes from one to the next; one
result, when the row is over."""

from dataclasses import dataclass

from penstock import (
    BufferConfig,
    Consumed,
    Grouped,
    KafkaStreams,
    Materialized,
    Produced,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
)

MINUTE_MS = 60_000


@dataclass(frozen=True)
class Flight:
    carrier: str
    flight: int
    origin: str
    delay: int


@dataclass(frozen=True)
class Row:
    minutes: int
    flights: int


config = {"application.id": "delays-in-a-row", "default.key.serde": Serdes.string()}
flight_serde = Serdes.json(Flight)

builder = StreamsBuilder()
flights = builder.stream("flights", Consumed.with_(value_serde=flight_serde))
late = flights.filter(lambda key, flight: flight.delay > 0)
by_origin = late.group_by(
    lambda key, flight: flight.origin, Grouped.with_(key_serde=Serdes.string(), value_serde=flight_serde)
)
rows = (
    by_origin.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(10 * MINUTE_MS))
    .count(Materialized.as_("rows").with_key_serde(Serdes.string()))
    .suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    .to_stream()
    .map(lambda windowed, count: (windowed.key, Row((windowed.window.end - windowed.window.start) // MINUTE_MS, count)))
)
rows.to("delays", Produced.with_(key_serde=Serdes.string(), value_serde=Serdes.json(Row)))
topology = builder.build()

if __name__ == "__main__":
    with KafkaStreams(topology, config) as streams:
        streams.await_termination()
