"""Puts the layers of a store together; no other module names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from penstock.metrics.observer import NOT_OBSERVED, TaskObserver
from penstock.record import NO_TIMESTAMP, RecordBatch, entries_of
from penstock.serdes import Serde
from penstock.state.api import Base, BaseView, EngineStore, RecordContext, StoreBuilder, StoreSource
from penstock.state.buffered_change import without_origins
from penstock.state.bytes_store import BufferedBytesStore
from penstock.state.caching_store import CachingKeyValueStore
from penstock.state.change_buffer_with_headers import ChangeBufferWithHeaders
from penstock.state.change_logging_store import ChangeLog, ChangeLoggingStore, StoreChangeLog
from penstock.state.changelog_format import ChangelogFormat, ChangelogRecord, ChangelogValues, changelog_format
from penstock.state.custom import CustomStore, CustomStoreSupplier
from penstock.state.expiring_store import ExpiringCachingStore, ExpiringStore
from penstock.state.expiry import Expiry, ExpiryServices
from penstock.state.join_window_store import TypedJoinWindowStore, unmarked
from penstock.state.kept_headers import is_in_memory, keeps_headers, keeps_headers_of_duplicates
from penstock.state.key_value_store import (
    TypedExpiringKeyValueStore,
    TypedKeyValueStore,
    TypedTimestampedKeyValueStore,
)
from penstock.state.layouts import (
    AFTER_SEGMENTS,
    SEQUENCE_SIZE,
    SESSION_SUFFIX_SIZE,
    TIMESTAMP_SIZE,
    VERSION_SUFFIX_SIZE,
    WINDOW_SUFFIX_SIZE,
    pack_timestamp,
    session_of,
    timestamp_of,
    window_start_of,
)
from penstock.state.lru import LruStore
from penstock.state.record_cache import RecordCache
from penstock.state.segmented import (
    CachingSegmentedStore,
    InMemorySegmentedStore,
    Segmentation,
    SegmentedStore,
    TimeOrderedSegmentedStore,
)
from penstock.state.session_store import TypedSessionStore
from penstock.state.state_serdes import (
    AggregationStateSerdes,
    AggregationWithHeadersStateSerdes,
    BufferStateSerdes,
    BufferWithHeadersStateSerdes,
    HeadersStateSerdes,
    JoinStateSerdes,
    StateSerdes,
    TimestampedStateSerdes,
)
from penstock.state.suppliers import (
    KeyValueBytesStoreSupplier,
    LruMapBytesStoreSupplier,
    SessionBytesStoreSupplier,
    TimeOrderedBufferBytesStoreSupplier,
    VersionedBytesStoreSupplier,
    WindowBytesStoreSupplier,
)
from penstock.state.time_ordered_buffer import TimeOrderedChangeBuffer
from penstock.state.typed_store import TypedStore
from penstock.state.uncommitted import InMemoryUncommittedStore, UncommittedStore
from penstock.state.value_times import AFTER_HEADERS, AT_START
from penstock.state.versioned_store import TypedVersionedKeyValueStore, versions_of
from penstock.state.window_store import TypedTimestampedWindowStore, TypedWindowStore
from penstock.state.wrapped import WithoutHeaders, WithoutTimestamps
from penstock.topic_names import changelog_name

_ORDERED: Final = "ordered"
_FILLED: Final = (KeyValueBytesStoreSupplier, VersionedBytesStoreSupplier, LruMapBytesStoreSupplier)
"""Suppliers of stores that share their keys with the records of the topic filling them."""
_CHUNK: Final = 20_000
"""Number of entries sorted at a time."""

_SCOPES: Final = {"window": "-window", "session": "-session", "lru": "-lru"}
"""Suffixes of Kafka's store scopes, by kind."""

COUNTED_SCOPES: Final = frozenset(("in-memory", "in-memory-window", "in-memory-session"))
"""Kafka's scopes of the stores whose keys are counted (KIP-1250)."""


class StoreServices(NamedTuple):
    """The services of a task to one of its stores; the defaults fit task-less stores.

    Args:
        count_dropped: receives the number of writes that the store rejected.
        change_log: collects the changelog records of the stores that it names; None omits the layer.
        observer: receives the store's measurements.
        task_id: the store's task, for user-defined stores.
        expiry: serves stores with a time to live; None for readers of committed state.
    """

    count_dropped: Callable[[int], None] = lambda records: None
    change_log: ChangeLog | None = None
    observer: TaskObserver = NOT_OBSERVED
    task_id: str = ""
    expiry: ExpiryServices | None = None


