"""The choice of a partition: Kafka's known answers, and its two forms (a key, a column of keys) against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Serdes, SessionWindow, Windowed
from penstock.plan.partitioning import (
    WindowedStreamPartitioner,
    keyless_partitions,
    murmur2,
    murmur2_column,
    partition_column,
    partition_for,
)
from penstock.record import Headers
from penstock.serdes.primitive import StringSerde

# The answers of org.apache.kafka.common.utils.Utils.murmur2, as signed numbers of 32 bits.
KNOWN = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]

KEYS = st.lists(st.none() | st.binary(max_size=40), max_size=50)


@pytest.mark.parametrize(("key", "expected"), KNOWN)
def test_murmur2_gives_the_answers_of_kafka(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_a_partition_is_the_positive_hash_modulo_the_number_of_partitions() -> None:
    assert partition_for(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7


@given(st.lists(st.binary(max_size=40), max_size=50))
def test_hashing_a_column_equals_hashing_each_key(keys: list[bytes]) -> None:
    assert murmur2_column(keys).tolist() == [murmur2(key) for key in keys]


@given(KEYS, st.integers(1, 300))
def test_the_partitions_of_a_column_are_those_of_each_key(keys: list[bytes | None], partitions: int) -> None:
    column = partition_column(keys, partitions, null_key_partition=partitions - 1)
    assert column.dtype == np.int64
    assert column.tolist() == [partitions - 1 if key is None else partition_for(key, partitions) for key in keys]
    assert all(0 <= partition < partitions for partition in column.tolist())


@pytest.mark.parametrize("step", [1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize("moves", ["offset", "timestamp"])
def test_records_without_a_key_are_spread_over_all_partitions(step: int, moves: str) -> None:
    rows, still = np.arange(0, 1200 * step, step, dtype=np.int64), np.full(1200, -1, np.int64)
    offsets, timestamps = (rows, still + 11) if moves == "offset" else (still, rows)
    chosen = keyless_partitions(offsets, timestamps, 0, 6)
    assert np.bincount(chosen, minlength=6).min() > 150
    assert chosen.tolist() == [
        int(keyless_partitions(offsets[row : row + 1], timestamps[row : row + 1], 0, 6)[0]) for row in range(1200)
    ]
    others = keyless_partitions(offsets, timestamps, 1, 6)
    assert not np.array_equal(chosen, others)


class Named(StringSerde):
    """Writes the values of the headers before the text."""

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        return b"".join(each or b"" for _, each in headers) + super().serialize(topic, value)


@given(st.text(max_size=8), st.integers(0, 100), st.integers(1, 300))
def test_all_windows_of_a_key_go_to_the_partition_of_the_key(key: str, start: int, partitions: int) -> None:
    choose = WindowedStreamPartitioner(Serdes.string())
    assert choose("t", Windowed(key, SessionWindow(start, 100)), 1, (), partitions) == {
        partition_for(key.encode(), partitions)
    }
    assert choose("t", None, 1, (), partitions) is None


def test_the_key_of_a_window_is_written_with_the_headers_of_the_record() -> None:
    choose = WindowedStreamPartitioner(Named())
    windowed = Windowed("k", SessionWindow(0, 100))
    assert choose("t", windowed, 1, (("name", b"n"),), 300) == {partition_for(b"nk", 300)}
    assert choose("t", windowed, 1, (), 300) == {partition_for(b"k", 300)}
