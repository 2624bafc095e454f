"""The stream job of the papers' first draft: a topology as a class; odd and even numbers go to separate topics."""

from penstock import Serdes
from penstock.kip28 import KStreamProcess, KStreamTopology, ProcessorProperties

config = ProcessorProperties(
    {
        "application.id": "kip28-kstream-topology-job",
        "default.key.serde": Serdes.string(),
        "default.value.serde": Serdes.integer(),
    }
)


class MyKStreamTopology(KStreamTopology):
    def build(self) -> None:
        # create a source stream
        stream1 = self.from_(Serdes.string(), Serdes.string(), "topic-source")

        # parse the value string to integer
        stream2 = stream1.map(lambda key, value: (key, int(value))).filter(lambda key, value: value > 10)

        # branch two streams with odd / even values
        streams = stream2.branch(lambda key, value: value % 2 == 1, lambda key, value: value % 2 == 0)

        # send result stream to Kafka topics
        streams[0].send_to("topic-odd")
        streams[1].send_to("topic-even")


topology = MyKStreamTopology.topology()

if __name__ == "__main__":
    process = KStreamProcess(MyKStreamTopology, config)
    process.start()