_NO_SERVICES: Final = StoreServices()

_Serdes = TypeVar("_Serdes", bound=StateSerdes)


@dataclass(frozen=True)
class _Build:
    """The ingredients of one store of a task."""

    builder: StoreBuilder
    config: StreamsConfig
    view: BaseView
    cache: RecordCache
    context: Callable[[], RecordContext]
    metadata: MutableMapping[str, int]
    services: StoreServices = _NO_SERVICES

    @property
    def in_memory(self) -> bool:
        return is_in_memory(self.builder, self.config)

    @property
    def cached(self) -> bool:
        return self.builder.caching and self.cache.max_bytes > 0

    def buffer(self) -> UncommittedStore:
        return InMemoryUncommittedStore(self.view) if self.in_memory else UncommittedStore(self.view)

    def plain_buffer(self) -> BufferedBytesStore:
        """Return a store of plain values, regardless of the layers above."""
        kind = self.kind_of_serdes()
        if not kind.timestamped:
            return self.buffer()
        return WithoutHeaders(self.buffer()) if kind.with_headers else WithoutTimestamps(self.buffer())

    def segmented(
        self,
        buffer: UncommittedStore,
        segmentation: Segmentation,
        log: StoreChangeLog | None,
        on_disk: type[SegmentedStore] = SegmentedStore,
    ) -> SegmentedStore:
        return (InMemorySegmentedStore if self.in_memory else on_disk)(
            self.builder.name,
            self.view,
            buffer,
            segmentation,
            self.metadata,
            self.services.count_dropped,
            log,
        )

    def caching_segmented(self, buffer: SegmentedStore) -> CachingSegmentedStore | None:
        return CachingSegmentedStore(self.builder.name, buffer, self.cache, self.context) if self.cached else None

    def format(self) -> ChangelogFormat:
        kind = self.kind_of_serdes()
        values = ChangelogValues(kind.timestamped, kind.with_headers, self.builder.logs_headers)
        return changelog_format(self.builder.supplier, values)

    @property
    def logged(self) -> bool:
        return self.services.change_log is not None and self.services.change_log.logs(self.builder.name)

    def log(self) -> StoreChangeLog | None:
        if self.services.change_log is None or not self.logged:
            return None
        return StoreChangeLog(self.builder.name, self.format(), self.context, self.services.change_log)

    def logging(self, below: BufferedBytesStore) -> BufferedBytesStore:
        log = self.log()
        return below if log is None else ChangeLoggingStore(below, log)

    def expiry(self) -> Expiry | None:
        """Return the expiry of the entries, or None without a time to live."""
        if self.builder.ttl is None:
            return None
        times = AFTER_HEADERS if keeps_headers(self.builder, self.config) else AT_START
        return Expiry(self.builder.name, self.builder.ttl, times, self.metadata, self.services.expiry)

    def lru(self, buffer: UncommittedStore, max_entries: int) -> LruStore:
        """Return an LRU store that reports its evictions to its changelog.

        A timestamped store does not report them: as in Kafka, another layer is in between.
        """
        log = None if self.builder.timestamped else self.log()
        return LruStore(
            self.builder.name,
            buffer,
            max_entries,
            self.metadata,
            lambda key: None if log is None else log.put(key, None),
        )

    def observed(self, store: TypedStore) -> TypedStore:
        """Return `store`, with its calls recorded if metrics ask for it."""
        if self.services.observer.should_record:
            store.report_calls(self.services.observer, scope_of(self.builder, self.config))
        return store

    @property
    def changelog_topic(self) -> str:
        """The topic name for serdes, whether or not the store has a changelog."""
        return changelog_name(self.config["application.id"] or "", self.builder.name)

    def serdes(self) -> StateSerdes:
        return self._serdes_of(self.kind_of_serdes())

    def _serdes_of(self, kind: type[_Serdes]) -> _Serdes:
        builder = self.builder
        return kind(
            builder.name,
            self.changelog_topic,
            store_serde(builder, "key", self.config),
            store_serde(builder, "value", self.config),
            lambda: self.context().headers,
        )

    def change_buffer(self) -> TimeOrderedChangeBuffer:
        """Return the buffer of a `suppress`."""
        parts = self.buffer(), self.metadata, self.log(), self.services.observer
        if keeps_headers(self.builder, self.config):
            return ChangeBufferWithHeaders(self._serdes_of(BufferWithHeadersStateSerdes), *parts)
        return TimeOrderedChangeBuffer(self.serdes(), *parts)

    def kind_of_serdes(self) -> type[StateSerdes]:
        if isinstance(self.builder.supplier, TimeOrderedBufferBytesStoreSupplier):
            return BufferWithHeadersStateSerdes if keeps_headers(self.builder, self.config) else BufferStateSerdes
        if keeps_headers_of_duplicates(self.builder, self.config):
            return JoinStateSerdes
        if not keeps_headers(self.builder, self.config):
            return TimestampedStateSerdes if self.builder.timestamped else StateSerdes
        if self.builder.timestamped:
            return HeadersStateSerdes
        if isinstance(self.builder.supplier, SessionBytesStoreSupplier):
            return AggregationStateSerdes if self.builder.with_headers is None else AggregationWithHeadersStateSerdes
        return StateSerdes


