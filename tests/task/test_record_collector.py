"""What a task has sent, by topic and partition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.record import RecordBatch, TopicPartition
from penstock.task.record_collector import RecordCollector

sends = st.lists(
    st.tuples(st.booleans(), st.sampled_from(["x", "y"]), st.lists(st.integers(0, 2), min_size=1, max_size=4))
)


def fill(collector: RecordCollector, plan: list[tuple[bool, str, list[int]]]) -> list[tuple[str, int, bytes]]:
    """Send records one by one or as columns; return them in the order of sending."""
    expected: list[tuple[str, int, bytes]] = []
    for by_column, topic, partitions in plan:
        values = [str(len(expected) + place).encode() for place in range(len(partitions))]
        expected += [(topic, partition, value) for partition, value in zip(partitions, values, strict=True)]
        if by_column:
            first = collector.reserve(len(partitions))
            batch = RecordBatch.of([(None, value, 1, 0, ()) for value in values])
            collector.send_columns(topic, np.array(partitions), np.arange(first, first + len(partitions)), batch)
        else:
            for partition, value in zip(partitions, values, strict=True):
                collector.send(topic, partition, None, value, 1, ())
    return expected


@given(sends)
def test_the_order_of_sending_is_kept_across_topics(plan: list[tuple[bool, str, list[int]]]) -> None:
    collector = RecordCollector()
    expected = fill(collector, plan)
    assert len(collector) == len(expected)
    assert [(r.topic, r.partition, r.value) for r in collector.drain_in_order()] == expected
    assert len(collector) == 0


@given(sends, sends)
def test_partitions_keep_their_order_and_lanes_are_numbered_on(
    plan: list[tuple[bool, str, list[int]]], more: list[tuple[bool, str, list[int]]]
) -> None:
    collector = RecordCollector()
    lane_offsets: dict[TopicPartition, int] = {}
    seen: dict[tuple[str, int], list[tuple[int, bytes | None]]] = {}
    expected: dict[tuple[str, int], list[bytes]] = {}
    for part in (plan, more):
        for topic, partition, value in fill(collector, part):
            expected.setdefault((topic, partition), []).append(value)
        for output in collector.drain({"x"}, lane_offsets):
            rows = list(zip(output.batch.offsets.tolist(), output.batch.values, strict=True))
            seen.setdefault((output.topic, output.partition), []).extend(rows)
    assert {key: [value for _, value in rows] for key, rows in seen.items()} == expected
    for (topic, partition), numbered in seen.items():
        if topic == "x":
            assert [offset for offset, _ in numbered] == list(range(len(numbered)))
            assert lane_offsets[TopicPartition(topic, partition)] == len(numbered)
