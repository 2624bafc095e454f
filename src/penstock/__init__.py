"""Penstock: Kafka Streams for Python, run on Spark.

Here stand the public names and nothing else. Each is loaded when it is first asked for, so that a worker or the broker
loads no more than it needs; errors are in penstock.errors, the test driver in penstock.testing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.dsl.branched import Branched, BranchedKStream
    from penstock.dsl.builder import StreamsBuilder
    from penstock.dsl.global_table import GlobalKTable
    from penstock.dsl.grouped import KGroupedStream
    from penstock.dsl.options import Consumed, Grouped, Materialized, Named, Produced, Repartitioned
    from penstock.dsl.stream import KStream
    from penstock.dsl.table import KTable
    from penstock.errors import StreamsError
    from penstock.host.api import State
    from penstock.plan.describe import TopologyDescription
    from penstock.plan.topology import Topology
    from penstock.processor.api import Cancellable, Processor, ProcessorContext, ProcessorSupplier, PunctuationType
    from penstock.processor.fixed_key import (
        FixedKeyProcessor,
        FixedKeyProcessorContext,
        FixedKeyProcessorSupplier,
        FixedKeyRecord,
    )
    from penstock.record import Headers, KeyValue, Record, RecordMetadata, ValueAndTimestamp
    from penstock.serdes import Serde, Serdes
    from penstock.serdes.windowed import WindowedSerdes
    from penstock.state.api import KeyValueStore, ReadOnlyKeyValueStore, StoreBuilder
    from penstock.state.stores import Stores
    from penstock.streams import KafkaStreams, StreamThreadExceptionResponse
    from penstock.windows import (
        EmitStrategy,
        JoinWindows,
        SessionWindows,
        SlidingWindows,
        TimeWindows,
        UnlimitedWindows,
        Window,
        Windowed,
        Windows,
    )

__version__ = "0.1.0"

_MODULES = {
    "penstock.config": ("StreamsConfig",),
    "penstock.dsl.branched": ("Branched", "BranchedKStream"),
    "penstock.dsl.builder": ("StreamsBuilder",),
    "penstock.dsl.global_table": ("GlobalKTable",),
    "penstock.dsl.grouped": ("KGroupedStream",),
    "penstock.dsl.options": ("Consumed", "Grouped", "Materialized", "Named", "Produced", "Repartitioned"),
    "penstock.dsl.stream": ("KStream",),
    "penstock.dsl.table": ("KTable",),
    "penstock.errors": ("StreamsError",),
    "penstock.host.api": ("State",),
    "penstock.plan.describe": ("TopologyDescription",),
    "penstock.plan.topology": ("Topology",),
    "penstock.processor.api": (
        "Cancellable",
        "Processor",
        "ProcessorContext",
        "ProcessorSupplier",
        "PunctuationType",
    ),
    "penstock.processor.fixed_key": (
        "FixedKeyProcessor",
        "FixedKeyProcessorContext",
        "FixedKeyProcessorSupplier",
        "FixedKeyRecord",
    ),
    "penstock.record": ("Headers", "KeyValue", "Record", "RecordMetadata", "ValueAndTimestamp"),
    "penstock.serdes": ("Serde", "Serdes"),
    "penstock.serdes.windowed": ("WindowedSerdes",),
    "penstock.state.api": ("KeyValueStore", "ReadOnlyKeyValueStore", "StoreBuilder"),
    "penstock.state.stores": ("Stores",),
    "penstock.streams": ("KafkaStreams", "StreamThreadExceptionResponse"),
    "penstock.windows": (
        "EmitStrategy",
        "JoinWindows",
        "SessionWindows",
        "SlidingWindows",
        "TimeWindows",
        "UnlimitedWindows",
        "Window",
        "Windowed",
        "Windows",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Branched",
    "BranchedKStream",
    "Cancellable",
    "Consumed",
    "EmitStrategy",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyProcessorSupplier",
    "FixedKeyRecord",
    "GlobalKTable",
    "Grouped",
    "Headers",
    "JoinWindows",
    "KGroupedStream",
    "KStream",
    "KTable",
    "KafkaStreams",
    "KeyValue",
    "KeyValueStore",
    "Materialized",
    "Named",
    "Processor",
    "ProcessorContext",
    "ProcessorSupplier",
    "Produced",
    "PunctuationType",
    "ReadOnlyKeyValueStore",
    "Record",
    "RecordMetadata",
    "Repartitioned",
    "Serde",
    "Serdes",
    "SessionWindows",
    "SlidingWindows",
    "State",
    "StoreBuilder",
    "Stores",
    "StreamThreadExceptionResponse",
    "StreamsBuilder",
    "StreamsConfig",
    "StreamsError",
    "TimeWindows",
    "Topology",
    "TopologyDescription",
    "UnlimitedWindows",
    "ValueAndTimestamp",
    "Window",
    "Windowed",
    "WindowedSerdes",
    "Windows",
]


def __getattr__(name: str) -> Any:
    """Load the public name `name`; raises AttributeError for any other."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = vars(import_module(_MODULE_OF[name]))[name]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return [*__all__, "__version__"]
