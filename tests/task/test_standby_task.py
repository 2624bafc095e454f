"""A standby copy of a task: what it shows is what the task has committed, commit by commit, whatever it had before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import StreamsConfig
from penstock.errors import InvalidStateStoreError, TaskCorruptedError
from penstock.plan.subtopology import TaskId
from penstock.serdes import Serdes
from penstock.state.lmdb import LmdbBase
from penstock.state.segment_log import SegmentLog
from penstock.state.segments import SegmentHeader, SegmentInfo, decode, encode, merge
from penstock.state.stores import Stores
from penstock.task import standby_task
from penstock.task.standby_task import StandbyTask, empty_store
from penstock.task.task_checkpoint import TaskCheckpoint

CONFIG = StreamsConfig({"application.id": "app"})
BUILDER = Stores.key_value_store_builder(Stores.persistent_key_value_store("store"), Serdes.string(), Serdes.string())
WINDOWS = Stores.window_store_builder(
    Stores.persistent_window_store("windows", 10_000, 10_000, False), Serdes.string(), Serdes.string()
)
STORES = {"store": BUILDER, "windows": WINDOWS}


class Writer:
    """Commits changes of one store as a task does, and keeps the segments."""

    def __init__(self) -> None:
        self.log = SegmentLog()
        self.files: dict[bytes, bytes] = {}
        self.reads = 0

    def commit(
        self,
        changes: dict[str, str | None],
        clocks: dict[str, int] | None = None,
        others: dict[str, dict[bytes, bytes | None]] | None = None,
    ) -> None:
        header = SegmentHeader(
            self.log.head, (("store", BUILDER.kind),), TaskCheckpoint(processor_metadata=clocks or {}).encode()
        )
        encoded = {key.encode(): None if value is None else value.encode() for key, value in changes.items()}
        written = encode(header, {"store": encoded, **(others or {})}, max_bytes=20_000)
        self.files.update({info.id: data for info, data in written})
        self.log = self.log.append([info for info, _ in written])

    def merge_all_but_the_last(self) -> None:
        group = self.log.deltas[: -len(self.log.last_commit())]
        if group:
            info, data = merge([decode(self.read(each), each.id) for each in group])
            self.files[info.id] = data
            self.log = self.log.with_merged(group, info)

    def read(self, info: SegmentInfo) -> bytes:
        self.reads += 1
        return self.files[info.id]


@pytest.fixture
def standby(tmp_path: Path) -> Iterator[StandbyTask]:
    task = StandbyTask(TaskId(0, 0), STORES, CONFIG, LmdbBase(tmp_path / "base", map_bytes=1 << 30))
    yield task
    task.close()


def shown(standby: StandbyTask) -> dict[str, str]:
    store: Any = standby.snapshot().store("store")
    return dict(store.all())


keys = st.sampled_from("abcdef")
commits = st.lists(
    st.tuples(st.dictionaries(keys, st.none() | st.text("xyz", max_size=3), min_size=1), st.booleans(), st.booleans()),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(commits=commits)
def test_it_shows_what_was_committed(
    commits: list[tuple[dict[str, str | None], bool, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    writer, expected = Writer(), dict[str, str]()
    directory = tmp_path_factory.mktemp("standby")
    standby = StandbyTask(TaskId(0, 0), STORES, CONFIG, LmdbBase(directory / "base", map_bytes=1 << 30))
    try:
        for changes, merged, looked in commits:
            writer.commit(changes)
            expected.update({key: value for key, value in changes.items() if value is not None})
            for key in [key for key, value in changes.items() if value is None]:
                expected.pop(key, None)
            if merged:
                writer.merge_all_but_the_last()
            if looked:
                standby.update(writer.log, writer.read)
                assert shown(standby) == expected
        standby.update(writer.log, writer.read)
        assert shown(standby) == expected
    finally:
        standby.close()


def test_a_task_without_commits_has_empty_stores(standby: StandbyTask) -> None:
    with pytest.raises(RuntimeError, match="not updated yet"):
        standby.snapshot()
    standby.update(SegmentLog(), Writer().read)
    assert shown(standby) == {}
    assert standby.snapshot().store("other") is None


def test_the_base_stays_for_the_next_task_that_opens_it(tmp_path: Path) -> None:
    writer = Writer()
    for number in range(5):
        writer.commit({f"k{number}": "v"})
    for _ in range(2):
        standby = StandbyTask(TaskId(0, 0), STORES, CONFIG, LmdbBase(tmp_path / "base", map_bytes=1 << 30))
        standby.update(writer.log, writer.read)
        assert len(shown(standby)) == 5
        standby.close()
    assert writer.reads == 7, "all segments at first, then only the newest, for its checkpoint"
    standby = StandbyTask(TaskId(0, 0), STORES, CONFIG, LmdbBase(tmp_path / "base", map_bytes=1 << 30))
    other = Writer()
    other.commit({"another": "history"})
    standby.update(other.log, other.read)
    assert shown(standby) == {"another": "history"}
    standby.update(SegmentLog(), other.read)
    assert shown(standby) == {}
    standby.close()


def test_a_base_that_holds_other_stores_is_not_believed(tmp_path: Path) -> None:
    store: Any = empty_store(WINDOWS, CONFIG)
    (entry,) = store.entry_keys([b"k"], np.array([0]))
    writer = Writer()
    writer.commit({"k": "v"}, {}, {"windows": {entry: b"v"}})
    for stores, windows in (({"store": BUILDER}, 0), (STORES, 1)):
        standby = StandbyTask(TaskId(0, 0), stores, CONFIG, LmdbBase(tmp_path / "base", map_bytes=1 << 30))
        standby.update(writer.log, writer.read)
        assert shown(standby) == {"k": "v"}
        found: Any = standby.snapshot().store("windows")
        assert (0 if found is None else len(list(found.all()))) == windows
        standby.close()


def test_stores_know_the_clocks_of_their_task(standby: StandbyTask) -> None:
    store: Any = empty_store(WINDOWS, CONFIG)
    (entry,) = store.entry_keys([b"k"], np.array([5_000]))
    writer = Writer()
    for clock, visible in ((5_000, ["v"]), (14_999, ["v"]), (15_000, [])):
        writer.commit({}, {"windows/observed_stream_time": clock}, {"windows": {entry: b"v"}})
        standby.update(writer.log, writer.read)
        windows: Any = standby.snapshot().store("windows")
        assert [value for _, value in windows.all()] == visible, f"a window of 5,000 ms, kept for 10,000, at {clock}"


def test_snapshots_stay_while_updates_continue_until_there_are_too_many(
    standby: StandbyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby_task, "MOST_SNAPSHOTS", 3)
    writer, held = Writer(), list[Any]()
    for number in range(5):
        writer.commit({"k": str(number)})
        standby.update(writer.log, writer.read)
        held.append(standby.snapshot().store("store"))
    for store in held[:2]:
        with pytest.raises(InvalidStateStoreError, match="too old or closed"):
            store.get("k")
    assert [store.get("k") for store in held[2:]] == ["2", "3", "4"]


def test_what_cannot_be_read_leaves_the_commit_before(standby: StandbyTask) -> None:
    writer = Writer()
    writer.commit({"k": "1"})
    standby.update(writer.log, writer.read)
    before = standby.snapshot()
    writer.commit({"k": "2"})

    def fail(info: SegmentInfo) -> bytes:
        raise TaskCorruptedError("gone")

    with pytest.raises(TaskCorruptedError):
        standby.update(writer.log, fail)
    store: Any = before.store("store")
    assert store.get("k") == "1"
    standby.update(writer.log, writer.read)
    assert shown(standby) == {"k": "2"}


def test_many_threads_read_while_updates_continue(standby: StandbyTask) -> None:
    """Each commit gives all keys one value: no reader may see two."""
    writer = Writer()
    names = [f"k{number:04}" for number in range(1500)]  # several chunks of a cursor
    writer.commit(dict.fromkeys(names, "0"))
    standby.update(writer.log, writer.read)
    over, seen, torn = threading.Event(), set[str](), list[set[str]]()

    def read() -> None:
        while True:
            store: Any = standby.snapshot().store("store")
            values = {value for _, value in store.all()} | {store.get(names[7])}
            seen.update(values)
            if len(values) != 1:
                torn.append(values)
            if over.is_set():
                return

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(1, 12):
        writer.commit(dict.fromkeys(names, str(number)))
        standby.update(writer.log, writer.read)
    over.set()
    for thread in threads:
        thread.join(60)
    assert not torn
    assert seen
