"""When the records of a manifest are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from penstock.host.spark.checkpoints.checkpoint import Manifest
from penstock.host.spark.planner.call_stores import TaskInbox
from penstock.host.spark.planner.committed_calls import CommittedCalls
from penstock.host.spark.protocol.epoch_offset import EpochOffset
from penstock.plan.subtopology import TaskId
from penstock.processor.waiting_records import Waiting, WaitingRecord
from penstock.record import TopicPartition

ANSWERS = TopicPartition("app-risk-answers", 0)
OTHERS = TopicPartition("app-risk-answers", 1)
INBOX = TaskInbox(TaskId(0, 0), "risk", "risk-calls", ANSWERS)
OTHER = TaskInbox(TaskId(0, 1), "risk", "risk-calls", OTHERS)


def record(number: int) -> Waiting:
    return number, WaitingRecord(b"k", b"v", 5, (), "orders", 0, number)


class Stores:
    """Stores with records by the number of the epoch in which they were added."""

    def __init__(self, added: Mapping[int, Mapping[TaskInbox, list[Waiting]]]) -> None:
        self._added = added
        self._epoch = 0

    def follow(self, manifest: Manifest) -> dict[TaskInbox, list[Waiting]]:
        before, self._epoch = self._epoch, manifest.epoch
        return {inbox: found for inbox in (INBOX, OTHER) if (found := self._between(inbox, before))}

    def waiting(self, inbox: TaskInbox) -> list[Waiting]:
        return self._between(inbox, 0)

    def __len__(self) -> int:
        return len(self.waiting(INBOX)) + len(self.waiting(OTHER))

    def _between(self, inbox: TaskInbox, epoch: int) -> list[Waiting]:
        return [each for at in range(epoch + 1, self._epoch + 1) for each in self._added.get(at, {}).get(inbox, [])]


class Starter:
    """Keeps the numbers of the records to call, by task and operator."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int, list[int]]] = []
        self.waited: list[int] = []

    def add(self, node: str, partition: int, entries: Sequence[Waiting]) -> None:
        self.started.append((node, partition, [number for number, _ in entries]))
        self.waited += [number for number, each in entries if each.was_waiting]


class Query:
    """Takes one manifest after another."""

    def __init__(self, added: Mapping[int, Mapping[TaskInbox, list[Waiting]]]) -> None:
        self.starter = Starter()
        self.calls = CommittedCalls([INBOX, OTHER], Stores(added), self.starter)

    def take(self, epoch: int, positions: list[int], ends: list[int] | None) -> list[tuple[str, int, list[int]]]:
        """Take the manifest of an epoch; return what is called then."""
        known = {} if ends is None else dict(zip((ANSWERS, OTHERS), ends, strict=True))
        committed = EpochOffset("q", epoch, 0, {ANSWERS.topic: positions}, [1], 1)
        self.calls.take(Manifest("q", epoch, 1, 0, 0, {}), committed, known)
        started, self.starter.started = self.starter.started, []
        return started


def test_records_are_called_after_their_commit_and_once() -> None:
    query = Query({1: {INBOX: [record(1)]}, 2: {INBOX: [record(2)], OTHER: [record(1)]}})
    assert query.take(0, [0, 0], [0, 0]) == []
    assert query.take(1, [0, 0], [0, 0]) == [("risk", 0, [1])]
    assert query.take(1, [0, 0], [1, 0]) == []
    assert query.take(2, [0, 0], [1, 0]) == [("risk", 0, [2]), ("risk", 1, [1])]
    assert query.calls.waiting == 3


def test_records_at_the_start_are_called_when_the_answers_that_were_there_are_used() -> None:
    query = Query({1: {INBOX: [record(1), record(2)], OTHER: [record(1)]}, 2: {INBOX: [record(3)]}})
    assert query.take(1, [4, 0], [6, 0]) == [("risk", 1, [1])]
    assert query.take(2, [5, 0], [6, 0]) == []
    assert query.take(3, [6, 0], [6, 0]) == [("risk", 0, [1, 2, 3])]


def test_records_at_the_start_are_marked() -> None:
    query = Query({1: {INBOX: [record(1), record(2)]}, 2: {INBOX: [record(3)], OTHER: [record(1)]}})
    query.take(1, [4, 0], [6, 0])
    assert query.take(2, [6, 0], [6, 0]) == [("risk", 0, [1, 2, 3]), ("risk", 1, [1])]
    assert query.starter.waited == [1, 2]


def test_answers_that_arrive_later_do_not_delay_the_calls() -> None:
    query = Query({1: {INBOX: [record(1)]}})
    assert query.take(1, [4, 0], [6, 0]) == []
    assert query.take(2, [6, 0], [9, 0]) == [("risk", 0, [1])]


@pytest.mark.parametrize("position", [0, 3])
def test_a_start_without_brokers_makes_no_calls_until_the_ends_are_known(position: int) -> None:
    query = Query({1: {INBOX: [record(1)]}})
    assert query.take(1, [position, 0], None) == []
    assert query.take(1, [position, 0], [position, 0]) == [("risk", 0, [1])]
