"""The waiting records of calls, followed from manifest to manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import TaskCorruptedError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest
from penstock.host.spark.planner.call_stores import CallStores, TaskInbox
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.plan.subtopology import TaskId
from penstock.processor.waiting_records import WaitingRecord
from penstock.record import TopicPartition
from penstock.serdes.sequenced_key import sequenced_key
from penstock.state.segment_log import SegmentLog, log_to_json
from penstock.state.segments import Segment, SegmentHeader, decode, encode, merge

STORE = "risk-calls"
INBOX = TaskInbox(TaskId(0, 0), "risk", STORE, TopicPartition("app-risk-answers", 0))


def waiting(offset: int, key: bytes = b"k") -> WaitingRecord:
    return WaitingRecord(key, b"v", 5, (), "orders", 0, offset)


class TaskLog:
    """The log of the task, commit by commit."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._log = SegmentLog()
        self._calls_head = b""
        self._epoch = 0

    def commit(self, added: Mapping[int, WaitingRecord], removed: Sequence[int] = ()) -> Manifest:
        """Write a commit; return its manifest."""
        changes: dict[bytes, bytes | None] = {
            sequenced_key(n, record.key): record.pack() for n, record in added.items()
        }
        changes |= {sequenced_key(n, b"k"): None for n in removed}
        manifest = self.commit_changes({STORE: changes, "other": {b"x": b"y"}})
        self._calls_head = self._log.head or b""
        return replace(manifest, tasks=self.manifest().tasks)

    def commit_changes(self, changes: Mapping[str, dict[bytes, bytes | None]]) -> Manifest:
        """Write a commit that does not change the waiting records; return its manifest."""
        encoded = encode(SegmentHeader(self._log.head, (), b""), dict(changes))
        for info, data in encoded:
            self._checkpoint.write_segment(str(INBOX.task), info.id.hex(), data, lambda: None)
        self._log = self._log.append([info for info, _ in encoded])
        self._epoch += 1
        return self.manifest()

    def merge_all(self) -> Manifest:
        """Merge all commits but the last one; return the manifest with the merged segment."""
        group = self._log.deltas[:-1]
        info, data = merge([self._read(each.id.hex()) for each in group])
        self._checkpoint.write_segment(str(INBOX.task), info.id.hex(), data, lambda: None)
        self._log = self._log.with_merged(group, info)
        return self.manifest()

    def manifest(self) -> Manifest:
        assert self._log.head is not None
        entry = TaskEntry(self._log.head.hex(), log_to_json(self._log), calls_head=self._calls_head.hex())
        return Manifest("q", self._epoch, 1, 0, 0, {str(INBOX.task): entry})

    def _read(self, segment: str) -> Segment:
        data = self._checkpoint.read_segment(str(INBOX.task), segment)
        assert data is not None
        return decode(data)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(str(tmp_path / "checkpoint"))


def test_a_commit_adds_its_records_once(checkpoint: Checkpoint) -> None:
    log, stores = TaskLog(checkpoint), CallStores([INBOX], checkpoint)
    first = log.commit({2: waiting(12), 1: waiting(11)})
    assert stores.follow(first) == {INBOX: [(1, waiting(11)), (2, waiting(12))]}
    assert stores.follow(first) == {}
    assert stores.follow(log.commit({3: waiting(13)}, [1])) == {INBOX: [(3, waiting(13))]}
    assert stores.waiting(INBOX) == [(2, waiting(12)), (3, waiting(13))]
    assert len(stores) == 2


def test_a_task_without_commits_has_no_records(checkpoint: Checkpoint) -> None:
    stores = CallStores([INBOX], checkpoint)
    assert stores.follow(Manifest("q", 0, 1, 0, 0, {})) == {}
    assert (stores.waiting(INBOX), len(stores)) == ([], 0)


def test_a_start_reads_all_that_waits(checkpoint: Checkpoint) -> None:
    log = TaskLog(checkpoint)
    log.commit({1: waiting(11), 2: waiting(12)})
    last = log.commit({3: waiting(13)}, [2])
    stores = CallStores([INBOX], checkpoint)
    assert stores.follow(last) == {INBOX: [(1, waiting(11)), (3, waiting(13))]}


def test_a_log_that_was_merged_meanwhile_adds_only_what_is_new(checkpoint: Checkpoint) -> None:
    log, stores = TaskLog(checkpoint), CallStores([INBOX], checkpoint)
    stores.follow(log.commit({1: waiting(11), 2: waiting(12)}))
    log.commit({3: waiting(13)}, [1])
    log.commit({4: waiting(14)}, [3])
    assert stores.follow(log.merge_all()) == {INBOX: [(4, waiting(14))]}
    assert [number for number, _ in stores.waiting(INBOX)] == [2, 4]


def test_a_log_without_the_known_position_adds_only_what_is_new(checkpoint: Checkpoint, tmp_path: Path) -> None:
    stores = CallStores([INBOX], checkpoint)
    stores.follow(TaskLog(checkpoint).commit({1: waiting(11), 2: waiting(12)}))
    other = TaskLog(checkpoint)
    assert stores.follow(other.commit({2: waiting(12), 3: waiting(13)})) == {INBOX: [(3, waiting(13))]}
    assert [number for number, _ in stores.waiting(INBOX)] == [2, 3]


def test_another_record_with_a_known_number_is_new(checkpoint: Checkpoint) -> None:
    log, stores = TaskLog(checkpoint), CallStores([INBOX], checkpoint)
    stores.follow(log.commit({1: waiting(11)}))
    log.commit({}, [1])
    assert stores.follow(log.commit({1: replace(waiting(11), offset=15)})) == {INBOX: [(1, waiting(15))]}


def test_commits_that_leave_the_waiting_records_are_not_read(checkpoint: Checkpoint) -> None:
    log, stores = TaskLog(checkpoint), CallStores([INBOX], checkpoint)
    stores.follow(log.commit({1: waiting(11)}))
    other = log.commit_changes({"other": {b"x": b"z"}})
    (_, info) = other.entry("0_0").segments["deltas"]
    file = Path(checkpoint.uri, "state", "0_0", info["id"])
    file.rename(file.with_suffix(".away"))
    assert stores.follow(other) == {}
    assert stores.follow(log.commit({2: waiting(12)})) == {INBOX: [(2, waiting(12))]}


def test_several_tasks_are_read_at_a_start(checkpoint: Checkpoint) -> None:
    tasks = [INBOX._replace(task=TaskId(0, number)) for number in range(12)]
    one = TaskLog(checkpoint).commit({1: waiting(11)})
    (info,) = one.entry("0_0").segments["deltas"]
    segment = Path(checkpoint.uri, "state", "0_0", info["id"]).read_bytes()
    for each in tasks[1:]:
        checkpoint.write_segment(str(each.task), info["id"], segment, lambda: None)
    manifest = replace(one, tasks={str(each.task): one.entry("0_0") for each in tasks})
    found = CallStores(tasks, checkpoint).follow(manifest)
    assert found == {each: [(1, waiting(11))] for each in tasks}
    assert list(found) == tasks


def test_a_missing_segment_is_an_error_with_its_name(checkpoint: Checkpoint) -> None:
    manifest = TaskLog(checkpoint).commit({1: waiting(11)})
    (info,) = manifest.entry("0_0").segments["deltas"]
    Path(checkpoint.uri, "state", "0_0", info["id"]).unlink()
    with pytest.raises(TaskCorruptedError, match=f"{info['id']}.*missing"):
        CallStores([INBOX], checkpoint).follow(manifest)
