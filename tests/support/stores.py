"""Stores of a task, over bases in memory."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

from penstock.config import StreamsConfig
from penstock.record import NO_TIMESTAMP, RecordBatch
from penstock.serdes import Serdes
from penstock.state.api import RecordContext, StoreBuilder
from penstock.state.build import StoreServices, build_store, changelog_records, restore_store
from penstock.state.change_logging_store import ChangeLog
from penstock.state.changelog_format import ChangelogRecord
from penstock.state.key_value_store import TypedKeyValueStore
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from penstock.state.stores import Stores

STRING = Serdes.string()
CONFIG = StreamsConfig({"application.id": "app"}, environment={})
CONTEXT = RecordContext(7, (("h", b"1"),), "topic", 0, 3)


def text_store(in_memory: bool = True, caching: bool = False) -> StoreBuilder:
    """Return the builder of a key-value store "s" of str keys and values."""
    supplier = Stores.in_memory_key_value_store("s") if in_memory else Stores.persistent_key_value_store("s")
    builder = Stores.key_value_store_builder(supplier, STRING, STRING)
    return builder.with_caching_enabled() if caching else builder


def build(
    builder: StoreBuilder,
    base: MemoryBase | None = None,
    cache: RecordCache | None = None,
    **settings: Any,
) -> Any:
    """Return a store over `base`, by default an empty one, with more `settings` of the configuration."""
    config = CONFIG.overridden(settings)
    view = (base or MemoryBase()).view(builder.name)
    return build_store(builder, config, view, cache or RecordCache(10_000_000), lambda: CONTEXT, {})


class TaskStore:
    """One store of a task over a base that outlives it."""

    def __init__(self, builder: StoreBuilder) -> None:
        self.builder = builder
        self.base = MemoryBase()
        self.metadata: dict[str, int] = {}
        self.dropped = 0
        self.store: Any = None
        self.restart()

    def restart(self) -> None:
        """Build the store again over the committed entries."""
        self.store = build_store(
            self.builder,
            CONFIG,
            self.base.view(self.builder.name),
            RecordCache(10_000_000),
            lambda: CONTEXT,
            self.metadata,
            StoreServices(self._drop),
        )

    def _drop(self, records: int) -> None:
        self.dropped += records

    def commit(self) -> None:
        """Flush, and apply the changes to the base."""
        self.store.flush()
        self.base.apply({self.builder.name: self.store.changes()}, b"stamp")
        self.store.clear_changes()


def logged(builder: StoreBuilder, metadata: dict[str, int]) -> tuple[Any, ChangeLog]:
    """Return an empty store and the log of its changes."""
    log = ChangeLog({builder.name: "topic"})
    view = MemoryBase().view(builder.name)
    services = StoreServices(change_log=log)
    return build_store(builder, CONFIG, view, RecordCache(0), lambda: CONTEXT, metadata, services), log


def taken(log: ChangeLog) -> list[ChangelogRecord]:
    """Remove and return the records of a log."""
    return [record for _, record in log.take()]


def changelog_batch(records: Iterable[ChangelogRecord]) -> RecordBatch:
    """Return changelog records as a batch."""
    return RecordBatch.of(
        [
            (each.key, each.value, NO_TIMESTAMP if each.timestamp is None else each.timestamp, offset, each.headers)
            for offset, each in enumerate(records)
        ]
    )


def restored(builder: StoreBuilder, config: StreamsConfig, records: Iterable[ChangelogRecord]) -> Any:
    """Return a store restored from `records` of its changelog."""
    base, metadata = MemoryBase(), dict[str, int]()
    changes = restore_store(builder, config, base.view(builder.name), metadata, changelog_batch(records))
    base.apply({builder.name: changes}, b"")
    return build_store(builder, config, base.view(builder.name), RecordCache(0), lambda: CONTEXT, metadata)


def entries_as_records(
    builder: StoreBuilder, config: StreamsConfig, records: Iterable[ChangelogRecord]
) -> list[ChangelogRecord]:
    """Return the changelog records of the entries of a store that was restored from `records`."""
    base = MemoryBase()
    changes = restore_store(builder, config, base.view(builder.name), {}, changelog_batch(records))
    base.apply({builder.name: changes}, b"")
    return list(changelog_records(builder, config, base.view(builder.name), 7, lambda: nullcontext(MemoryBase())))


def fill(store: TypedKeyValueStore, *keys: str) -> None:
    """Put each key with its upper case as value."""
    for key in keys:
        store.put(key, key.upper())
