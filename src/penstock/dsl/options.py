"""The option objects of the DSL: names, serdes and stores of operators. Immutable: `with_...` returns a changed copy.

An option of None is inherited from the stream, or is the configured default, as documented by each operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, overload

from penstock.dsl.arguments import by_name_hint, by_position, check_fits, check_serdes, is_function
from penstock.dsl.type_variables import KR, VR, K, V
from penstock.plan.names import check_name
from penstock.plan.offset_reset import OffsetReset, check_offset_reset
from penstock.plan.subtopology import StreamPartitioner
from penstock.processor.stream_partitioner import check_partitioner
from penstock.processor.timestamps import TimestampExtractor
from penstock.serdes import Serde
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import (
    KeyValueBytesStoreSupplier,
    LruMapBytesStoreSupplier,
    StoreSupplier,
    VersionedBytesStoreSupplier,
)
from penstock.state.ttl import OnExpiry, Ttl, TtlClock, checked_ttl
from penstock_broker.common.durations import Duration, milliseconds

STORE_TYPES = ("in_memory", "rocksdb")

_S = TypeVar("_S", bound=StoreSupplier)


@dataclass(frozen=True)
class Named:
    """The name of an operator's node (Kafka class: Named)."""

    name: str

    def __post_init__(self) -> None:
        check_name(self.name)

    @staticmethod
    def as_(name: str) -> Named:
        """Return the name `name`; raises TopologyError if it is invalid."""
        return Named(name)

    def with_name(self, name: str) -> Named:
        """Return another name; raises TopologyError if it is invalid."""
        return Named(name)


def name_of(named: Named | str | None) -> str | None:
    """Return the name in the user's string or Named, or None without one.

    Raises TopologyError if it is invalid, TypeError for other options.
    """
    match named:
        case None:
            return None
        case Named():
            return named.name
        case _ if hint := by_name_hint(named):
            raise TypeError(f"Expected a name, got {named!r}: {hint}.")
        case _:
            return check_name(named)


def _check_optional(name: str | None) -> None:
    if name is not None:
        check_name(name)


@dataclass(frozen=True, kw_only=True)
class Consumed(Generic[K, V]):
    """Options for reading a topic (Kafka class: Consumed).

    Args:
        key_serde, value_serde: None for the defaults.
        timestamp_extractor: returns each record's timestamp in ms; None for `default.timestamp.extractor`.
        offset_reset: the start without a committed position, from AutoOffsetReset; None for `auto.offset.reset`.
        name: the name of the source node.
    """

    key_serde: Serde[K] | None = None
    value_serde: Serde[V] | None = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_serdes(self, "key_serde", "value_serde")
        _check_optional(self.name)
        check_offset_reset(self.offset_reset)

    @staticmethod
    def as_(name: str) -> Consumed:
        """Return options with the name of the source node."""
        return Consumed(name=name)

    @overload
    @staticmethod
    def with_(
        key_serde: Serde[KR] | None = None,
        value_serde: Serde[VR] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: str | None = None,
        *,
        name: str | None = None,
    ) -> Consumed[KR, VR]: ...
    @overload
    @staticmethod
    def with_(only: TimestampExtractor | OffsetReset, /) -> Consumed: ...
    @staticmethod
    def with_(*given: Any, **options: Any) -> Consumed[Any, Any]:
        """Return these options: serdes, timestamp extractor and offset reset, in this order.

        One of the last two may be given alone. Raises TopologyError for an invalid name, ValueError for an invalid
        offset_reset.
        """
        names: tuple[str, ...] = ("key_serde", "value_serde", "timestamp_extractor", "offset_reset")
        if len(given) == 1 and isinstance(given[0], OffsetReset):
            names = ("offset_reset",)
        elif len(given) == 1 and is_function(given[0]):
            names = ("timestamp_extractor",)
        return Consumed(**by_position(names, given, options))

    def with_key_serde(self, key_serde: Serde[KR] | None) -> Consumed[KR, V]:
        """Return a copy with this key serde."""
        return Consumed(**{**vars(self), "key_serde": key_serde})

    def with_value_serde(self, value_serde: Serde[VR] | None) -> Consumed[K, VR]:
        """Return a copy with this value serde."""
        return Consumed(**{**vars(self), "value_serde": value_serde})

    def with_timestamp_extractor(self, timestamp_extractor: TimestampExtractor | None) -> Consumed[K, V]:
        """Return a copy with this timestamp extractor."""
        return replace(self, timestamp_extractor=timestamp_extractor)

    def with_offset_reset_policy(self, offset_reset: str | None) -> Consumed[K, V]:
        """Return a copy that starts at "earliest" or "latest" without a committed offset."""
        return replace(self, offset_reset=offset_reset)

    def with_name(self, name: str) -> Consumed[K, V]:
        """Return a copy with the name of the source node."""
        return replace(self, name=name)


