"""The job of the papers' first draft: a topology as a class, whose processors forward records themselves.

Sums are forwarded and forgotten every second; the second processor forwards those above 10.
"""

from penstock import Serdes
from penstock.kip28 import (
    InMemoryKeyValueStore,
    KafkaProcess,
    KafkaProcessor,
    ProcessorContext,
    ProcessorProperties,
    PTopology,
)

config = ProcessorProperties(
    {
        "application.id": "kip28-stateful-process-job",
        "default.key.serde": Serdes.string(),
        "default.value.serde": Serdes.integer(),
    }
)


class AggregateProcessor(KafkaProcessor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.context.schedule(self, 1000)
        self.kv_store = InMemoryKeyValueStore("local-state", context)

    def process(self, key: str, value: int) -> None:
        old_value = self.kv_store.get(key)
        self.kv_store.put(key, value if old_value is None else old_value + value)
        self.context.commit()

    def punctuate(self, stream_time: int) -> None:
        for entry in self.kv_store.all():
            self.forward(entry.key, entry.value)
        self.kv_store.clear()

    def close(self) -> None:
        self.kv_store.close()


class FilterProcessor(KafkaProcessor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, key: str, value: int) -> None:
        if value > 10:
            self.context.send("topic-sink", key, value)


class MyPTopology(PTopology):
    def build(self) -> None:
        source = self.add_source(Serdes.string(), Serdes.integer(), "topic-source")
        aggregate = AggregateProcessor("aggregate")
        filter = FilterProcessor("filter")
        self.add_processor(aggregate, source)
        self.add_processor(filter, aggregate)


topology = MyPTopology.topology()

if __name__ == "__main__":
    process = KafkaProcess(MyPTopology, config)
    process.start()
