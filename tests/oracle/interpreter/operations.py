"""The operations that are built: DSL operations by the kind of thing they are called on, and those of `Topology`.

A row says what the fields of an operation hold, what it calls, and the kind of its result. What has no row here is
"not built", and a case that asks for it is not run; so a new operator is a new row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from penstock import KGroupedStream, KGroupedTable, KStream, KTable, StoreBuilder, StreamsBuilder, Topology
from tests.oracle.interpreter import functions
from tests.oracle.interpreter.branches import BRANCHES, DEFAULT_BRANCH, split
from tests.oracle.interpreter.fixed_key_processors import FIXED_KEY_PROCESSORS, FixedKeySupplier
from tests.oracle.interpreter.joins import JOINS
from tests.oracle.interpreter.operation import AGGREGATION as _AGGREGATION
from tests.oracle.interpreter.operation import NAMED as _NAMED
from tests.oracle.interpreter.operation import Operation
from tests.oracle.interpreter.options import (
    CONSUMED,
    GROUPED,
    MATERIALIZED,
    PRODUCED,
    REPARTITIONED,
    SUPPRESSED,
)
from tests.oracle.interpreter.processors import PROCESSORS, Supplier
from tests.oracle.interpreter.serdes import SERDES
from tests.oracle.interpreter.stores import STORE_BUILDER
from tests.oracle.interpreter.value_transformers import VALUE_TRANSFORMERS
from tests.oracle.interpreter.vocabulary import PLAIN, ListOf, Reader
from tests.oracle.interpreter.windowed_operations import WINDOWED_DSL

Case = Mapping[str, Any]

BUILDER = "StreamsBuilder"
BRANCHES_KIND = "branches of KStream"


def _without_key(function: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda value: function(None, value)


def _stream(builder: StreamsBuilder, **fields: Any) -> KStream:
    pattern, topics, topic = fields.pop("pattern", None), fields.pop("topics", None), fields.pop("topic", None)
    if pattern is not None:
        return builder.stream(re.compile(pattern), **fields)
    return builder.stream(topic if topics is None else topics, **fields)


def _add_global_store(builder: StreamsBuilder, store: StoreBuilder, topic: str, processor: Any, **fields: Any) -> None:
    builder.add_global_store(store, topic, fields.get("consumed"), Supplier(processor, ()))


def _map_values(receiver: KStream | KTable, mapper: Any, with_key: bool = False, **fields: Any) -> KStream | KTable:
    return receiver.map_values(mapper if with_key else _without_key(mapper), **fields)


def _flat_map_values(receiver: KStream, mapper: Any, with_key: bool = False, **fields: Any) -> KStream:
    return receiver.flat_map_values(mapper if with_key else _without_key(mapper), **fields)


def _process(receiver: KStream, processor: Any, stores: Any = (), owned_stores: Any = (), **fields: Any) -> KStream:
    return receiver.process(Supplier(processor, owned_stores), *stores, **fields)


def _process_values(
    receiver: KStream, processor: Any, stores: Any = (), owned_stores: Any = (), **fields: Any
) -> KStream:
    return receiver.process_values(FixedKeySupplier(processor, owned_stores), *stores, **fields)


def _to(receiver: KStream, topic: Any = None, topic_extractor: Any = None, **fields: Any) -> None:
    receiver.to(topic if topic_extractor is None else topic_extractor, **fields)


def _check_queryable_store_name(table: KTable, **fields: Any) -> None:
    expected = fields.get("is")
    if table.queryable_store_name != expected:
        raise AssertionError(f"Expected the queryable store name {expected!r}, got {table.queryable_store_name!r}.")


_PROCESSOR: Mapping[str, Reader] = {"processor": PROCESSORS, "owned_stores": ListOf(STORE_BUILDER)}

DSL: Mapping[tuple[str, str], Operation] = {
    **WINDOWED_DSL,
    **JOINS,
    (BUILDER, "stream"): Operation(
        _stream, {"topic": PLAIN, "topics": PLAIN, "pattern": PLAIN, "consumed": CONSUMED}, "KStream", receiver=""
    ),
    (BUILDER, "global_table"): Operation(
        StreamsBuilder.global_table,
        {"topic": PLAIN, "consumed": CONSUMED, "materialized": MATERIALIZED},
        "GlobalKTable",
        receiver="",
    ),
    (BUILDER, "add_global_store"): Operation(
        _add_global_store,
        {"store": STORE_BUILDER, "topic": PLAIN, "consumed": CONSUMED, "processor": PROCESSORS},
        receiver="",
    ),
    (BUILDER, "add_state_store"): Operation(
        lambda builder, store: builder.add_state_store(store), {"store": STORE_BUILDER}, receiver=""
    ),
    ("KStream", "filter"): Operation(KStream.filter, {"predicate": functions.PREDICATES, **_NAMED}, "KStream"),
    ("KStream", "filter_not"): Operation(KStream.filter_not, {"predicate": functions.PREDICATES, **_NAMED}, "KStream"),
    ("KStream", "map"): Operation(KStream.map, {"mapper": functions.PAIR_MAPPERS, **_NAMED}, "KStream"),
    ("KStream", "map_values"): Operation(
        _map_values, {"mapper": functions.VALUE_MAPPERS, "with_key": PLAIN, **_NAMED}, "KStream"
    ),
    ("KStream", "flat_map"): Operation(KStream.flat_map, {"mapper": functions.FLAT_PAIR_MAPPERS, **_NAMED}, "KStream"),
    ("KStream", "flat_map_values"): Operation(
        _flat_map_values, {"mapper": functions.FLAT_VALUE_MAPPERS, "with_key": PLAIN, **_NAMED}, "KStream"
    ),
    ("KStream", "select_key"): Operation(KStream.select_key, {"mapper": functions.KEY_SELECTORS, **_NAMED}, "KStream"),
    ("KStream", "peek"): Operation(
        lambda stream, **fields: stream.peek(lambda k, v: None, **fields), _NAMED, "KStream"
    ),
    ("KStream", "foreach"): Operation(lambda stream, **fields: stream.foreach(lambda k, v: None, **fields), _NAMED),
    ("KStream", "merge"): Operation(
        lambda stream, right, **fields: stream.merge(right, **fields), _NAMED, "KStream", "left", ("right",)
    ),
    ("KStream", "process"): Operation(_process, {**_PROCESSOR, "stores": PLAIN, **_NAMED}, "KStream"),
    ("KStream", "process_values"): Operation(
        _process_values,
        {"processor": FIXED_KEY_PROCESSORS, "owned_stores": ListOf(STORE_BUILDER), "stores": PLAIN, **_NAMED},
        "KStream",
    ),
    ("KStream", "repartition"): Operation(KStream.repartition, {"repartitioned": REPARTITIONED}, "KStream"),
    ("KStream", "split"): Operation(split, {"branches": BRANCHES, "default": DEFAULT_BRANCH, **_NAMED}, BRANCHES_KIND),
    ("KStream", "to"): Operation(
        _to, {"topic": PLAIN, "topic_extractor": functions.TOPIC_EXTRACTORS, "produced": PRODUCED}
    ),
    ("KStream", "group_by_key"): Operation(KStream.group_by_key, {"grouped": GROUPED}, "KGroupedStream"),
    ("KStream", "group_by"): Operation(
        lambda stream, mapper, **fields: stream.group_by(mapper, **fields),
        {"mapper": functions.KEY_SELECTORS, "grouped": GROUPED},
        "KGroupedStream",
    ),
    ("KGroupedStream", "count"): Operation(KGroupedStream.count, _AGGREGATION, "KTable"),
    ("KGroupedStream", "reduce"): Operation(
        KGroupedStream.reduce, {"reducer": functions.REDUCERS, **_AGGREGATION}, "KTable"
    ),
    ("KGroupedStream", "aggregate"): Operation(
        KGroupedStream.aggregate,
        {"initializer": functions.INITIALIZERS, "aggregator": functions.AGGREGATORS, **_AGGREGATION},
        "KTable",
    ),
    (BUILDER, "table"): Operation(
        StreamsBuilder.table,
        {"topic": PLAIN, "consumed": CONSUMED, "materialized": MATERIALIZED},
        "KTable",
        receiver="",
    ),
    ("KStream", "to_table"): Operation(KStream.to_table, _AGGREGATION, "KTable"),
    ("KTable", "filter"): Operation(KTable.filter, {"predicate": functions.PREDICATES, **_AGGREGATION}, "KTable"),
    ("KTable", "filter_not"): Operation(
        KTable.filter_not, {"predicate": functions.PREDICATES, **_AGGREGATION}, "KTable"
    ),
    ("KTable", "map_values"): Operation(
        _map_values, {"mapper": functions.VALUE_MAPPERS, "with_key": PLAIN, **_AGGREGATION}, "KTable"
    ),
    ("KTable", "transform_values"): Operation(
        lambda table, transformer, stores=(), **fields: table.transform_values(transformer, *stores, **fields),
        {"transformer": VALUE_TRANSFORMERS, "stores": PLAIN, **_AGGREGATION},
        "KTable",
    ),
    ("KTable", "group_by"): Operation(
        KTable.group_by, {"mapper": functions.PAIR_MAPPERS, "grouped": GROUPED}, "KGroupedTable"
    ),
    ("KGroupedTable", "count"): Operation(KGroupedTable.count, _AGGREGATION, "KTable"),
    ("KGroupedTable", "reduce"): Operation(
        KGroupedTable.reduce,
        {"adder": functions.REDUCERS, "subtractor": functions.REDUCERS, **_AGGREGATION},
        "KTable",
    ),
    ("KGroupedTable", "aggregate"): Operation(
        KGroupedTable.aggregate,
        {
            "initializer": functions.INITIALIZERS,
            "adder": functions.AGGREGATORS,
            "subtractor": functions.AGGREGATORS,
            **_AGGREGATION,
        },
        "KTable",
    ),
    ("KTable", "suppress"): Operation(KTable.suppress, {"suppressed": SUPPRESSED}, "KTable"),
    ("KTable", "to_stream"): Operation(KTable.to_stream, {"mapper": functions.KEY_SELECTORS, **_NAMED}, "KStream"),
    ("KTable", "queryable_store_name"): Operation(_check_queryable_store_name, {"is": PLAIN}),
}


def _add_source(
    topology: Topology, name: str, topics: list[str] | None = None, pattern: str | None = None, **fields: Any
) -> None:
    topology.add_source(name, *topics or (), pattern=None if pattern is None else re.compile(pattern), **fields)


def _add_processor(
    topology: Topology, name: str, processor: Any, parents: list[str], owned_stores: list[StoreBuilder] | None = None
) -> None:
    topology.add_processor(name, Supplier(processor, owned_stores or ()), *parents)


def _add_sink(
    topology: Topology,
    name: str,
    parents: list[str],
    topic: Any = None,
    topic_extractor: Any = None,
    **fields: Any,
) -> None:
    topology.add_sink(name, topic if topic_extractor is None else topic_extractor, *parents, **fields)


def _add_kept_store(
    add: Callable[..., Topology],
    topology: Topology,
    store: StoreBuilder,
    source: str,
    topic: str,
    processor_name: str,
    processor: Any,
    **fields: Any,
) -> None:
    add(topology, store, source, topic, processor_name, Supplier(processor, ()), **fields)


_TOPOLOGY_SERDES: Mapping[str, Reader] = {"key_serde": SERDES, "value_serde": SERDES}
_KEPT_STORE: Mapping[str, Reader] = {
    "store": STORE_BUILDER,
    "source": PLAIN,
    "topic": PLAIN,
    "processor_name": PLAIN,
    "processor": PROCESSORS,
    **_TOPOLOGY_SERDES,
}

LOW_LEVEL: Mapping[str, Operation] = {
    "add_source": Operation(
        _add_source,
        {
            "name": PLAIN,
            "topics": PLAIN,
            "pattern": PLAIN,
            **_TOPOLOGY_SERDES,
            "offset_reset": PLAIN,
            "timestamp_extractor": functions.TIMESTAMP_EXTRACTORS,
        },
    ),
    "add_processor": Operation(_add_processor, {"name": PLAIN, **_PROCESSOR, "parents": PLAIN}),
    "add_sink": Operation(
        _add_sink,
        {
            "name": PLAIN,
            "topic": PLAIN,
            "topic_extractor": functions.TOPIC_EXTRACTORS,
            **_TOPOLOGY_SERDES,
            "partitioner": functions.PARTITIONERS,
            "parents": PLAIN,
        },
    ),
    "add_store": Operation(
        lambda topology, store, processors=(): topology.add_state_store(store, *processors),
        {"store": STORE_BUILDER, "processors": PLAIN},
    ),
    "connect": Operation(
        lambda topology, processor, stores=(): topology.connect_processor_and_state_stores(processor, *stores),
        {"processor": PLAIN, "stores": PLAIN},
    ),
    "add_global": Operation(partial(_add_kept_store, Topology.add_global_store), _KEPT_STORE),
    "add_read_only_store": Operation(partial(_add_kept_store, Topology.add_read_only_state_store), _KEPT_STORE),
}


def is_low_level(entry: Case) -> bool:
    """Return whether an operation belongs to the low-level Topology (FORMAT.md section 7)."""
    return entry["op"] in LOW_LEVEL


def missing(entries: list[Case]) -> Iterator[str]:
    """Yield what the operations of a case ask for that is not built; what is called on their results is passed over."""
    kinds: dict[str, str] = {}
    for entry in entries:
        if is_low_level(entry):
            operation = LOW_LEVEL.get(entry["op"])
            shown = f"Topology.{entry['op']}"
        else:
            kind = _kind(kinds, entry.get("from", entry.get("left", ""))) if _has_receiver(entry) else BUILDER
            if kind is None:
                continue
            operation = DSL.get((kind, entry["op"]))
            shown = f"{kind}.{entry['op']}"
        if operation is None:
            yield shown
            continue
        yield from _missing_in_fields(shown, operation, entry)
        if operation.result is not None:
            kinds[entry["id"]] = operation.result


def _kind(kinds: Mapping[str, str], reference: str) -> str | None:
    """Return the kind of the result that `reference` names; ID:KEY names a branch of the operation ID."""
    split_id, colon, _ = reference.partition(":")
    return "KStream" if colon and kinds.get(split_id) == BRANCHES_KIND else kinds.get(reference)


def _has_receiver(entry: Case) -> bool:
    return "from" in entry or "left" in entry


def _missing_in_fields(shown: str, operation: Operation, entry: Case) -> Iterator[str]:
    for name, content in entry.items():
        if name in ("op", "id", operation.receiver, *operation.operands):
            continue
        if name not in operation.readers:
            yield f"{shown}({name})"
        elif content is not None:
            yield from operation.readers[name].missing(content)


class DslInterpreter:
    """Applies DSL operations to one StreamsBuilder and keeps their results by id."""

    def __init__(self, builder: StreamsBuilder) -> None:
        """Start with no results."""
        self._builder = builder
        self._results: dict[str, tuple[str, Any]] = {}

    def apply(self, entry: Case) -> None:
        """Apply one operation; every error of the library passes through."""
        kind, receiver = (
            self._results[entry.get("from", entry.get("left"))] if _has_receiver(entry) else (BUILDER, self._builder)
        )
        operation = DSL[kind, entry["op"]]
        operands = {name: self._results[entry[name]][1] for name in operation.operands}
        result = operation.apply(receiver, **operands, **_read_fields(operation, entry))
        if operation.result == BRANCHES_KIND:
            self._results.update({f"{entry['id']}:{name}": ("KStream", branch) for name, branch in result.items()})
        elif operation.result is not None:
            self._results[entry["id"]] = (operation.result, result)


def apply_low_level(topology: Topology, entry: Case) -> None:
    """Apply one operation of the low-level Topology; every error of the library passes through."""
    operation = LOW_LEVEL[entry["op"]]
    operation.apply(topology, **_read_fields(operation, entry))


def _read_fields(operation: Operation, entry: Case) -> dict[str, Any]:
    return {name: reader.read(entry[name]) for name, reader in operation.readers.items() if entry.get(name) is not None}
