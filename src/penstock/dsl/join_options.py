"""The option objects of joins: Joined, StreamJoined, TableJoined. Immutable: `with_...` returns a changed copy.

Serdes of None mean the configured defaults, or those of the stream if it must be repartitioned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, overload

from penstock.dsl.arguments import by_position, check_serdes
from penstock.dsl.options import STORE_TYPES
from penstock.plan.names import check_name
from penstock.plan.subtopology import StreamPartitioner
from penstock.processor.stream_partitioner import check_partitioner
from penstock.serdes import Serde
from penstock.state.suppliers import WindowBytesStoreSupplier
from penstock_broker.common.durations import Duration, milliseconds


@dataclass(frozen=True, kw_only=True)
class Joined:
    """Options of a join of a stream with a table (Kafka class: Joined).

    Args:
        key_serde, value_serde: of the repartition topic, if required.
        other_value_serde: of the table's values; not used.
        name: of the node and the repartition topic.
        grace_period_ms: how long a record waits for late updates of a versioned table (KIP-923); None to not wait.
    """

    key_serde: Serde | None = None
    value_serde: Serde | None = None
    other_value_serde: Serde | None = None
    name: str | None = None
    grace_period_ms: int | None = None

    def __post_init__(self) -> None:
        check_serdes(self, "key_serde", "value_serde", "other_value_serde")
        if self.name is not None:
            check_name(self.name)

    @staticmethod
    def as_(name: str) -> Joined:
        """Return options with the name of the node and the repartition topic."""
        return Joined(name=name)

    @staticmethod
    def with_(
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        other_value_serde: Serde | None = None,
        name: str | None = None,
        grace_period_ms: Duration | None = None,
    ) -> Joined:
        """Return these options; raises TopologyError for an invalid name."""
        return Joined(
            key_serde=key_serde,
            value_serde=value_serde,
            other_value_serde=other_value_serde,
            name=name,
            grace_period_ms=None if grace_period_ms is None else milliseconds(grace_period_ms, "grace period"),
        )

    def with_key_serde(self, key_serde: Serde | None) -> Joined:
        """Return a copy with this key serde."""
        return replace(self, key_serde=key_serde)

    def with_value_serde(self, value_serde: Serde | None) -> Joined:
        """Return a copy with this serde of the stream's values."""
        return replace(self, value_serde=value_serde)

    def with_other_value_serde(self, other_value_serde: Serde | None) -> Joined:
        """Return a copy with this serde of the table's values."""
        return replace(self, other_value_serde=other_value_serde)

    def with_name(self, name: str) -> Joined:
        """Return a copy with this name."""
        return replace(self, name=name)

    def with_grace_period(self, grace_period_ms: Duration) -> Joined:
        """Return a copy with records waiting `grace_period_ms` of stream time before the join."""
        return replace(self, grace_period_ms=milliseconds(grace_period_ms, "grace period"))


