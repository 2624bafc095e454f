"""The API of the first papers on Kafka Streams (both drafts of KIP-28).

Second draft: `ProcessorDef`, `TopologyBuilder`, `KStreamBuilder`, `KStreamWindowed`, run by `KafkaStreaming`. First
draft: `KafkaProcessor`, `PTopology`, `KStreamTopology`, run by `KafkaProcess` and `KStreamProcess`. It is built on the
public API: each of them becomes a `Topology`, which runs on every host.
"""

from penstock.kip28.processors import (
    InMemoryKeyValueStore,
    KafkaProcessor,
    Processor,
    ProcessorContext,
    ProcessorDef,
    ProcessorDefLike,
)
from penstock.kip28.streams import DAY_MS, KStream, KStreamBuilder, KStreamWindowed, Window, until
from penstock.kip28.topologies import (
    KafkaProcess,
    KafkaStreaming,
    KStreamProcess,
    KStreamTopology,
    ProcessorProperties,
    PTopology,
    Source,
    StreamingConfig,
    TopologyBuilder,
)

__all__ = [
    "DAY_MS",
    "InMemoryKeyValueStore",
    "KStream",
    "KStreamBuilder",
    "KStreamProcess",
    "KStreamTopology",
    "KStreamWindowed",
    "KafkaProcess",
    "KafkaProcessor",
    "KafkaStreaming",
    "PTopology",
    "Processor",
    "ProcessorContext",
    "ProcessorDef",
    "ProcessorDefLike",
    "ProcessorProperties",
    "Source",
    "StreamingConfig",
    "TopologyBuilder",
    "Window",
    "until",
]
