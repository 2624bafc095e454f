"""Instances that lose their disks begin with snapshots from a directory that all of them see, and with the changelogs
where no snapshot can be trusted."""

from __future__ import annotations

import logging
import random
import shutil
import signal
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.client.api import Admin, Consumer
from penstock.errors import InvalidStateStoreError
from penstock.host.crashpoints import SNAPSHOT_POINTS
from penstock.host.storage.files import Files
from penstock.host.storage.sealed_files import sealed, unsealed
from penstock.host.threads import remote_state
from penstock.host.threads.changelog_reader import ChangelogReader, RestoreStoppedError
from penstock.host.threads.commit_times import InstanceCommit
from penstock.host.threads.directories import StateDirectory
from penstock.host.threads.host import ThreadsHost
from penstock.host.threads.remote_snapshots import RemoteSnapshots, SnapshotName, UnusableSnapshotError
from penstock.host.threads.remote_state import SnapshotWriter
from penstock.host.threads.restoring import StateOpener
from penstock.host.threads.standbys import Standbys
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock.state.api import Base
from penstock.state.lmdb import LmdbSnapshot
from penstock.state.memory import MemoryBase
from penstock.task.changelog_copy import ChangelogCopy, ChangelogStamp, layouts_of
from penstock_broker.common.clock import MockClock
from tests.host.threads.inline import KeptBase
from tests.host.threads.memory_broker import MemoryBroker
from tests.host.threads.support import Listening
from tests.host.threads.test_host import NAMES, Restores, WordCount
from tests.host.threads.test_kills import Group
from tests.host.threads.test_workers import config_in, layout_in
from tests.support.brokers import RunningBroker
from tests.support.waiting import until

TASKS = [TaskId(1, 0), TaskId(1, 1)]


class RemoteWords:
    """A count of words that writes snapshots, and may lose its disk."""

    def __init__(self, words: WordCount, directory: Path) -> None:
        self.words = words
        self.uri = str(directory / "remote")
        self.settings = words.settings
        self.settings["penstock.state.remote.dir"] = self.uri
        self.snapshots = RemoteSnapshots(self.uri, words.app)
        self.files = Files(self.snapshots.uri)
        self.changelog = f"{words.app}-{words.store}-changelog"

    def ends(self) -> dict[TopicPartition, int]:
        """Return the ends of the changelog."""
        return self.words.admin.end_offsets([TopicPartition(self.changelog, task.partition) for task in TASKS])

    def are_counted(self, counts: dict[str, int]) -> bool:
        return self.words.counts() == counts

    def run_until_there_are_snapshots(self, counts: dict[str, int], *lines: str) -> None:
        """Count lines, after which the words have these counts, and close when all of it is in snapshots."""
        self.settings["penstock.state.remote.interval.ms"] = 1
        host, listening = self.words.host(until_end=False), Listening()
        host.start(listening)
        try:
            self.words.write(*lines)
            assert until(lambda: self.are_counted(counts) and self.reads_back(counts))
        finally:
            assert host.close(60_000)
        assert listening.error is None
        self.settings["penstock.state.remote.interval.ms"] = 100_000_000  # also for a snapshot of 13 hours ago

    def reads_back(self, counts: dict[str, int]) -> bool:
        """Return whether the newest snapshots have these counts."""
        found: dict[str, int] = {}
        with suppress(UnusableSnapshotError):  # it is being written, or deleted
            for task in TASKS:
                for name in self.snapshots.names(task)[:1]:
                    snapshot = self.snapshots.read(task, name)
                    for changes in () if snapshot is None else self.snapshots.changes(task, name, snapshot):
                        for key, value in changes.get(self.words.store, {}).items():
                            assert value is not None
                            found[key.decode()] = int.from_bytes(value[-8:])
        return found == counts

    def restored(self, **options: Any) -> int:
        """Lose the disk, run to the end, and return how many records of changelogs were read."""
        shutil.rmtree(self.settings["state.dir"])
        restores = Restores()
        self.words.run_to_end(self.words.host(restore_listener=restores, **options))
        return sum(restores.restored.values())


