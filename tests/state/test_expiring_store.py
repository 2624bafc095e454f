"""Stores with a time to live, against a dict with times: with and without a record cache, on each base."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from penstock.record import ValueAndTimestamp, ValueTimestampHeaders
from penstock.state import expiry
from penstock.state.api import Base, FlushedEntries, RecordContext, StoreBuilder
from penstock.state.build import StoreServices, build_store
from penstock.state.change_logging_store import ChangeLog
from penstock.state.lmdb import LmdbBase
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from penstock.state.rocksdb import RocksDBBase
from penstock.state.stores import Stores
from penstock.state.ttl import RENEWALS, OnExpiry, Ttl, TtlClock, TtlRenewal
from tests.support.stores import CONFIG, STRING

TTL = 20
KEYS = st.sampled_from(["a", "a\0", "b", "c", "d"])
VALUES = st.sampled_from(["x", "y"])


class TaskExpiry:
    """The services of a task, in the hand of a test (implements ExpiryServices)."""

    def __init__(self, now: int = -1, cursors: Mapping[str, bytes] | None = None) -> None:
        self.now = now
        self.is_processing = True
        self.cursors = dict(cursors or {})
        self.sweeps: list[Callable[[], None]] = []

    def now_ms(self, clock: TtlClock) -> int:
        return self.now

    def add(self, store_name: str, ttl: Ttl, sweep: Callable[[], None]) -> None:
        self.sweeps.append(sweep)

    def sweep(self) -> None:
        for sweep in self.sweeps:
            sweep()


class Kind(NamedTuple):
    """One kind of store with a time to live."""

    base: str
    cache_bytes: int
    with_headers: bool
    on_expiry: OnExpiry
    renewal: TtlRenewal = TtlRenewal.WRITES

    def builder(self) -> StoreBuilder:
        supplier = Stores.persistent_timestamped_key_value_store("s")
        make = Stores.timestamped_key_value_store_builder
        if self.with_headers:
            supplier = Stores.persistent_timestamped_key_value_store_with_headers("s")
            make = Stores.timestamped_key_value_store_with_headers_builder
        made = make(supplier, STRING, STRING).with_caching_enabled()
        return StoreBuilder(**{**vars(made), "ttl": self.ttl})

    @property
    def ttl(self) -> Ttl:
        return Ttl(TTL, on_expiry=self.on_expiry, renewal=self.renewal)

    def entry(self, value: str, timestamp: int) -> Any:
        if self.with_headers:
            return ValueTimestampHeaders(value, timestamp, (("h", b"1"),))
        return ValueAndTimestamp(value, timestamp)


def opened(kind: str, directory: str) -> Base:
    match kind:
        case "lmdb":
            return LmdbBase(Path(directory))
        case "rocksdb":
            return RocksDBBase(Path(directory), CONFIG)
        case _:
            return MemoryBase()


class ExpiringStoreMachine(RuleBasedStateMachine):
    """A table with a time to live: its store, the table that its operators below see, and its changelog."""

    kind: Kind

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.most, expiry.ENTRIES_PER_SWEEP = expiry.ENTRIES_PER_SWEEP, 2
        self.base = opened(self.kind.base, self.directory.name)
        self.model: dict[str, tuple[str, int]] = {}
        self.seen: dict[str, str] = {}
        self.logged: dict[bytes, tuple[bytes | None, int | None]] = {}
        self.metadata: dict[str, int] = {}
        self.committed: dict[str, tuple[str, int]] = {}
        self.commits = 0
        self.open(TaskExpiry())
        self.committed_task: Any = self.task.now, {}, {}, {}

    def open(self, task: TaskExpiry) -> None:
        self.task, self.log = task, ChangeLog({"s": "topic"})
        cache = RecordCache(self.kind.cache_bytes)
        context = RecordContext(max(task.now, 0), ())
        services = StoreServices(change_log=self.log, expiry=task)
        view = self.base.view("s")
        builder = self.kind.builder()
        self.store: Any = build_store(builder, CONFIG, view, cache, lambda: context, self.metadata, services)
        if self.store.cached:
            self.store.set_flush_listener(self.listen, True)
        else:
            self.store.set_expiry_listener(self.listen, True)

    def listen(self, entries: FlushedEntries) -> None:
        assert entries.old_values is not None
        new = self.store.deserialize_columns(entries.new_values)[0]
        old, old_times = self.store.deserialize_columns(entries.old_values)
        for at, key in enumerate(self.store.deserialize_keys(entries.keys)):
            if new[at] is None and not self.store.cached:
                assert entries.contexts[at].timestamp == old_times[at] + TTL
            self.see(key, new[at], old[at])

    def see(self, key: str, new: str | None, old: str | None) -> None:
        if self.kind.on_expiry is OnExpiry.FORWARD_DELETE:
            assert old == self.seen.get(key)
        elif new is None and self.store.cached:
            assert key not in self.model  # the user has deleted it
        self.seen.pop(key, None)
        if new is not None:
            self.seen[key] = new

    def live(self) -> dict[str, tuple[str, int]]:
        return {key: entry for key, entry in self.model.items() if entry[1] + TTL > self.task.now}

    # ---------- what a task does

    @rule(key=KEYS, value=st.none() | VALUES, age=st.integers(0, TTL + 5))
    def put(self, key: str, value: str | None, age: int) -> None:
        time = max(self.task.now - age, 0)
        before = self.live().get(key)
        self.model.pop(key, None)  # first, since the write may evict it
        self.store.put(key, None if value is None else self.kind.entry(value, time))
        if not self.store.cached:
            self.see(key, value, None if before is None else before[0])
        if value is not None:
            self.model[key] = value, time

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        before = self.live().get(key)
        self.model.pop(key, None)
        found = self.store.delete(key)
        assert (found and (found.value, found.timestamp)) == before
        if not self.store.cached:
            self.see(key, None, None if before is None else before[0])

    @rule(passed=st.integers(1, TTL))
    def pass_time(self, passed: int) -> None:
        self.task.now += passed

    @rule()
    def sweep(self) -> None:
        self.task.sweep()

    @rule(restarts=st.booleans())
    def commit(self, restarts: bool) -> None:
        self.store.flush()
        self.commits += 1
        self.base.apply({"s": self.store.changes()}, b"%d" % self.commits)
        self.store.clear_changes()
        for _, record in self.log.take():
            self.logged[record.key] = record.value, record.timestamp
        self.committed, self.committed_task = (
            dict(self.model),
            (
                self.task.now,
                dict(self.task.cursors),
                dict(self.metadata),
                dict(self.seen),
            ),
        )
        entries = dict(self.base.view("s").range(None, None, False))
        assert {key for key, (value, _) in self.logged.items() if value is not None} == set(entries)
        if restarts:
            self.restart()

    @rule()
    def restart(self) -> None:
        """The task starts again from its last commit, such as after a crash."""
        now, cursors, metadata, seen = self.committed_task
        self.model, self.metadata, self.seen = dict(self.committed), dict(metadata), dict(seen)
        self.log = ChangeLog({"s": "topic"})
        self.open(TaskExpiry(now, cursors))

    # ---------- what a reader sees

    @rule(key=KEYS, is_processing=st.booleans())
    def get(self, key: str, is_processing: bool) -> None:
        """A processor's read, or another one; the former renews an entry of a certain age."""
        self.task.is_processing = is_processing
        expected = self.live().get(key)
        renews = is_processing and self.kind.renewal is TtlRenewal.READS_AND_WRITES
        if renews and expected is not None and expected[1] <= self.task.now - TTL // RENEWALS:
            expected = expected[0], self.task.now
            self.model.pop(key)  # first, since the renewal may evict it
            self.model[key] = expected
        found = self.store.get(key)
        assert (found and (found.value, found.timestamp)) == expected
        self.task.is_processing = True

    @rule(key=KEYS)
    def query(self, key: str) -> None:
        """A reader of another thread renews nothing."""
        found = self.store.for_readers(nullcontext).get(key)
        assert (found and (found.value, found.timestamp)) == self.live().get(key)

    @rule(first=st.none() | KEYS, last=st.none() | KEYS)
    def read_range(self, first: str | None, last: str | None) -> None:
        bounds = [("" if first is None else first), ("z" if last is None else last)]
        expected = [key for key in sorted(self.live()) if bounds[0] <= key <= bounds[1]]
        if bounds[0] <= bounds[1]:
            assert [key for key, _ in self.store.range(first, last)] == expected
            assert [key for key, _ in self.store.reverse_range(first, last)] == expected[::-1]

    @rule()
    def read_committed(self) -> None:
        """A reader of committed state has the time of the commit."""
        view, metadata = self.base.view("s"), dict(self.committed_task[2])
        builder = self.kind.builder()
        reader: Any = build_store(builder, CONFIG, view, RecordCache(0), lambda: RecordContext(-1, ()), metadata)
        time = self.committed_task[0]
        unexpired = {key for key, entry in self.committed.items() if entry[1] + TTL > time}
        assert {key for key, _ in reader.all()} == unexpired

    @invariant()
    def reads_show_the_live_entries(self) -> None:
        shown = {key: (entry.value, entry.timestamp) for key, entry in self.store.all()}
        assert shown == self.live()

    def teardown(self) -> None:
        """In the end, sweeps and commits leave the live entries: in the base, in the changelog and below the table."""
        try:
            self.commit(False)
            for _ in range(len(self.model) + 2):
                self.sweep()
                self.commit(False)
            entries = dict(self.base.view("s").range(None, None, False))
            assert {key.decode() for key in entries} == set(self.live())
            if self.kind.on_expiry is OnExpiry.FORWARD_DELETE:
                assert self.seen == {key: value for key, (value, _) in self.live().items()}
            assert self.store.approximate_num_entries() == len(self.live())
        finally:
            self.store.close()
            self.base.close()
            expiry.ENTRIES_PER_SWEEP = self.most
            self.directory.cleanup()


