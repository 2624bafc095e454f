"""The total of the records that wait for all tasks of an instance."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.host.threads.arrived_records import ArrivedRecords, WaitingTotal
from penstock.record import RecordBatch, TopicPartition
from penstock.task.partition_group import BufferSize

PLACES = [TopicPartition("a", 0), TopicPartition("b", 0)]
COUNTS = st.integers(1, 9)
STEPS = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 1), COUNTS, st.integers(0, 99)),
    st.tuples(st.just("take"), st.integers(0, 1), COUNTS, st.just(0)),
    st.tuples(st.just("hold"), st.integers(0, 1), st.integers(0, 9), st.integers(0, 99)),
    st.tuples(st.just("clear"), st.just(0), st.just(0), st.just(0)),
)


@given(steps=st.lists(st.tuples(st.integers(0, 1), STEPS), max_size=30))
def test_the_total_is_that_of_all_tasks_whatever_happens(steps: list[tuple[int, Any]]) -> None:
    total = WaitingTotal()
    tasks = [ArrivedRecords(PLACES, total) for _ in range(2)]
    for number, (step, place, count, size) in steps:
        task, partition = tasks[number], PLACES[place]
        if step == "add":
            offsets = np.arange(count)
            task.add(partition, RecordBatch([b"k"] * count, [b"v"] * count, offsets, offsets), size)
        elif step == "take" and task.records[partition]:
            task.take(partition, count)
        elif step == "hold":
            task.hold({partition: BufferSize(count, size)} if count else {})
        elif step == "clear":
            task.clear()
        held = [each for task in tasks for each in task.held.values()]
        assert total.held == sum(each.records for each in held)
        assert total.records == total.held + sum(sum(task.records.values()) for task in tasks)
        assert total.bytes == sum(each.bytes for each in held) + sum(sum(task.bytes.values()) for task in tasks)
    for task in tasks:
        task.clear()
    assert (total.records, total.bytes, total.held) == (0, 0, 0)
