"""The word count of Kafka's documentation by the Processor API: it forwards all counts once a second of stream time."""

from penstock import KafkaStreams, Processor, ProcessorContext, PunctuationType, Record, Serdes, Stores, Topology

config = {
    "application.id": "wordcount-processor",
    "default.key.serde": Serdes.string(),
    "default.value.serde": Serdes.string(),
}


class WordCountProcessor(Processor[str, str, str, str]):
    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.counts = context.get_state_store("Counts")
        context.schedule(1000, PunctuationType.STREAM_TIME, self.tell)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.lower().split():
            self.counts.put(word, (self.counts.get(word) or 0) + 1)

    def tell(self, timestamp: int) -> None:
        with self.counts.all() as entries:
            for word, count in entries:
                self.context.forward(Record(word, str(count), timestamp))
        self.context.commit()


counts = Stores.key_value_store_builder(Stores.persistent_key_value_store("Counts"), Serdes.string(), Serdes.long())

topology = (
    Topology()
    .add_source("Source", "source-topic")
    .add_processor("Process", WordCountProcessor, "Source")
    .add_state_store(counts, "Process")
    .add_sink("Sink", "sink-topic", "Process")
)

if __name__ == "__main__":
    with KafkaStreams(topology, config) as streams:
        streams.await_termination()
