"""The stream job of the papers' second draft: texts become numbers, which go to one of two topics by their size."""

from penstock import Serdes
from penstock.kip28 import KafkaStreaming, KStreamBuilder, StreamingConfig

config = StreamingConfig(
    {
        "application.id": "kip28-kstream-job",
        "default.key.serde": Serdes.string(),
        "default.value.serde": Serdes.integer(),
    }
)

builder = KStreamBuilder()

stream1 = builder.from_("topic1", Serdes.string(), Serdes.string())

stream2 = stream1.map(lambda key, value: (key, int(value))).filter(lambda key, value: True)

streams = stream2.branch(lambda key, value: value > 10, lambda key, value: value <= 10)

streams[0].send_to("topic2")
streams[1].send_to("topic3")
topology = builder.build()

if __name__ == "__main__":
    kstream = KafkaStreaming(builder, config)
    kstream.start()
