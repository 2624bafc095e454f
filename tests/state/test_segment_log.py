"""The log of a task, run as a host runs it: every base comes to the head with the content of a dict, and the log stays
small."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.memory import MemoryBase
from penstock.state.segment_log import (
    MaintenancePolicy,
    SegmentLog,
    entries_from,
    garbage,
    log_from_json,
    log_to_json,
    maintenance_due,
    path,
)
from penstock.state.segments import EncodedSegment, SegmentHeader, decode, encode, encode_snapshot, merge

Content = dict[str, dict[bytes, bytes]]
STORES = (("a", "key_value"), ("b", "key_value"))
SMALL = MaintenancePolicy(least_budget=4000, fan_in=3, tiers=(300, 800, 2000), least_log=500, most_snapshots=16)


def content_of(base: MemoryBase) -> Content:
    return {name: dict(base.view(name).range(None, None, False)) for name, _ in STORES}


@dataclass
class Host:
    """Commits over a base that is always at the head, and keeps the segments."""

    policy: MaintenancePolicy = SMALL
    max_bytes: int = 17_000
    files: dict[bytes, bytes] = field(default_factory=dict)
    log: SegmentLog = field(default_factory=SegmentLog)
    base: MemoryBase = field(default_factory=MemoryBase)
    spent: list[tuple[int, int]] = field(default_factory=list)

    def write(self, encoded: EncodedSegment) -> None:
        assert self.files.setdefault(encoded.info.id, encoded.data) == encoded.data
        self.files[encoded.info.id] = encoded.data

    def commit(
        self, changes: dict[str, dict[bytes, bytes | None]], merging: bool = True, snapshots: bool = True
    ) -> None:
        parts = encode(SegmentHeader(self.log.head, STORES, b"checkpoint"), changes, max_bytes=self.max_bytes)
        for part in parts:
            self.write(part)
        log = self.log.append([part.info for part in parts])
        live = sum(self.base.view(name).approximate_num_entries() for name, _ in STORES)
        due = maintenance_due(log, live, self.policy)
        assert maintenance_due(log_from_json(log_to_json(log)), live, self.policy) == due
        spent = 0
        for group in due.merges if merging else ():
            merged = merge([decode(self.files[info.id], info.id) for info in group])
            spent += sum(info.content_bytes for info in group)
            self.write(merged)
            log = log.with_merged(group, merged.info)
        if due.snapshot is not None and snapshots:
            position, cycle, start, size = due.snapshot
            assert position == self.base.stamp()
            entries = entries_from(self.base, [name for name, _ in STORES], start)
            written = encode_snapshot(position, cycle, start, STORES, entries, size)
            spent += size
            for part in written:
                self.write(part)
            log = log.with_snapshots([part.info for part in written])
        self.spent.append((sum(part.info.content_bytes for part in parts), spent))
        assert [info.id for info in log.last_commit()] == [part.info.id for part in parts]
        assert log.head is not None
        self.base.apply(changes, log.head)
        self.log = log

    def bring_up(self, base: MemoryBase) -> bool:
        """Bring `base` to the head; return whether it had to be rebuilt."""
        rebuild, segments = path(self.log, base.stamp())
        if rebuild:
            assert self.log.head is not None
            base.rebuild(lambda: (decode(self.files[info.id], info.id).changes for info in segments), self.log.head)
        else:
            for info in segments:
                base.apply(decode(self.files[info.id], info.id).changes, info.last)
        assert base.stamp() == self.log.head
        return rebuild

    def collect_garbage(self) -> None:
        for identity in garbage(self.files, [self.log]):
            del self.files[identity]


CHANGES = st.dictionaries(
    st.sampled_from(["a", "b"]),
    st.dictionaries(st.binary(min_size=1, max_size=2), st.none() | st.binary(max_size=60), max_size=12),
)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(CHANGES, st.booleans(), st.booleans(), st.integers(0, 9)), min_size=1, max_size=40))
def test_every_base_comes_to_the_head(
    steps: list[tuple[dict[str, dict[bytes, bytes | None]], bool, bool, int]],
) -> None:
    """Any commits, merged and snapshot at any of the times the plan allows, applied from nothing and by bases that
    lag."""
    host = Host()
    lagging = [MemoryBase() for _ in range(5)]
    for changes, merging, snapshots, who in steps:
        host.commit(changes, merging, snapshots)
        host.collect_garbage()
        for base in [MemoryBase(), *lagging[who : who + 1]]:
            host.bring_up(base)
            assert content_of(base) == content_of(host.base)
    for base in lagging:
        host.bring_up(base)
        assert content_of(base) == content_of(host.base)


def test_a_commit_in_parts_is_one_commit() -> None:
    host = Host()
    large: dict[str, dict[bytes, bytes | None]] = {"a": {b"%d" % n: bytes([n]) * 1000 for n in range(60)}}
    host.commit(large)
    assert len(host.log.last_commit()) > 2
    host.commit({"b": {b"x": b"1"}})
    assert len(host.log.last_commit()) == 1
    base = MemoryBase()
    host.bring_up(base)
    assert content_of(base) == content_of(host.base)


def update_some(rng: random.Random, keys: int, share: float, deletes: float) -> dict[str, dict[bytes, bytes | None]]:
    chosen = rng.sample(range(keys), max(1, int(keys * share)))
    return {"a": {b"k%05d" % key: None if rng.random() < deletes else rng.randbytes(20) for key in chosen}}


@pytest.mark.parametrize("share", [pytest.param(0.005, marks=pytest.mark.slow), 0.05, 1.0])
@pytest.mark.parametrize("deletes", [0.0, 0.5, 0.95])
def test_the_log_stays_under_about_twice_the_state(share: float, deletes: float) -> None:
    rng, host, keys = random.Random(7), Host(max_bytes=1_000_000), 1500
    lagging, rebuilt, ratios = MemoryBase(), 0, []
    commits = int(30 + 6 / share) if share < 1 else 40
    for number in range(commits):
        host.commit(update_some(rng, keys, share, deletes))
        host.collect_garbage()
        if number % 3 == 0 and number > commits // 3:
            rebuilt += host.bring_up(lagging)
        state = sum(8 + len(k) + len(v) for entries in content_of(host.base).values() for k, v in entries.items())
        if number > commits // 2:
            last = sum(info.content_bytes for info in host.log.last_commit())
            ratios.append((host.log.content_bytes() - last - SMALL.least_log - SMALL.least_budget) / max(state, 1))
    assert max(ratios) < 2.2
    assert all(spent <= SMALL.budget(written) for written, spent in host.spent)
    assert len(host.log.deltas) + len(host.log.snapshots) < 120
    if share < 1 and deletes == 0.0:
        assert rebuilt <= 1  # a base that is three commits behind finds its way
    assert content_of(lagging).keys() == {"a", "b"}


def test_state_that_is_deleted_leaves_the_log() -> None:
    rng, host = random.Random(7), Host(max_bytes=1_000_000)
    host.commit({"a": {b"k%05d" % key: rng.randbytes(50) for key in range(2000)}})
    full = host.log.content_bytes()
    for start in range(0, 2000, 20):
        host.commit({"a": {b"k%05d" % key: None for key in range(start, start + 20)}})
    for number in range(40):
        host.commit({"b": {b"%d" % number: b"x" * 100}})
    assert host.log.content_bytes() < full / 8


def test_what_is_all_new_is_written_once_until_there_are_many_deltas() -> None:
    rng, host = random.Random(7), Host(max_bytes=1_000_000, policy=replace(SMALL, most_deltas=40, tiers=()))
    for number in range(60):
        host.commit({"a": {rng.randbytes(8): rng.randbytes(100) for _ in range(200)}})
        assert bool(host.log.snapshots) == (number > 40)


def test_few_large_entries_that_change_begin_a_round() -> None:
    rng, host = random.Random(7), Host(max_bytes=1_000_000)
    host.commit({"a": {b"k%05d" % key: rng.randbytes(20) for key in range(2000)}})
    for _ in range(8):
        host.commit({"a": {b"large": rng.randbytes(50_000)}})
    assert host.log.snapshots


def test_a_base_of_another_history_is_rebuilt() -> None:
    host = Host()
    host.commit({"a": {b"k": b"1"}})
    stranger = MemoryBase()
    stranger.apply({"a": {b"wrong": b"x"}}, b"s" * 16)
    assert host.bring_up(stranger)
    assert content_of(stranger) == {"a": {b"k": b"1"}, "b": {}}


def test_a_base_at_the_head_needs_nothing() -> None:
    host = Host()
    host.commit({"a": {b"k": b"1"}})
    assert path(host.log, host.log.head).segments == ()
    assert SegmentLog().last_commit() == ()


def test_what_does_not_fit_the_chain_is_refused() -> None:
    host = Host()
    for number in range(3):
        host.commit({"a": {b"%d" % number: b"x"}}, merging=False)
    [stray] = encode(SegmentHeader(b"x" * 16, STORES), {})
    with pytest.raises(ValueError, match="does not follow the head"):
        host.log.append([stray.info])
    first, second, third = host.log.deltas
    merged = merge([decode(host.files[info.id]) for info in (first, second)])
    with pytest.raises(ValueError, match="neighbours"):
        host.log.with_merged([second, third], merged.info)
    [snapshot] = encode_snapshot(third.last, 1, None, STORES, [], 10)
    with pytest.raises(ValueError, match="does not show the position before"):
        host.log.with_snapshots([snapshot.info])


def test_garbage_is_what_no_retained_log_names() -> None:
    host = Host()
    host.commit({"a": {b"k": b"1"}})
    before = host.log
    for number in range(30):
        host.commit({"a": {b"k": b"%d" % number * 20}})
    assert garbage([*host.files, b"torn"], [before, host.log]) >= {b"torn"}
    assert not garbage(host.files, [before, host.log]) & (before.ids() | host.log.ids())
    assert garbage(host.files, [before, host.log])