def scope_of(builder: StoreBuilder, config: StreamsConfig) -> str:
    """Return Kafka's scope of the metrics of a store, such as rocksdb-window."""
    return ("in-memory" if is_in_memory(builder, config) else "rocksdb") + _SCOPES.get(builder.supplier.kind, "")


def store_serde(builder: StoreBuilder, part: str, config: StreamsConfig) -> Serde:
    """Return the serde of a store's keys or values; `part` is "key" or "value".

    Raises ConfigError if the builder has no serde and `config` has no default.
    """
    return _serde(builder.name, builder.key_serde if part == "key" else builder.value_serde, part, config)


def _serde(store: str, given: Serde | None, part: str, config: StreamsConfig) -> Serde:
    defaults = config["default.key.serde"], config["default.value.serde"]
    serde: Serde | None = given.with_defaults(*defaults) if given is not None else defaults[part == "value"]
    if serde is None:
        raise ConfigError(
            f"Store {store!r} has no {part} serde: name one where the store is created, such as "
            f"Serdes.string(), or set default.{part}.serde."
        )
    return serde.with_defaults(*defaults)


def build_store(
    builder: StoreBuilder,
    config: StreamsConfig,
    view: BaseView,
    cache: RecordCache,
    context: Callable[[], RecordContext],
    metadata: MutableMapping[str, int],
    services: StoreServices = _NO_SERVICES,
) -> EngineStore:
    """Build one store of a task from its layers: metered, cached, logged, uncommitted writes, base.

    Args:
        builder: the description of the store.
        config: the configuration.
        view: the committed entries.
        cache: the record cache of the task; one of 0 bytes omits the layer, as in Kafka.
        context: returns the record that causes a write.
        metadata: the stores' persistent values besides entries.
        services: the services of the task.

    Raises:
        ConfigError: a serde is missing and has no default, or the kind of the store is unknown.
    """
    build = _Build(builder, config, view, cache, context, metadata, services)
    match builder.supplier:
        case KeyValueBytesStoreSupplier(keeps_timestamps=keeps_timestamps):
            return _key_value(build, build.buffer() if keeps_timestamps else build.plain_buffer())
        case WindowBytesStoreSupplier() as supplier:
            return _window(build, supplier)
        case SessionBytesStoreSupplier() as supplier:
            return _session(build, supplier)
        case VersionedBytesStoreSupplier() as supplier:
            return _versioned(build, supplier)
        case LruMapBytesStoreSupplier(max_entries=max_entries):
            return _key_value(build, build.lru(build.buffer(), max_entries))
        case TimeOrderedBufferBytesStoreSupplier():
            return build.change_buffer()
        case CustomStoreSupplier() as supplier:
            return CustomStore(supplier, config, view, build.log(), services.task_id)
        case _:
            raise ConfigError(
                f"Store {builder.name!r} is of unknown kind {builder.kind!r}: use a supplier of `Stores`, or derive "
                "your own from CustomStoreSupplier."
            )


