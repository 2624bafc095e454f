"""The word count of the Kafka book: words in any case, split where no letter or digit is, without the article `the`."""

import re

from penstock import KafkaStreams, Serdes, StreamsBuilder

config = {
    "application.id": "wordcount",
    "default.key.serde": Serdes.string(),
    "default.value.serde": Serdes.string(),
}
NO_WORD = re.compile(r"\W+")

builder = StreamsBuilder()
source = builder.stream("wordcount-input")
counts = (
    source.flat_map_values(lambda line: [word for word in NO_WORD.split(line.lower()) if word])
    .map(lambda key, word: (word, word))
    .filter(lambda key, word: word != "the")
    .group_by_key()
    .count()
    .map_values(str)
    .to_stream()
)
counts.to("wordcount-output")
topology = builder.build()

if __name__ == "__main__":
    with KafkaStreams(topology, config) as streams:
        streams.await_termination()
