"""The Processor API: each flight gets the wind last observed at its airport; every hour it forwards the departures so
far for each airport."""

from typing import Any

from penstock import KafkaStreams, Processor, ProcessorContext, PunctuationType, Record, Serdes, Stores, Topology

HOUR_MS = 60 * 60 * 1000
config = {
    "application.id": "wind-at-departure",
    "default.key.serde": Serdes.string(),
    "default.value.serde": Serdes.json(),
}


class Wind(Processor):
    """Remembers the wind of each airport, and how many flights have left it."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.wind = context.get_state_store("wind")
        self.departures = context.get_state_store("departures")
        context.schedule(HOUR_MS, PunctuationType.STREAM_TIME, self.count)

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        value = record.value
        origin = value["origin"]
        if "wind_speed" in value:
            self.wind.put(origin, value["wind_speed"])
        else:
            self.departures.put(origin, (self.departures.get(origin) or 0) + 1)
            self.context.forward(record.with_value({**value, "wind_speed": self.wind.get(origin)}), "flights-out")

    def count(self, time: int) -> None:
        with self.departures.all() as entries:
            for origin, number in entries:
                self.context.forward(Record(origin, {"departures": number}, time), "counts-out")


def store(name: str, value_serde: Any) -> Any:
    return Stores.key_value_store_builder(Stores.persistent_key_value_store(name), Serdes.string(), value_serde)


topology = Topology()
topology.add_source("flights", "flights").add_source("weather", "weather")
topology.add_processor("wind-at-departure", Wind, "flights", "weather")
topology.add_state_store(store("wind", Serdes.double()), "wind-at-departure")
topology.add_state_store(store("departures", Serdes.long()), "wind-at-departure")
topology.add_sink("flights-out", "flights-with-wind", "wind-at-departure")
topology.add_sink("counts-out", "departures", "wind-at-departure")

if __name__ == "__main__":
    with KafkaStreams(topology, config) as streams:
        streams.await_termination()