@dataclass(frozen=True, kw_only=True)
class Produced:
    """Options for writing a topic (Kafka class: Produced).

    None means the serdes of the stream, and Kafka's own choice of the partition.
    """

    key_serde: Serde | None = None
    value_serde: Serde | None = None
    partitioner: StreamPartitioner | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_serdes(self, "key_serde", "value_serde")
        check_partitioner("Produced", self.partitioner)
        _check_optional(self.name)

    @staticmethod
    def as_(name: str) -> Produced:
        """Return options with the name of the sink node."""
        return Produced(name=name)

    @staticmethod
    def with_(
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        partitioner: StreamPartitioner | None = None,
        *,
        name: str | None = None,
    ) -> Produced:
        """Return these options; raises TopologyError for an invalid name."""
        return Produced(key_serde=key_serde, value_serde=value_serde, partitioner=partitioner, name=name)

    def with_key_serde(self, key_serde: Serde | None) -> Produced:
        """Return a copy with this key serde."""
        return replace(self, key_serde=key_serde)

    def with_value_serde(self, value_serde: Serde | None) -> Produced:
        """Return a copy with this value serde."""
        return replace(self, value_serde=value_serde)

    def with_stream_partitioner(self, partitioner: StreamPartitioner | None) -> Produced:
        """Return a copy with this partitioner."""
        return replace(self, partitioner=partitioner)

    def with_name(self, name: str) -> Produced:
        """Return a copy with the name of the sink node."""
        return replace(self, name=name)


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """Options for grouping records: serdes and name of the repartition topic, if required (Kafka class: Grouped).

    None means the serdes of the stream, and a name derived from the store.
    """

    key_serde: Serde | None = None
    value_serde: Serde | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_serdes(self, "key_serde", "value_serde")
        _check_optional(self.name)

    @staticmethod
    def as_(name: str) -> Grouped:
        """Return options with the name of the repartition topic.

        The node that selects the key has this name as well.
        """
        return Grouped(name=name)

    @overload
    @staticmethod
    def with_(
        key_serde: Serde | None = None, value_serde: Serde | None = None, *, name: str | None = None
    ) -> Grouped: ...
    @overload
    @staticmethod
    def with_(name: str, key_serde: Serde | None, value_serde: Serde | None, /) -> Grouped: ...
    @staticmethod
    def with_(*given: Any, **options: Any) -> Grouped:
        """Return these options: two serdes, optionally after a name.

        Raises TopologyError for an invalid name.
        """
        serdes = "key_serde", "value_serde"
        return Grouped(**by_position(("name", *serdes) if len(given) == len(serdes) + 1 else serdes, given, options))

    def with_key_serde(self, key_serde: Serde | None) -> Grouped:
        """Return a copy with this key serde."""
        return replace(self, key_serde=key_serde)

    def with_value_serde(self, value_serde: Serde | None) -> Grouped:
        """Return a copy with this value serde."""
        return replace(self, value_serde=value_serde)

    def with_name(self, name: str) -> Grouped:
        """Return a copy with the name of the repartition topic."""
        return replace(self, name=name)