def kinds() -> list[Kind]:
    stores = ("memory", 0), ("memory", 150), ("memory", 10_000), ("lmdb", 0), ("rocksdb", 10_000)
    written = [Kind(base, size, base == "lmdb", on_expiry) for base, size in stores for on_expiry in OnExpiry]
    dropping = [kind for kind in written if kind.on_expiry is OnExpiry.DROP]
    return [*written, *(kind._replace(renewal=TtlRenewal.READS_AND_WRITES) for kind in dropping)]


@pytest.mark.parametrize(
    "kind", kinds(), ids=lambda kind: f"{kind.base}-{kind.cache_bytes}-{kind.on_expiry.name}-{kind.renewal.name}"
)
def test_a_store_with_a_time_to_live_is_a_dict_with_times(kind: Kind) -> None:
    machine = type("Machine", (ExpiringStoreMachine,), {"kind": kind})
    run_state_machine_as_test(machine, settings=settings(max_examples=40, stateful_step_count=30, deadline=None))


@pytest.mark.parametrize("cache_bytes", [0, 1_000])
def test_a_delete_renews_nothing_and_is_one_write(cache_bytes: int) -> None:
    task, log = TaskExpiry(0), ChangeLog({"s": "topic"})
    builder = Kind("memory", cache_bytes, False, OnExpiry.DROP, TtlRenewal.READS_AND_WRITES).builder()
    services, context = StoreServices(change_log=log, expiry=task), RecordContext(0, ())
    store: Any = build_store(
        builder, CONFIG, MemoryBase().view("s"), RecordCache(cache_bytes), lambda: context, {}, services
    )
    store.put("k", ValueAndTimestamp("x", 0))
    store.flush()
    log.take()
    task.now = TTL - 1
    assert store.delete("k") == ValueAndTimestamp("x", 0)
    store.flush()
    assert [(record.key, record.value) for _, record in log.take()] == [(b"k", None)]