@dataclass(frozen=True, kw_only=True)
class StreamJoined:
    """Options of a join of two streams (Kafka class: StreamJoined).

    Args:
        key_serde: of the keys of both streams.
        value_serde, other_value_serde: of the values of this stream and the other.
        name: prefix of the names of the nodes and repartition topics.
        store_name: prefix of the names of the stores.
        this_store_supplier, other_store_supplier: window stores that keep duplicates, with the size and the retention
            of the windows.
        store_type: "in_memory" or "rocksdb" (on disk); None for `dsl.store.suppliers.class`.
        logging, changelog_config: whether the stores have changelog topics, and their configs.
    """

    key_serde: Serde | None = None
    value_serde: Serde | None = None
    other_value_serde: Serde | None = None
    name: str | None = None
    store_name: str | None = None
    this_store_supplier: WindowBytesStoreSupplier | None = None
    other_store_supplier: WindowBytesStoreSupplier | None = None
    store_type: str | None = None
    logging: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_serdes(self, "key_serde", "value_serde", "other_value_serde")
        for name in (self.name, self.store_name):
            if name is not None:
                check_name(name)
        if self.store_type is not None and self.store_type not in STORE_TYPES:
            raise ValueError(f"Unknown store type {self.store_type!r}: expected one of {', '.join(STORE_TYPES)}.")

    @staticmethod
    def as_(store_name: str) -> StreamJoined:
        """Return options with the name prefix of the stores."""
        return StreamJoined(store_name=store_name)

    @overload
    @staticmethod
    def with_(
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        other_value_serde: Serde | None = None,
        *,
        this_store_supplier: WindowBytesStoreSupplier | None = None,
        other_store_supplier: WindowBytesStoreSupplier | None = None,
        store_type: str | None = None,
    ) -> StreamJoined: ...
    @overload
    @staticmethod
    def with_(
        this_store_supplier: WindowBytesStoreSupplier, other_store_supplier: WindowBytesStoreSupplier, /
    ) -> StreamJoined: ...
    @staticmethod
    def with_(*given: Any, **options: Any) -> StreamJoined:
        """Return these options: serdes of keys, values and other values, or suppliers of both stores."""
        names: tuple[str, ...] = ("key_serde", "value_serde", "other_value_serde")
        if given and isinstance(given[0], WindowBytesStoreSupplier):
            names = ("this_store_supplier", "other_store_supplier")
        return StreamJoined(**by_position(names, given, options))

    def with_key_serde(self, key_serde: Serde | None) -> StreamJoined:
        """Return a copy with this key serde."""
        return replace(self, key_serde=key_serde)

    def with_value_serde(self, value_serde: Serde | None) -> StreamJoined:
        """Return a copy with this serde of this stream's values."""
        return replace(self, value_serde=value_serde)

    def with_other_value_serde(self, other_value_serde: Serde | None) -> StreamJoined:
        """Return a copy with this serde of the other stream's values."""
        return replace(self, other_value_serde=other_value_serde)

    def with_name(self, name: str) -> StreamJoined:
        """Return a copy with this name prefix of the nodes and repartition topics."""
        return replace(self, name=name)

    def with_store_name(self, store_name: str) -> StreamJoined:
        """Return a copy with this name prefix of the stores."""
        return replace(self, store_name=store_name)

    def with_this_store_supplier(self, supplier: WindowBytesStoreSupplier) -> StreamJoined:
        """Return a copy with the store of this stream's records."""
        return replace(self, this_store_supplier=supplier)

    def with_other_store_supplier(self, supplier: WindowBytesStoreSupplier) -> StreamJoined:
        """Return a copy with the store of the other stream's records."""
        return replace(self, other_store_supplier=supplier)

    def with_store_type(self, store_type: str) -> StreamJoined:
        """Return a copy with stores "in_memory" or on disk ("rocksdb") (Kafka: withDslStoreSuppliers)."""
        return replace(self, store_type=store_type)

    def with_logging_enabled(self, config: Mapping[str, str]) -> StreamJoined:
        """Return a copy with changelog topics, created with `config` in addition to Kafka Streams' own."""
        return replace(self, logging=True, changelog_config=dict(config))

    def with_logging_disabled(self) -> StreamJoined:
        """Return a copy without changelog topics."""
        return replace(self, logging=False, changelog_config={})


@dataclass(frozen=True, kw_only=True)
class TableJoined:
    """Options of a foreign-key join of two tables (Kafka class: TableJoined, KIP-775).

    Args:
        partitioner, other_partitioner: partitioners of the primary and the foreign table; None for Kafka's own choice
            by key. Each must return exactly one partition.
        name: prefix of the names of nodes, topics and store.
    """

    partitioner: StreamPartitioner | None = None
    other_partitioner: StreamPartitioner | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_partitioner("TableJoined", self.partitioner)
        check_partitioner("TableJoined for the foreign table", self.other_partitioner)
        if self.name is not None:
            check_name(self.name)

    @staticmethod
    def as_(name: str) -> TableJoined:
        """Return options with this name prefix."""
        return TableJoined(name=name)

    @staticmethod
    def with_(
        partitioner: StreamPartitioner | None = None, other_partitioner: StreamPartitioner | None = None
    ) -> TableJoined:
        """Return options with the partitioners of the two tables."""
        return TableJoined(partitioner=partitioner, other_partitioner=other_partitioner)

    def with_partitioner(self, partitioner: StreamPartitioner | None) -> TableJoined:
        """Return a copy with the partitioner of the primary table."""
        return replace(self, partitioner=partitioner)

    def with_other_partitioner(self, other_partitioner: StreamPartitioner | None) -> TableJoined:
        """Return a copy with the partitioner of the foreign table."""
        return replace(self, other_partitioner=other_partitioner)

    def with_name(self, name: str) -> TableJoined:
        """Return a copy with this name prefix."""
        return replace(self, name=name)