@pytest.fixture
def remote(broker: RunningBroker, tmp_path: Path, unique_name: NAMES) -> RemoteWords:
    return RemoteWords(WordCount(broker, tmp_path, unique_name), tmp_path)


FIRST = {f"w{number}": 1 for number in range(40)}
SECOND = {**FIRST, "w1": 2, "new": 1}


def write_first(remote: RemoteWords) -> int:
    """Count 40 words, and 2 more which no snapshot has; return how many records the changelogs have of these."""
    remote.run_until_there_are_snapshots(FIRST, *FIRST)
    remote.words.write("w1", "new")
    remote.words.run_to_end(remote.words.host())
    assert remote.are_counted(SECOND)
    return 2


@pytest.mark.parametrize(
    ("guarantee", "threads", "shared"),
    [
        ("at_least_once", 1, False),
        ("at_least_once", 2, True),
        ("exactly_once_v2", 1, True),
        ("exactly_once_v2", 2, False),
    ],
)
def test_a_lost_disk_costs_the_records_behind_the_snapshot(
    remote: RemoteWords, guarantee: str, threads: int, shared: bool
) -> None:
    remote.settings |= {
        "processing.guarantee": guarantee,
        "num.stream.threads": threads,
        "penstock.state.shared": shared,
    }
    behind = write_first(remote)
    assert remote.restored() == behind
    remote.words.write("w1", "new", "w2")
    assert remote.restored() == behind
    assert remote.are_counted({**SECOND, "w1": 3, "new": 2, "w2": 2})


def test_snapshots_stay_few(remote: RemoteWords) -> None:
    for number in range(1, 5):
        remote.run_until_there_are_snapshots({"a": number, "b": number}, "a", "b")
        found = [len(remote.snapshots.names(task)) for task in TASKS]
        assert max(found) <= 3  # a close may come before the oldest is deleted
    assert max(found) >= 2


def damaged_names(remote: RemoteWords, damage: Callable[[Path], None], what: str) -> None:
    """Damage a file of each snapshot."""
    found = 0
    for task in TASKS:
        for name in remote.snapshots.names(task):
            for path in (Path(remote.uri) / remote.words.app / str(task) / str(name)).iterdir():
                if (path.name == "snapshot") == (what == "snapshot"):
                    damage(path)
                    found += 1
    assert found


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def made_old(path: Path) -> None:
    """Let a snapshot be of 13 hours ago."""
    content = unsealed(path.read_bytes())
    assert content is not None
    before, _, rest = content.partition(b'"current_ms":')
    time, _, rest = rest.partition(b",")
    path.write_bytes(sealed(before + b'"current_ms":%d,' % (int(time) - 13 * 3_600_000) + rest))


