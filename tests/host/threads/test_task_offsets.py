"""The offsets of tasks that are to be opened: brokers are asked once for many, and an error about one is its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

import pytest

from penstock.client.api import Admin, OffsetAndMetadata
from penstock.errors import UnstableOffsetCommitError
from penstock.host.threads.task_offsets import OffsetsOfTasks
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from tests.host.threads.memory_broker import MemoryBroker
from tests.host.threads.test_instance import Play


class Asked(MemoryBroker):
    """Remembers for which partitions committed offsets were asked; those of one partition are not stable."""

    def __init__(self, broker: MemoryBroker, unstable: TopicPartition | None = None) -> None:
        self._broker, self._unstable = broker, unstable
        self.asked: list[set[TopicPartition]] = []

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition], stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self.asked.append(set(partitions))
        if self._unstable in partitions:
            raise UnstableOffsetCommitError("a transaction is open")
        return self._broker.committed_offsets(group, partitions)

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return self._broker.beginning_offsets(partitions)

    def end_offsets(
        self, partitions: Sequence[TopicPartition], read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        return self._broker.end_offsets(partitions, read_committed)


def start(unstable: TopicPartition | None = None) -> tuple[OffsetsOfTasks, Asked, list[TaskId]]:
    """Return offsets of tasks that have counted words, what they are asked by, and the tasks, which are wanted."""
    play = Play(partitions=3)
    for partition in range(3):
        play.write("a b c", partition=partition)
    instance = play.instance()
    instance.run()
    instance.close()
    asked = Asked(play.broker, unstable)
    offsets = OffsetsOfTasks(instance.layout, cast(Admin, asked))
    tasks = sorted(instance.layout.groups)
    for task in tasks:
        offsets.want(task)
    return offsets, asked, tasks


def test_brokers_are_asked_once_for_the_tasks_that_are_to_be_opened() -> None:
    offsets, asked, tasks = start()
    layout = Play(partitions=3).instance().layout
    for task in tasks:
        found = offsets.take(task)
        inputs, changelogs = set(layout.groups[task]), set(layout.changelogs(task).values())
        assert set(found.committed) == set(found.begins) == set(found.ends) == inputs
        assert {p: each.offset for p, each in found.committed.items()} == found.ends
        assert set(found.changelog_ends) == changelogs
    assert len(asked.asked) == 1


def test_offsets_are_asked_for_again_when_a_task_is_opened_again() -> None:
    offsets, asked, tasks = start()
    for task in tasks:
        offsets.forget(task)
    offsets.take(tasks[0])
    offsets.take(tasks[0])
    assert len(asked.asked) == 2
    assert asked.asked[0] == asked.asked[1]


def test_what_was_asked_for_a_task_before_it_is_to_be_opened_is_asked_for_again() -> None:
    offsets, asked, tasks = start()
    offsets.take(tasks[0])
    offsets.want(tasks[1])
    offsets.take(tasks[1])
    assert len(asked.asked) == 2


def test_an_error_about_one_task_leaves_the_others_alone() -> None:
    broken = TopicPartition("in", 1)
    offsets, _, tasks = start(broken)
    failed = []
    for task in tasks:
        try:
            offsets.take(task)
        except UnstableOffsetCommitError:
            failed.append(task)
    assert failed == [TaskId(0, 1)]
    with pytest.raises(UnstableOffsetCommitError):
        offsets.take(TaskId(0, 1))
