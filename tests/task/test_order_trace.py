"""The order of records that a task writes down: as ranges, as lines, and replayed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.record import TopicPartition
from penstock.task.order_trace import OrderTrace, TracedCommit, TracedRange
from tests.task.topologies import batch_of, counting, sent, task_of

PLACE = TopicPartition("in", 3)


def numbers(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=20))
def test_ranges_say_lane_and_offset_of_each_record_in_order(rows: list[tuple[int, int]]) -> None:
    trace = OrderTrace()
    trace.take(PLACE, numbers([lane for lane, _ in rows]), numbers([offset for _, offset in rows]))
    ranges = trace.commit(5).ranges
    assert [(r.lane, r.first_offset + n) for r in ranges for n in range(r.records)] == rows
    following = [(r.lane, r.first_offset + r.records) for r in ranges]
    assert all(end != (r.lane, r.first_offset) for end, r in zip(following, ranges[1:], strict=False))


def test_a_commit_has_the_ranges_since_the_last_one() -> None:
    trace = OrderTrace()
    trace.take(PLACE, numbers([0, 0]), numbers([7, 8]))
    first = trace.commit(5)
    assert first == TracedCommit(5, (TracedRange(PLACE, 0, 7, 2),))
    assert trace.commit(6) == TracedCommit(6, ())
    assert TracedCommit.decode(first.encode()) == first
    assert first.encode().count(b"\n") == 1


@pytest.mark.parametrize("cached", [True, False])
def test_a_trace_replayed_gives_the_same_bytes(cached: bool) -> None:
    config = {"penstock.trace.order": "somewhere"}
    lanes = {0: [("a", "v", 5), ("b", "v", 1)], 1: [("a", "v", 4), ("c", "v", 9)]}
    batches = {lane: batch_of(*rows) for lane, rows in lanes.items()}
    cache_bytes = 1000 if cached else 0
    first = task_of(counting(), cache_bytes=cache_bytes, config=config)
    for lane, batch in batches.items():
        first.add_records("in", 0, batch, lane)
    first.process()
    order = first.prepare_commit().order
    assert order is not None
    traced = TracedCommit.decode(order.encode())
    assert traced.ranges == (
        TracedRange(TopicPartition("in", 0), 1, 0, 1),
        TracedRange(TopicPartition("in", 0), 0, 0, 2),
        TracedRange(TopicPartition("in", 0), 1, 1, 1),
    )
    again, original = task_of(counting(), cache_bytes=cache_bytes), task_of(counting(), cache_bytes=cache_bytes)
    for lane, batch in batches.items():
        original.add_records("in", 0, batch, lane)
    original.process()
    for partition, lane, start, count in traced.ranges:
        again.add_records(*partition, batches[lane].slice(start, start + count))
        again.process()
    for task in (again, original):
        task.flush()
    assert sent(again) == sent(original)
    assert again.changes() == original.changes()