@pytest.mark.slow
@pytest.mark.one_broker
@pytest.mark.parametrize(
    ("what", "damage", "reason"),
    [
        ("segment", cut, "is torn"),
        ("segment", Path.unlink, "is missing"),
        ("snapshot", cut, "is torn or was changed"),
        ("snapshot", Path.unlink, "It is not whole"),
        ("snapshot", made_old, "its changelogs may have lost deletes since"),
    ],
)
def test_what_cannot_be_trusted_is_not_used(
    remote: RemoteWords, what: str, damage: Callable[[Path], None], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_first(remote)
    damaged_names(remote, damage, what)
    assert remote.restored() == len(FIRST) + 2
    assert reason in caplog.text
    remote.words.write("w1")
    assert remote.restored() == len(FIRST) + 2
    assert remote.are_counted({**SECOND, "w1": 3})


@pytest.mark.one_broker
def test_the_older_snapshot_is_used_where_the_newest_is_torn(remote: RemoteWords) -> None:
    write_first(remote)
    for task in TASKS:
        newest = remote.snapshots.names(task)[0]
        data = remote.files.read(f"{task}/{newest}/snapshot")
        assert data is not None
        torn = SnapshotName(newest.position + 1, newest.kind, "torn")
        remote.files.write(f"{task}/{torn}/snapshot", data[:-1])
    assert remote.restored() == 2


@pytest.mark.slow
@pytest.mark.one_broker
def test_a_snapshot_that_the_changelog_does_not_reach_is_not_used(
    remote: RemoteWords, caplog: pytest.LogCaptureFixture
) -> None:
    write_first(remote)
    ends = remote.ends()
    remote.words.admin.alter_topic_configs([remote.changelog], {"cleanup.policy": "delete"}, [])
    remote.words.admin.delete_records({place: end - 1 for place, end in ends.items() if end})
    assert remote.restored() <= 2
    assert "It goes on at offset" in caplog.text


@pytest.mark.slow
@pytest.mark.one_broker
def test_snapshots_of_topics_that_were_deleted_and_of_other_stores_are_not_used(
    remote: RemoteWords, caplog: pytest.LogCaptureFixture
) -> None:
    write_first(remote)
    before = [name for task in TASKS for name in remote.snapshots.names(task)]
    remote.words.host().reset()
    Path(remote.settings["state.dir"]).mkdir(exist_ok=True)
    remote.words.write("again")  # and all lines before, from the beginning
    remote.restored()
    assert "of changelog topics that were deleted" in caplog.text
    counts = remote.words.counts()
    assert (counts["w1"], counts["w2"], counts["again"]) == (2, 1, 1)
    remote.run_until_there_are_snapshots({**counts, "more": 1}, "more")
    left = {name for task in TASKS for name in remote.snapshots.names(task)}
    written = {name.kind for name in left}
    assert len(left.intersection(before)) < len(before)
    assert written - {name.kind for name in before}


@pytest.mark.slow
@pytest.mark.one_broker
def test_a_file_system_that_does_not_answer_delays_nobody(
    remote: RemoteWords, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_first(remote)

    def fail(*_: Any) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(Files, "read", fail)
    monkeypatch.setattr(Files, "find", fail)
    remote.settings["penstock.state.remote.interval.ms"] = 1
    remote.words.write("w1")
    assert remote.restored() == len(FIRST) + 2
    assert remote.are_counted({**SECOND, "w1": 3})
    assert "is restored from its changelogs alone" in caplog.text


@pytest.mark.crash
@pytest.mark.one_broker
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("threads", [1, 2])
def test_each_word_is_counted_once_though_instances_are_killed_while_they_write_or_load_snapshots(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str], threads: int
) -> None:
    draw = random.Random(threads)
    settings = {
        "penstock.state.remote.dir": str(tmp_path / "remote"),
        "penstock.state.remote.interval.ms": 100,
        "num.stream.threads": threads,
        "penstock.state.shared": threads == 1,
    }
    group = Group(broker, tmp_path, unique_name, settings, SNAPSHOT_POINTS)

    def struck() -> set[str]:
        return {path.name for path in group.orders.iterdir()}

    def revive() -> None:
        for number, process in enumerate(group.processes):
            if process.poll() is not None:
                assert process.returncode == -signal.SIGKILL, group.logs()
                shutil.rmtree(group.state(number), ignore_errors=True)
                group.processes[number] = group.start(number)

    def has_gone_on(before: int) -> bool:
        revive()
        return group.has_counted(before + 1)

    def has_struck_all() -> bool:
        before = group.counted()
        group.write(draw)
        assert until(partial(has_gone_on, before)), group.logs()
        left = len(SNAPSHOT_POINTS) - len(struck())
        if left == 1:  # nothing is loaded unless a disk is lost
            group.strike(draw.randrange(2), "lose the disk")
        return left == 0

    try:
        assert until(has_struck_all), group.logs()
        revive()
        assert until(partial(group.has_counted, sum(group.written.values()))), group.logs()
    finally:
        codes = group.close()
    assert codes == [0, 0], group.logs()
    group.assert_exact()


@pytest.mark.slow
@pytest.mark.one_broker
@pytest.mark.parametrize("shared", [False, True])
def test_standbys_begin_with_snapshots_too(
    remote: RemoteWords, tmp_path: Path, shared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    remote.settings["penstock.state.shared"] = shared
    write_first(remote)
    shutil.rmtree(remote.settings["state.dir"])
    caplog.set_level(logging.INFO)
    remote.settings |= {"num.standby.replicas": 1, "heartbeat.interval.ms": 50}
    hosts, listening = [], [Listening(), Listening()]
    for number, each in enumerate(listening):
        remote.settings["state.dir"] = str(tmp_path / f"state-{number}")
        hosts.append(remote.words.host(until_end=False, make_membership=None))
        hosts[-1].start(each)
    try:
        assert until(lambda: all(standbys(host) for host in hosts))
        assert until(lambda: sum(sum(standbys(host).values()) for host in hosts) == sum(remote.ends().values()))
        # Two of the lines are of the active tasks, which may begin after the standby tasks are complete.
        assert until(lambda: begun(caplog.messages) == {TASKS[0]: 2, TASKS[1]: 2})
        assert hosts[0].close(60_000)  # the other one goes on with what its standby has
        remote.words.write("w1", "new")
        assert until(lambda: remote.are_counted({**SECOND, "w1": 3, "new": 2}))
    finally:
        assert all(host.close(60_000) for host in hosts)
    assert [each.error for each in listening] == [None, None]


def begun(messages: list[str]) -> dict[TaskId, int]:
    """Return how often each task began with a snapshot."""
    lines = [line for line in messages if line.startswith("The state of task")]
    return {task: sum(f"task {task} " in line for line in lines) for task in TASKS}


def standbys(host: ThreadsHost) -> dict[str, int]:
    found: dict[str, int] = host.statistics().standbys
    return found


class SlowFiles:
    """A file system, a clock and a base that is read for a snapshot: each write takes a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path, write_ms: int) -> None:
        config = config_in(directory, **{"penstock.state.remote.interval.ms": 100_000})
        self.layout = layout_in(config)
        self.task, self.now = min(self.layout.stateful), 0
        self.directory = StateDirectory(config)
        self.directory.acquire()
        stores, changelogs = self.layout.spec(self.task).stores, self.layout.changelogs(self.task)
        stamp = ChangelogStamp(layouts_of(stores, config), dict.fromkeys(changelogs.values(), 2), {})
        self.base = self.directory.open_base(self.task)
        self.base.apply({"counts": {b"a": b"1" * 1_000, b"b": b"2" * 1_000}}, stamp.encode())
        monkeypatch.setattr(remote_state, "_SEGMENT_BYTES", 1_000)
        self.ended: list[bool] = []
        self.read: LmdbSnapshot | None = None
        self._write_ms = write_ms
        snapshot_of, write = self.directory.snapshot, Files.write

        @contextmanager
        def snapshot(task: TaskId) -> Iterator[LmdbSnapshot | None]:
            with snapshot_of(task) as self.read:
                yield self.read

        def slowly(files: Files, *parts: Any) -> None:
            write(files, *parts)
            self.now += write_ms
            self.writer.end_overdue()
            self.ended.append(self.has_ended())

        monkeypatch.setattr(self.directory, "snapshot", snapshot)
        monkeypatch.setattr(Files, "write", slowly)
        self.snapshots = RemoteSnapshots(str(directory / "remote"), "app")
        self.writer = SnapshotWriter(
            self.layout,
            self.snapshots,
            self.directory,
            lambda: [self.task],
            lambda: InstanceCommit(1, 0, 0),
            lambda: cast(Admin, SimpleNamespace(topic_ids=lambda topics: {topic: topic for topic in topics})),
            MockClock(0),
            lambda: self.now,
        )

    def has_ended(self) -> bool:
        """Return whether the base is read no longer."""
        assert self.read is not None
        try:
            self.read.stamp()
        except InvalidStateStoreError:
            return True
        return False

    def close(self) -> None:
        self.base.close()
        self.directory.release()


def test_a_snapshot_that_takes_longer_than_an_interval_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowFiles(monkeypatch, tmp_path, write_ms=100_000)
    with pytest.raises(UnusableSnapshotError, match=r"longer than 100000 ms.*penstock\.state\.remote\.interval\.ms"):
        slow.writer.write(slow.task)
    assert slow.ended == [True], "while the file system kept it waiting"
    assert slow.snapshots.names(slow.task) == []
    slow.close()


def test_a_snapshot_may_take_as_long_as_an_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowFiles(monkeypatch, tmp_path, write_ms=30_000)
    assert slow.writer.write(slow.task)
    assert slow.ended == [False, False, False], "two segments, and what names them"
    assert len(slow.snapshots.names(slow.task)) == 1
    slow.close()


class Idle:
    """A consumer to which nothing comes, and offsets of topics without records."""

    def __init__(self) -> None:
        self.assigned: dict[TopicPartition, int] = {}

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        return {}

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    end_offsets = beginning_offsets

    def incremental_assign(self, positions: dict[TopicPartition, int]) -> None:
        self.assigned.update(positions)

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            del self.assigned[partition]

    def poll(self, timeout_ms: int, records: int) -> list[Any]:
        return []

    def reached_ends(self) -> dict[TopicPartition, int]:
        return {}

    def close(self) -> None:
        pass


class Parts:
    """Snapshots of two parts, by task."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.stopped: list[TaskId] = []

    def fill(self, task: TaskId, copy: ChangelogCopy, *_: Any) -> Generator[None, None, None]:
        try:
            for key in (b"a", b"b"):
                copy.fill({self.store: {key: b"1"}})
                yield
        except GeneratorExit:
            self.stopped.append(task)
            raise


def test_a_copy_that_is_taken_while_it_is_being_filled_is_empty() -> None:
    layout, parts, idle = layout_in(config_in(Path("nowhere"))), Parts("counts"), Idle()
    bases: dict[TaskId, Base] = {}
    copies = Standbys(layout, cast(Admin, idle), lambda: cast(Consumer, idle), bases.__getitem__, parts.fill)
    first, second = sorted(task for task in layout.stateful)[:2]
    bases |= {first: KeptBase(), second: KeptBase()}
    copies.add(first)
    copies.add(second)
    assert copies.advance() == 0
    assert bases[first].view("counts").get(b"a") == b"1"
    assert bases[second].view("counts").get(b"a") is None  # one after the other
    taken = copies.take(first)
    assert taken is not None
    assert (taken.is_empty, bases[first].stamp(), bases[first].view("counts").get(b"a")) == (True, None, None)
    assert parts.stopped == [first]
    assert [copies.advance() for _ in range(3)][:2] == [0, 0]
    assert {partition.partition for partition in idle.assigned} == {second.partition}
    copies.close()


def test_a_restore_is_given_up_while_it_loads_a_snapshot() -> None:
    layout, parts, base = layout_in(config_in(Path("nowhere"))), Parts("counts"), KeptBase()
    broker = MemoryBroker(layout.topic_partitions)
    admin = cast(Admin, broker)
    reader = ChangelogReader(admin, broker, is_stopped=lambda: True, fill=parts.fill)
    opener = StateOpener(layout, admin, reader, lambda _: base, MockClock(0))
    task = min(layout.stateful)
    with pytest.raises(RestoreStoppedError, match=f"task {task} from a snapshot"):
        opener.open(task)
    assert (base.stamp(), base.view("counts").get(b"a"), parts.stopped) == (None, None, [task])


def test_a_base_with_a_part_of_a_snapshot_is_emptied_by_whoever_opens_it() -> None:
    layout, base = layout_in(config_in(Path("nowhere"))), MemoryBase()
    task = min(layout.stateful)
    make = partial(ChangelogCopy, layout.spec(task).stores, layout.changelogs(task), layout.config)
    copy = make(base)
    next(Parts("counts").fill(task, copy))  # and the process dies
    again = make(base)
    assert (again.is_empty, base.view("counts").get(b"a")) == (True, None)
    changelogs = layout.changelogs(task)
    again.fill({"counts": {b"a": b"1"}})
    again.filled({changelogs["counts"]: 7}, {"clock": 3})
    whole = make(base)
    assert (whole.position("counts"), whole.stamp.processor_metadata) == (7, {"clock": 3})
    assert base.view("counts").get(b"a") == b"1"
