"""The job of the papers' second draft: a processor that adds up what comes, and tells all sums every second."""

from penstock import Serdes
from penstock.kip28 import (
    InMemoryKeyValueStore,
    KafkaStreaming,
    Processor,
    ProcessorContext,
    ProcessorDef,
    StreamingConfig,
    TopologyBuilder,
)

config = StreamingConfig(
    {
        "application.id": "kip28-processor-job",
        "default.key.serde": Serdes.string(),
        "default.value.serde": Serdes.integer(),
    }
)


class MyProcessor(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.context.schedule(self, 1000)
        self.kv_store = InMemoryKeyValueStore("local-state", context)

    def process(self, key: str, value: int) -> None:
        old_value = self.kv_store.get(key)
        if old_value is None:
            self.kv_store.put(key, value)
        else:
            self.kv_store.put(key, old_value + value)
        self.context.commit()

    def punctuate(self, stream_time: int) -> None:
        for entry in self.kv_store.all():
            print(f"[{entry.key}, {entry.value}]")
            self.context.forward(entry.key, entry.value)

    def close(self) -> None:
        self.kv_store.close()


class MyProcessorDef(ProcessorDef):
    def instance(self) -> Processor:
        return MyProcessor()


builder = TopologyBuilder()
builder.add_source("SOURCE", "topic-source")
builder.add_processor("PROCESS", MyProcessorDef(), "SOURCE")
builder.add_sink("SINK", "topic-sink", "PROCESS")
topology = builder.build()

if __name__ == "__main__":
    streaming = KafkaStreaming(builder, config)
    streaming.start()
