"""The source partition of each row, of one partition and of several."""

from __future__ import annotations

from itertools import islice

import numpy as np

from penstock.processor.row_partitions import RowPartitions
from penstock.record import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


def test_rows_of_several_partitions_keep_theirs_when_some_are_taken() -> None:
    rows = RowPartitions.of([A, B, A, B])
    assert [rows.at(row) for row in range(4)] == [A, B, A, B]
    taken = rows.take(np.array([1, 2]))
    assert list(taken.each()) == [B, A]
    assert taken.columns(np.array([1, 0])) == (["a", "b"], [0, 1])
    assert list(rows.take(slice(1, 2)).each()) == [B]


def test_rows_of_one_partition_have_it_without_numbers() -> None:
    rows = RowPartitions.of([B, B])
    assert rows == RowPartitions((B,))
    topics, numbers = rows.columns(np.array([0, 1]))
    assert list(zip(topics, islice(numbers, 2), strict=False)) == [("b", 1), ("b", 1)]
    assert rows.take(np.array([1])).at(0) == B
