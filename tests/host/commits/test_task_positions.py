"""How far tasks are, asked of brokers that may not answer."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import cast

import pytest

from penstock.client.api import Admin
from penstock.errors import StateStoreNotAvailableError
from penstock.host.api import TaskMetadata
from penstock.host.commits.task_positions import TaskPositions
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition

IN, OTHER = TopicPartition("in", 0), TopicPartition("other", 0)


class Brokers:
    """Two partitions of 10 records, of which the first two are deleted (implements what is used of Admin)."""

    def __init__(self) -> None:
        self.made = 0
        self.is_closed = False
        self.asked, self.answers = threading.Event(), threading.Event()
        self.answers.set()

    def make(self) -> Admin:
        self.made += 1
        return cast(Admin, self)

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 2)

    def end_offsets(
        self, partitions: Sequence[TopicPartition], read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        assert not self.is_closed
        self.asked.set()
        assert self.answers.wait(60)
        return dict.fromkeys(partitions, 10)

    def close(self) -> None:
        self.is_closed = True


def committed(admin: Admin, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
    return {IN: 7}


def test_a_partition_without_a_commit_counts_from_its_first_record() -> None:
    brokers = Brokers()
    positions = TaskPositions(brokers.make)
    found = positions.metadata({TaskId(1, 0): [], TaskId(0, 0): [IN, OTHER]}, committed)
    assert found == (
        TaskMetadata(TaskId(0, 0), {IN: 7, OTHER: 2}, {IN: 10, OTHER: 10}),
        TaskMetadata(TaskId(1, 0), {}, {}),
    )
    assert (found[0].lag_of(IN), found[0].lag, found[1].lag) == (3, 11, 0)
    positions.metadata({TaskId(0, 0): [IN]}, committed)
    assert brokers.made == 1
    positions.close()
    assert brokers.is_closed
    with pytest.raises(StateStoreNotAvailableError, match="has no tasks"):
        positions.metadata({TaskId(0, 0): [IN]}, committed)


def test_the_end_does_not_wait_for_brokers() -> None:
    brokers = Brokers()
    brokers.answers.clear()
    positions = TaskPositions(brokers.make)
    found: list[tuple[TaskMetadata, ...]] = []
    asking = threading.Thread(target=lambda: found.append(positions.metadata({TaskId(0, 0): [IN]}, committed)))
    asking.start()
    assert brokers.asked.wait(60)
    positions.close()
    assert not brokers.is_closed
    brokers.answers.set()
    asking.join(60)
    assert found[0][0].lag == 3
    assert brokers.is_closed