@dataclass(frozen=True, kw_only=True)
class Repartitioned:
    """Options for repartitioning a stream (Kafka class: Repartitioned).

    None means the serdes of the stream, Kafka's own choice of the partition, and a generated name.

    Args:
        number_of_partitions: of the repartition topic; None for as many as the stream's source topics have.
    """

    key_serde: Serde | None = None
    value_serde: Serde | None = None
    number_of_partitions: int | None = None
    partitioner: StreamPartitioner | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_serdes(self, "key_serde", "value_serde")
        check_partitioner("Repartitioned", self.partitioner)
        _check_optional(self.name)

    @staticmethod
    def as_(name: str) -> Repartitioned:
        """Return options with the name of the repartition topic."""
        return Repartitioned(name=name)

    @staticmethod
    def with_(
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        *,
        number_of_partitions: int | None = None,
        partitioner: StreamPartitioner | None = None,
        name: str | None = None,
    ) -> Repartitioned:
        """Return these options; raises TopologyError for an invalid name."""
        return Repartitioned(
            key_serde=key_serde,
            value_serde=value_serde,
            number_of_partitions=number_of_partitions,
            partitioner=partitioner,
            name=name,
        )

    def with_key_serde(self, key_serde: Serde | None) -> Repartitioned:
        """Return a copy with this key serde."""
        return replace(self, key_serde=key_serde)

    def with_value_serde(self, value_serde: Serde | None) -> Repartitioned:
        """Return a copy with this value serde."""
        return replace(self, value_serde=value_serde)

    def with_number_of_partitions(self, number_of_partitions: int) -> Repartitioned:
        """Return a copy with this number of partitions of the topic."""
        return replace(self, number_of_partitions=number_of_partitions)

    def with_stream_partitioner(self, partitioner: StreamPartitioner | None) -> Repartitioned:
        """Return a copy with this partitioner."""
        return replace(self, partitioner=partitioner)

    def with_name(self, name: str) -> Repartitioned:
        """Return a copy with the name of the repartition topic."""
        return replace(self, name=name)