def restore_store(
    builder: StoreBuilder,
    config: StreamsConfig,
    view: BaseView,
    metadata: MutableMapping[str, int],
    records: RecordBatch,
) -> Mapping[bytes, bytes | None]:
    """Return a store's changes from records of its changelog topic, in topic order.

    Args:
        builder: the description of the store.
        config: the configuration.
        view: the committed entries; the records are applied on top of them.
        metadata: the stores' persistent values besides entries, such as clocks; updated here.
        records: the changelog records, all with a key.

    Raises:
        ProcessorStateError: a record does not belong to such a store.
        ConfigError: as for `build_store`.
    """
    build = _Build(builder, config, view, RecordCache(0), _no_context, metadata)
    if isinstance(builder.supplier, _FILLED) and builder.source is not None:
        records = _written(build, builder.source, records)
    keys, values = build.format().entries(records)
    if isinstance(builder.supplier, CustomStoreSupplier):  # the user-defined store is created when its task is opened
        written = UncommittedStore(view)
        written.put_many(keys, values)
        return written.changes()
    store = build_store(builder, config, view, RecordCache(0), _no_context, metadata)
    store.restore(keys, values, records.timestamps)
    return store.changes()


def _written(build: _Build, source: StoreSource, records: RecordBatch) -> RecordBatch:
    """Return records of the topic that fills a store as its processor would write them.

    A serde may write other bytes than it has read. Unreadable records have been dropped before.
    """
    name, config = build.builder.name, build.config
    read_key, read_value = (
        _serde(name, source.key_serde, "key", config),
        _serde(name, source.value_serde, "value", config),
    )
    write_key, write_value = (store_serde(build.builder, part, config) for part in ("key", "value"))
    if (read_key, read_value) == (write_key, write_value) and (
        write_key.is_canonical_column(entries_of(records.keys))
        and write_value.is_readable_column(entries_of(records.values))
    ):
        return records
    keys: list[Any] = []
    values: list[Any] = []
    kept: list[int] = []
    for row, (data, value_data) in enumerate(zip(records.keys, records.values, strict=True)):
        headers = records.headers_at(row)
        try:
            key = read_key.deserialize(source.topic, data, headers)
            value = None if value_data is None else read_value.deserialize(source.topic, value_data, headers)
        except Exception:  # any error of a serde: the task's handler accepted the record
            continue
        if key is not None:
            keys.append(write_key.serialize(build.changelog_topic, key, headers))
            values.append(None if value is None else write_value.serialize(build.changelog_topic, value, headers))
            kept.append(row)
    rows = records.take(np.array(kept, np.int64))
    return RecordBatch(keys, values, rows.timestamps, rows.offsets, rows.headers)


def changelog_records(
    builder: StoreBuilder,
    config: StreamsConfig,
    view: BaseView,
    now_ms: int,
    open_base: Callable[[], AbstractContextManager[Base]],
) -> Iterator[ChangelogRecord]:
    """Yield the changelog records from which `restore_store` restores the entries of a store.

    There is one record per entry, and one for the end of a version without a successor. Equal entries give equal
    records in the same order.

    Args:
        builder: the description of the store.
        config: the configuration.
        view: the committed entries.
        now_ms: the timestamp (ms) of records whose entries have no time.
        open_base: opens an empty base, used to sort the records if entries are not in the order of their writes.

    Raises:
        ConfigError: as for `build_store`.
    """
    build = _Build(builder, config, view, RecordCache(0), _no_context, {})
    format = build.format()
    for time, key, value in _writes(build, open_base):
        record = format.record(key, value, RecordContext(now_ms if time is None else time, ()))
        unknown = record.timestamp is None or record.timestamp < 0
        yield msgspec.structs.replace(record, timestamp=now_ms) if unknown else record


def _writes(
    build: _Build, open_base: Callable[[], AbstractContextManager[Base]]
) -> Iterator[tuple[int | None, bytes, bytes | None]]:
    """Yield time (ms, None if unknown), key and value of writes that recreate the entries."""
    entries = build.view.range(None, None, False)
    match build.builder.supplier:
        case VersionedBytesStoreSupplier():
            versions = ((pack_timestamp(at), key, data) for at, key, data in versions_of(build.view))
            yield from ((timestamp_of(rank), key, data) for rank, key, data in _ordered(versions, open_base))
        case WindowBytesStoreSupplier(retain_duplicates=True):
            kept = keeps_headers_of_duplicates(build.builder, build.config)
            counted = ((key[-SEQUENCE_SIZE:], *unmarked(key, value, kept)) for key, value in entries)
            yield from ((window_start_of(key), key, value) for _, key, value in _ordered(counted, open_base))
        case WindowBytesStoreSupplier():
            yield from ((window_start_of(key), key, value) for key, value in entries)
        case SessionBytesStoreSupplier():
            yield from ((session_of(key)[0], key, value) for key, value in entries)
        case LruMapBytesStoreSupplier():
            used = ((value[:TIMESTAMP_SIZE], key, value[TIMESTAMP_SIZE:]) for key, value in entries)
            yield from ((None, key, value) for _, key, value in _ordered(used, open_base))
        case TimeOrderedBufferBytesStoreSupplier():
            as_written: Callable[[bytes], bytes] = bytes if build.kind_of_serdes().with_headers else without_origins
            yield from ((None, key, as_written(value)) for key, value in build.view.range(None, AFTER_SEGMENTS, False))
        case KeyValueBytesStoreSupplier(keeps_timestamps=False):
            yield from ((None, key, value) for key, value in build.plain_buffer().range(None, None, False))
        case _:
            yield from ((None, key, value) for key, value in entries)


