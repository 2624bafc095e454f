"""The word count of the Kafka Streams documentation: lines of text in, the number of times each word occurred out."""

from penstock import KafkaStreams, Materialized, Serdes, StreamsBuilder

config = {
    "application.id": "streams-wordcount",
    "default.key.serde": Serdes.string(),
    "default.value.serde": Serdes.string(),
}

builder = StreamsBuilder()
lines = builder.stream("plaintext-input")
words = lines.flat_map_values(lambda line: line.lower().split())
counts = words.group_by(lambda key, word: word).count(Materialized.as_("counts-store"))
counts.to_stream().to("word-count-output")
topology = builder.build()

if __name__ == "__main__":
    with KafkaStreams(topology, config) as streams:
        streams.await_termination()