@dataclass(frozen=True, kw_only=True)
class Materialized:
    """Options of a table's store (Kafka class: Materialized).

    A table can be queried if the user named its store.

    Args:
        store_supplier: name and base of the store; takes precedence over `store_name` and `store_type`.
        store_type: "in_memory" or "rocksdb" (on disk); None for `dsl.store.suppliers.class`.
        logging: whether the store has a changelog topic.
        changelog_config: the configs of the changelog topic.
        caching: whether the record cache holds updates back.
        ttl: the time to live of the entries; None keeps them.
    """

    store_name: str | None = None
    store_supplier: StoreSupplier | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    retention_ms: int | None = None
    store_type: str | None = None
    logging: bool = True
    caching: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    ttl: Ttl | None = None

    def __post_init__(self) -> None:
        check_serdes(self, "key_serde", "value_serde")
        _check_optional(self.store_name)
        if self.store_type is not None and self.store_type not in STORE_TYPES:
            raise ValueError(f"Unknown store type {self.store_type!r}: expected one of {', '.join(STORE_TYPES)}.")
        if self.retention_ms is not None and self.retention_ms < 0:
            raise ValueError("Retention must not be negative.")

    @staticmethod
    def as_(store: str | StoreSupplier) -> Materialized:
        """Return options with the name of the store, or with a supplier from `Stores`.

        Raises TopologyError for an invalid name.
        """
        if isinstance(store, str):
            return Materialized(store_name=check_name(store))
        if isinstance(store, Serde):
            raise TypeError(
                f"Expected the name of a store, got {store!r}: write Materialized.with_(key_serde, value_serde)."
            )
        return Materialized(store_supplier=store)

    @staticmethod
    def with_(key_serde: Serde | None = None, value_serde: Serde | None = None) -> Materialized:
        """Return options with these serdes."""
        return Materialized(key_serde=key_serde, value_serde=value_serde)

    def with_key_serde(self, key_serde: Serde | None) -> Materialized:
        """Return a copy with this key serde."""
        return replace(self, key_serde=key_serde)

    def with_value_serde(self, value_serde: Serde | None) -> Materialized:
        """Return a copy with this value serde."""
        return replace(self, value_serde=value_serde)

    def with_retention(self, retention_ms: Duration) -> Materialized:
        """Return a copy that retains the results of windows for `retention_ms`.

        Raises ValueError if it is negative.
        """
        return replace(self, retention_ms=milliseconds(retention_ms, "retention"))

    def with_store_type(self, store_type: str) -> Materialized:
        """Return a copy with a store "in_memory" or on disk ("rocksdb").

        Raises ValueError if a supplier is set, which decides this itself.
        """
        if self.store_supplier is not None:
            raise ValueError("Cannot set store type when store supplier is pre-configured.")
        return replace(self, store_type=store_type)

    def with_logging_enabled(self, config: Mapping[str, str]) -> Materialized:
        """Return a copy with a changelog topic, created with `config` before Kafka Streams' own settings."""
        return replace(self, logging=True, changelog_config=dict(config))

    def with_logging_disabled(self) -> Materialized:
        """Return a copy without a changelog topic."""
        return replace(self, logging=False, changelog_config={})

    def with_caching_enabled(self) -> Materialized:
        """Return a copy whose updates go through the record cache."""
        return replace(self, caching=True)

    def with_caching_disabled(self) -> Materialized:
        """Return a copy that forwards every update."""
        return replace(self, caching=False)

    def with_ttl(
        self,
        ttl: Duration,
        *,
        clock: TtlClock = TtlClock.STREAM_TIME,
        on_expiry: OnExpiry = OnExpiry.FORWARD_DELETE,
    ) -> Materialized:
        """Return a copy whose entries expire after `ttl`, counted from their timestamps.

        An expired entry is no longer read. Sweeps delete expired entries from the store and its changelog. For tables
        without windows.

        Args:
            ttl: the lifetime of an entry, at least 1 ms.
            clock: the clock that measures it.
            on_expiry: whether the operators below the table receive the deletes.

        Raises TypeError if an argument has another type, ValueError if the lifetime is below 1 ms. The operator raises
        TypeError for a store with windows or versions, or without timestamps.
        """
        return replace(self, ttl=checked_ttl(ttl, clock, on_expiry))

    @property
    def user_store_name(self) -> str | None:
        """The user's name of the store, or None if the name is generated."""
        return self.store_name if self.store_supplier is None else self.store_supplier.name

    @property
    def in_memory(self) -> bool | None:
        """Whether the store is in memory; None follows `dsl.store.suppliers.class`."""
        return None if self.store_type is None else self.store_type == "in_memory"

    def supplier_of(self, kinds: type[_S] | tuple[type[_S], ...]) -> _S | None:
        """Return the user's supplier, or None without one; raises TypeError for other `kinds`."""
        given = self.store_supplier
        if given is None or isinstance(given, kinds):
            return given
        expected = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        raise TypeError(
            f"The table cannot use store {given.name!r} of {type(given).__name__}: expected {expected}, which `Stores` "
            "creates. Your own store is for processors: StreamsBuilder.add_state_store."
        )

    def builder(
        self, supplier: StoreSupplier, key_serde: Serde | None, value_serde: Serde | None, *, timestamped: bool
    ) -> StoreBuilder:
        """Return the store of `supplier` with these options, whose serdes take precedence.

        Raises TypeError if an option's serde cannot write the values that the given one reads.
        """
        check_fits(f"Store {supplier.name}", "key", self.key_serde, key_serde)
        check_fits(f"Store {supplier.name}", "value", self.value_serde, value_serde)
        return StoreBuilder(
            supplier,
            timestamped=timestamped,
            key_serde=key_serde if self.key_serde is None else self.key_serde,
            value_serde=value_serde if self.value_serde is None else self.value_serde,
            caching=self.caching,
            logging=self.logging,
            changelog_config=self.changelog_config,
            with_headers=None,
            ttl=self.ttl,
        )

    def store_builder(self, name: str, key_serde: Serde | None, value_serde: Serde | None) -> StoreBuilder:
        """Return the store `name` with these options, whose serdes take precedence."""
        kinds = KeyValueBytesStoreSupplier, LruMapBytesStoreSupplier, VersionedBytesStoreSupplier
        supplier = self.supplier_of(kinds) or KeyValueBytesStoreSupplier(name, self.in_memory, keeps_headers=None)
        timestamped = not isinstance(supplier, VersionedBytesStoreSupplier)  # versions have their own timestamps
        return self.builder(supplier, key_serde, value_serde, timestamped=timestamped)