def _ordered(
    writes: Iterator[tuple[bytes, bytes, bytes | None]], open_base: Callable[[], AbstractContextManager[Base]]
) -> Iterator[tuple[bytes, bytes, bytes | None]]:
    """Yield rank, key and value of `writes`, sorted by rank and key.

    Among equal ranks and keys, the last write wins. All ranks have the same length.
    """
    size = 0
    with open_base() as base:
        while chunk := list(islice(writes, _CHUNK)):
            size = len(chunk[0][0])
            base.apply(
                {_ORDERED: {rank + key: b"" if value is None else b"=" + value for rank, key, value in chunk}}, b""
            )
        for place, marked in base.view(_ORDERED).range(None, None, False):
            yield place[:size], place[size:], marked[1:] if marked else None


def _no_context() -> RecordContext:
    return RecordContext(NO_TIMESTAMP, ())


def _key_value(build: _Build, buffer: BufferedBytesStore) -> TypedStore:
    buffer = build.logging(buffer)
    options = {"persistent": not build.in_memory, "logged": build.logged}
    cache = partial(CachingKeyValueStore, build.builder.name, buffer, build.cache, build.context)
    expiry = build.expiry()
    if expiry is None:
        make = TypedTimestampedKeyValueStore if build.builder.timestamped else TypedKeyValueStore
        return build.observed(make(build.serdes(), buffer, cache() if build.cached else None, **options))
    if not build.cached:
        entries = ExpiringStore(buffer, expiry)
        return build.observed(TypedExpiringKeyValueStore(build.serdes(), entries, None, **options))
    cached = ExpiringCachingStore(cache(expiry.outgoing), buffer, expiry)
    return build.observed(TypedExpiringKeyValueStore(build.serdes(), buffer, cached, **options))


def _window(build: _Build, supplier: WindowBytesStoreSupplier) -> TypedStore:
    on_disk = TimeOrderedSegmentedStore if supplier.time_ordered else SegmentedStore
    log, duplicates_log = (None, build.log()) if supplier.retain_duplicates else (build.log(), None)
    segmentation = Segmentation(WINDOW_SUFFIX_SIZE, supplier.retention_ms, supplier.segment_interval_ms)
    buffer = build.segmented(build.buffer(), segmentation, log, on_disk)
    cached = None if supplier.retain_duplicates else build.caching_segmented(buffer)
    make = TypedTimestampedWindowStore if build.builder.timestamped else TypedWindowStore
    if supplier.retain_duplicates and build.builder.logs_headers:
        make = TypedJoinWindowStore
    return build.observed(
        make(build.serdes(), supplier, buffer, cached, not build.in_memory, build.metadata, duplicates_log)
    )


def _session(build: _Build, supplier: SessionBytesStoreSupplier) -> TypedStore:
    segmentation = Segmentation(SESSION_SUFFIX_SIZE, supplier.retention_ms, supplier.segment_interval_ms)
    buffer = build.segmented(build.buffer(), segmentation, build.log())
    cached = build.caching_segmented(buffer)
    return build.observed(TypedSessionStore(build.serdes(), supplier, buffer, cached, not build.in_memory))


def _versioned(build: _Build, supplier: VersionedBytesStoreSupplier) -> TypedStore:
    latest = build.buffer()
    segmentation = Segmentation(VERSION_SUFFIX_SIZE, supplier.history_retention_ms, supplier.segment_interval_ms)
    history = build.segmented(latest, segmentation, None)
    return build.observed(TypedVersionedKeyValueStore(build.serdes(), supplier, latest, history, build.log()))