def test_an_iterator_shows_the_entries_of_its_creation() -> None:
    task = TaskExpiry(0)
    builder = Kind("memory", 0, False, OnExpiry.DROP).builder()
    context = RecordContext(0, ())
    view = MemoryBase().view("s")
    services = StoreServices(expiry=task)
    store: Any = build_store(builder, CONFIG, view, RecordCache(0), lambda: context, {}, services)
    for number, key in enumerate("abc"):
        store.put(key, ValueAndTimestamp("x", number))
    entries = store.all()
    task.now = TTL + 1
    assert [key for key, _ in entries] == ["a", "b", "c"]
    assert [key for key, _ in store.all()] == ["c"]


@pytest.mark.parametrize("writes", [0, 5])
def test_a_sweep_looks_at_a_limited_number_of_entries(writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "ENTRIES_PER_SWEEP", 3)
    base, metadata = MemoryBase(), dict[str, int]()
    expired: dict[bytes, bytes | None] = {b"%02d" % number: bytes(8) + b"x" for number in range(40)}
    base.apply({"s": expired}, b"")
    task, builder = TaskExpiry(TTL), Kind("memory", 0, False, OnExpiry.DROP).builder()
    services, context = StoreServices(expiry=task), RecordContext(0, ())
    store: Any = build_store(builder, CONFIG, base.view("s"), RecordCache(0), lambda: context, metadata, services)
    for number in range(writes):
        store.put(f"z{number}", ValueAndTimestamp("x", TTL))
    before = len(store.changes())
    task.sweep()
    assert len(store.changes()) - before == max(3, 2 * writes)
    sizes = list(itertools.takewhile(bool, (swept(store, task) for _ in range(40))))
    assert set(sizes[:-1]) == {3}


def swept(store: Any, task: TaskExpiry) -> int:
    before = len(store.changes())
    task.sweep()
    return len(store.changes()) - before


@pytest.mark.parametrize(
    ("on_expiry", "received"),
    [(OnExpiry.FORWARD_DELETE, [("old", 0), (None, 5 + TTL)]), (OnExpiry.DROP, [("old", 0), ("new", 5)])],
)
def test_an_entry_that_has_expired_in_the_cache_leaves_it_as_a_delete(
    on_expiry: OnExpiry, received: list[tuple[str | None, int]]
) -> None:
    task, found = TaskExpiry(0), list[tuple[str | None, int]]()
    services = StoreServices(change_log=ChangeLog({}), expiry=task)
    builder = Kind("memory", 1000, False, on_expiry).builder()
    store: Any = build_store(
        builder, CONFIG, MemoryBase().view("s"), RecordCache(1000), lambda: RecordContext(task.now, ()), {}, services
    )

    def listen(entries: FlushedEntries) -> None:
        values = store.deserialize_columns(entries.new_values)[0]
        found.extend(zip(values, [context.timestamp for context in entries.contexts], strict=True))

    store.set_flush_listener(listen, False)
    store.put("k", ValueAndTimestamp("old", 0))
    store.flush()
    task.now = 5
    store.put("k", ValueAndTimestamp("new", 5))
    task.now = 5 + TTL
    store.flush()
    assert found == received
