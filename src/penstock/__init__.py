"""Penstock: Kafka Streams for Python, on Spark or in an ordinary process.

This module exports the public names and imports each lazily, so workers and the broker load only what they use. Errors
are in penstock.errors, exception handlers in penstock.exception_handlers, the test driver in penstock.testing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.application.close_options import CloseOptions
    from penstock.calendar_windows import CalendarWindows
    from penstock.config import StreamsConfig
    from penstock.config.isolation_level import IsolationLevel
    from penstock.dsl.branched import Branched, BranchedKStream
    from penstock.dsl.builder import StreamsBuilder
    from penstock.dsl.calls import Calls, Retry
    from penstock.dsl.cogrouped import (
        CogroupedKStream,
        SessionWindowedCogroupedKStream,
        TimeWindowedCogroupedKStream,
    )
    from penstock.dsl.count_windowed import CountWindowedKStream
    from penstock.dsl.deduplicated import Deduplicated
    from penstock.dsl.global_table import GlobalKTable
    from penstock.dsl.grouped import KGroupedStream
    from penstock.dsl.grouped_table import KGroupedTable
    from penstock.dsl.join_options import Joined, StreamJoined, TableJoined
    from penstock.dsl.options import Consumed, Grouped, Materialized, Named, Produced, Repartitioned
    from penstock.dsl.park import Park
    from penstock.dsl.printed import Printed
    from penstock.dsl.stream import KStream
    from penstock.dsl.suppressed import BufferConfig, EagerBufferConfig, StrictBufferConfig, Suppressed
    from penstock.dsl.table import KTable
    from penstock.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream
    from penstock.errors import StreamsError
    from penstock.host.api import Staleness, State, StreamThreadExceptionResponse
    from penstock.host.group_membership_operation import GroupMembershipOperation
    from penstock.host.open import open_state
    from penstock.named_topologies import KafkaStreamsNamedTopologyWrapper, NamedTopology, NamedTopologyBuilder
    from penstock.plan.describe import TopologyDescription
    from penstock.plan.offset_reset import AutoOffsetReset
    from penstock.plan.partition_grouper import PartitionGrouper
    from penstock.plan.topology import Topology
    from penstock.plan.topology_config import TopologyConfig
    from penstock.processor.api import Cancellable, Processor, ProcessorContext, ProcessorSupplier, PunctuationType
    from penstock.processor.backoff import Backoff
    from penstock.processor.calls import NOT_CALLED, CallContext, NotCalled
    from penstock.processor.column_functions import vectorized
    from penstock.processor.fixed_key import (
        FixedKeyProcessor,
        FixedKeyProcessorContext,
        FixedKeyProcessorSupplier,
        FixedKeyRecord,
    )
    from penstock.processor.model import model
    from penstock.processor.timestamps import (
        fail_on_invalid_timestamp,
        log_and_skip_on_invalid_timestamp,
        use_partition_time_on_invalid_timestamp,
        wallclock_timestamp_extractor,
    )
    from penstock.processor.value_transformer import ValueTransformerWithKey, ValueTransformerWithKeySupplier
    from penstock.processor.wrapper import ProcessorWrapper
    from penstock.record import (
        AggregationWithHeaders,
        ConsumerRecord,
        Headers,
        KeyValue,
        ReadOnlyRecord,
        Record,
        RecordMetadata,
        ValueAndTimestamp,
        ValueTimestampHeaders,
    )
    from penstock.serdes import Serde, Serdes
    from penstock.serdes.windowed import WindowedSerdes
    from penstock.state.api import (
        KeyValueIterator,
        KeyValueStore,
        ReadOnlyKeyValueStore,
        RecordContext,
        StateStore,
        StoreBuilder,
    )
    from penstock.state.custom import CustomStateStore, CustomStoreSupplier, StateStoreContext
    from penstock.state.query.metadata import HostInfo, KeyQueryMetadata, LagInfo, StreamsMetadata
    from penstock.state.query.position import Position, PositionBound
    from penstock.state.query.queries import (
        KeyQuery,
        MultiVersionedKeyQuery,
        Query,
        RangeQuery,
        ResultOrder,
        TimestampedKeyQuery,
        TimestampedKeyWithHeadersQuery,
        TimestampedRangeQuery,
        TimestampedRangeWithHeadersQuery,
        TimestampedWindowKeyWithHeadersQuery,
        TimestampedWindowRangeWithHeadersQuery,
        VersionedKeyQuery,
        WindowKeyQuery,
        WindowRangeQuery,
    )
    from penstock.state.query.queryable import QueryableStoreType, QueryableStoreTypes, StoreQueryParameters
    from penstock.state.query.record_iterator import ReadOnlyRecordIterator
    from penstock.state.query.request import FailureReason, QueryResult, StateQueryRequest, StateQueryResult
    from penstock.state.restore_listener import StateRestoreListener
    from penstock.state.rocksdb_options import RocksDBConfigSetter
    from penstock.state.stores import Stores
    from penstock.state.ttl import OnExpiry, TtlClock, TtlRenewal
    from penstock.state.versioned_api import (
        PUT_RETURN_CODE_NOT_PUT,
        PUT_RETURN_CODE_VALID_TO_UNDEFINED,
        VersionedKeyValueStore,
        VersionedRecord,
    )
    from penstock.state.windowed_api import ReadOnlySessionStore, ReadOnlyWindowStore, SessionStore, WindowStore
    from penstock.streams import KafkaStreams
    from penstock.windows import (
        CountWindow,
        EmitStrategy,
        JoinWindows,
        SessionWindow,
        SessionWindows,
        SlidingWindows,
        TimeWindow,
        TimeWindows,
        UnlimitedWindow,
        UnlimitedWindows,
        Window,
        Windowed,
        Windows,
    )

__version__ = "0.3.0.dev0"

_MODULES = {
    "penstock.application.close_options": ("CloseOptions",),
    "penstock.calendar_windows": ("CalendarWindows",),
    "penstock.config": ("StreamsConfig",),
    "penstock.config.isolation_level": ("IsolationLevel",),
    "penstock.dsl.branched": ("Branched", "BranchedKStream"),
    "penstock.dsl.builder": ("StreamsBuilder",),
    "penstock.dsl.calls": ("Calls", "Retry"),
    "penstock.dsl.cogrouped": (
        "CogroupedKStream",
        "SessionWindowedCogroupedKStream",
        "TimeWindowedCogroupedKStream",
    ),
    "penstock.dsl.deduplicated": ("Deduplicated",),
    "penstock.dsl.global_table": ("GlobalKTable",),
    "penstock.dsl.count_windowed": ("CountWindowedKStream",),
    "penstock.dsl.grouped": ("KGroupedStream",),
    "penstock.dsl.grouped_table": ("KGroupedTable",),
    "penstock.dsl.join_options": ("Joined", "StreamJoined", "TableJoined"),
    "penstock.dsl.options": ("Consumed", "Grouped", "Materialized", "Named", "Produced", "Repartitioned"),
    "penstock.dsl.park": ("Park",),
    "penstock.dsl.printed": ("Printed",),
    "penstock.dsl.stream": ("KStream",),
    "penstock.dsl.suppressed": ("BufferConfig", "EagerBufferConfig", "StrictBufferConfig", "Suppressed"),
    "penstock.dsl.table": ("KTable",),
    "penstock.dsl.windowed": ("SessionWindowedKStream", "TimeWindowedKStream"),
    "penstock.errors": ("StreamsError",),
    "penstock.host.api": ("Staleness", "State", "StreamThreadExceptionResponse"),
    "penstock.host.group_membership_operation": ("GroupMembershipOperation",),
    "penstock.host.open": ("open_state",),
    "penstock.named_topologies": ("KafkaStreamsNamedTopologyWrapper", "NamedTopology", "NamedTopologyBuilder"),
    "penstock.plan.describe": ("TopologyDescription",),
    "penstock.plan.offset_reset": ("AutoOffsetReset",),
    "penstock.plan.partition_grouper": ("PartitionGrouper",),
    "penstock.plan.topology": ("Topology",),
    "penstock.plan.topology_config": ("TopologyConfig",),
    "penstock.processor.api": (
        "Cancellable",
        "Processor",
        "ProcessorContext",
        "ProcessorSupplier",
        "PunctuationType",
    ),
    "penstock.processor.backoff": ("Backoff",),
    "penstock.processor.calls": ("NOT_CALLED", "CallContext", "NotCalled"),
    "penstock.processor.column_functions": ("vectorized",),
    "penstock.processor.model": ("model",),
    "penstock.processor.fixed_key": (
        "FixedKeyProcessor",
        "FixedKeyProcessorContext",
        "FixedKeyProcessorSupplier",
        "FixedKeyRecord",
    ),
    "penstock.processor.timestamps": (
        "fail_on_invalid_timestamp",
        "log_and_skip_on_invalid_timestamp",
        "use_partition_time_on_invalid_timestamp",
        "wallclock_timestamp_extractor",
    ),
    "penstock.processor.wrapper": ("ProcessorWrapper",),
    "penstock.processor.value_transformer": ("ValueTransformerWithKey", "ValueTransformerWithKeySupplier"),
    "penstock.record": (
        "AggregationWithHeaders",
        "ConsumerRecord",
        "Headers",
        "KeyValue",
        "ReadOnlyRecord",
        "Record",
        "RecordMetadata",
        "ValueAndTimestamp",
        "ValueTimestampHeaders",
    ),
    "penstock.serdes": ("Serde", "Serdes"),
    "penstock.serdes.windowed": ("WindowedSerdes",),
    "penstock.state.api": (
        "KeyValueIterator",
        "KeyValueStore",
        "ReadOnlyKeyValueStore",
        "RecordContext",
        "StateStore",
        "StoreBuilder",
    ),
    "penstock.state.custom": ("CustomStateStore", "CustomStoreSupplier", "StateStoreContext"),
    "penstock.state.query.metadata": ("HostInfo", "KeyQueryMetadata", "LagInfo", "StreamsMetadata"),
    "penstock.state.query.position": ("Position", "PositionBound"),
    "penstock.state.query.queries": (
        "KeyQuery",
        "MultiVersionedKeyQuery",
        "Query",
        "RangeQuery",
        "ResultOrder",
        "TimestampedKeyQuery",
        "TimestampedKeyWithHeadersQuery",
        "TimestampedRangeQuery",
        "TimestampedRangeWithHeadersQuery",
        "TimestampedWindowKeyWithHeadersQuery",
        "TimestampedWindowRangeWithHeadersQuery",
        "VersionedKeyQuery",
        "WindowKeyQuery",
        "WindowRangeQuery",
    ),
    "penstock.state.query.record_iterator": ("ReadOnlyRecordIterator",),
    "penstock.state.query.request": ("FailureReason", "QueryResult", "StateQueryRequest", "StateQueryResult"),
    "penstock.state.query.queryable": ("QueryableStoreType", "QueryableStoreTypes", "StoreQueryParameters"),
    "penstock.state.restore_listener": ("StateRestoreListener",),
    "penstock.state.rocksdb_options": ("RocksDBConfigSetter",),
    "penstock.state.stores": ("Stores",),
    "penstock.state.ttl": ("OnExpiry", "TtlClock", "TtlRenewal"),
    "penstock.state.versioned_api": (
        "PUT_RETURN_CODE_NOT_PUT",
        "PUT_RETURN_CODE_VALID_TO_UNDEFINED",
        "VersionedKeyValueStore",
        "VersionedRecord",
    ),
    "penstock.state.windowed_api": ("ReadOnlySessionStore", "ReadOnlyWindowStore", "SessionStore", "WindowStore"),
    "penstock.streams": ("KafkaStreams",),
    "penstock.windows": (
        "CountWindow",
        "EmitStrategy",
        "JoinWindows",
        "SessionWindow",
        "SessionWindows",
        "SlidingWindows",
        "TimeWindow",
        "TimeWindows",
        "UnlimitedWindow",
        "UnlimitedWindows",
        "Window",
        "Windowed",
        "Windows",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "NOT_CALLED",
    "PUT_RETURN_CODE_NOT_PUT",
    "PUT_RETURN_CODE_VALID_TO_UNDEFINED",
    "AggregationWithHeaders",
    "AutoOffsetReset",
    "Backoff",
    "Branched",
    "BranchedKStream",
    "BufferConfig",
    "CalendarWindows",
    "CallContext",
    "Calls",
    "Cancellable",
    "CloseOptions",
    "CogroupedKStream",
    "Consumed",
    "ConsumerRecord",
    "CountWindow",
    "CountWindowedKStream",
    "CustomStateStore",
    "CustomStoreSupplier",
    "Deduplicated",
    "EagerBufferConfig",
    "EmitStrategy",
    "FailureReason",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyProcessorSupplier",
    "FixedKeyRecord",
    "GlobalKTable",
    "GroupMembershipOperation",
    "Grouped",
    "Headers",
    "HostInfo",
    "IsolationLevel",
    "JoinWindows",
    "Joined",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KafkaStreams",
    "KafkaStreamsNamedTopologyWrapper",
    "KeyQuery",
    "KeyQueryMetadata",
    "KeyValue",
    "KeyValueIterator",
    "KeyValueStore",
    "LagInfo",
    "Materialized",
    "MultiVersionedKeyQuery",
    "Named",
    "NamedTopology",
    "NamedTopologyBuilder",
    "NotCalled",
    "OnExpiry",
    "Park",
    "PartitionGrouper",
    "Position",
    "PositionBound",
    "Printed",
    "Processor",
    "ProcessorContext",
    "ProcessorSupplier",
    "ProcessorWrapper",
    "Produced",
    "PunctuationType",
    "Query",
    "QueryResult",
    "QueryableStoreType",
    "QueryableStoreTypes",
    "RangeQuery",
    "ReadOnlyKeyValueStore",
    "ReadOnlyRecord",
    "ReadOnlyRecordIterator",
    "ReadOnlySessionStore",
    "ReadOnlyWindowStore",
    "Record",
    "RecordContext",
    "RecordMetadata",
    "Repartitioned",
    "ResultOrder",
    "Retry",
    "RocksDBConfigSetter",
    "Serde",
    "Serdes",
    "SessionStore",
    "SessionWindow",
    "SessionWindowedCogroupedKStream",
    "SessionWindowedKStream",
    "SessionWindows",
    "SlidingWindows",
    "Staleness",
    "State",
    "StateQueryRequest",
    "StateQueryResult",
    "StateRestoreListener",
    "StateStore",
    "StateStoreContext",
    "StoreBuilder",
    "StoreQueryParameters",
    "Stores",
    "StreamJoined",
    "StreamThreadExceptionResponse",
    "StreamsBuilder",
    "StreamsConfig",
    "StreamsError",
    "StreamsMetadata",
    "StrictBufferConfig",
    "Suppressed",
    "TableJoined",
    "TimeWindow",
    "TimeWindowedCogroupedKStream",
    "TimeWindowedKStream",
    "TimeWindows",
    "TimestampedKeyQuery",
    "TimestampedKeyWithHeadersQuery",
    "TimestampedRangeQuery",
    "TimestampedRangeWithHeadersQuery",
    "TimestampedWindowKeyWithHeadersQuery",
    "TimestampedWindowRangeWithHeadersQuery",
    "Topology",
    "TopologyConfig",
    "TopologyDescription",
    "TtlClock",
    "TtlRenewal",
    "UnlimitedWindow",
    "UnlimitedWindows",
    "ValueAndTimestamp",
    "ValueTimestampHeaders",
    "ValueTransformerWithKey",
    "ValueTransformerWithKeySupplier",
    "VersionedKeyQuery",
    "VersionedKeyValueStore",
    "VersionedRecord",
    "Window",
    "WindowKeyQuery",
    "WindowRangeQuery",
    "WindowStore",
    "Windowed",
    "WindowedSerdes",
    "Windows",
    "fail_on_invalid_timestamp",
    "log_and_skip_on_invalid_timestamp",
    "model",
    "open_state",
    "use_partition_time_on_invalid_timestamp",
    "vectorized",
    "wallclock_timestamp_extractor",
]


def __getattr__(name: str) -> Any:
    """Import the public name `name` on first access; raises AttributeError for any other."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = vars(import_module(_MODULE_OF[name]))[name]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return [*__all__, "__version__"]
