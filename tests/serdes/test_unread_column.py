"""Columns of bytes are read when a row is used, and written as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.record import RecordBatch, are_same, listed, rows_of, sliced
from penstock.serdes import BytesSerde, Serde, Serdes, StringSerde
from penstock.serdes.unread_column import UnreadColumn, unread_column

DATA = [b"a", None, "\u00e9".encode(), b"a"]
ROWS = ["a", None, "\u00e9", "a"]


class CountingSerde(StringSerde):
    """Counts the columns that it reads."""

    def __init__(self) -> None:
        self.columns = 0

    def deserialize_column(self, topic: str, data: Any, headers: Any = None) -> list[Any]:
        self.columns += 1
        return super().deserialize_column(topic, data, headers)


def column(serde: Serde | None = None) -> UnreadColumn:
    found = unread_column(serde or Serdes.string(), "in", DATA)
    assert found is not None
    return found


def test_rows_are_read_once_and_when_they_are_used() -> None:
    serde = CountingSerde()
    unread = column(serde)
    assert (len(unread), serde.columns) == (4, 0)
    assert [unread[2], [*unread], rows_of(unread), unread[1:3], "\u00e9" in unread, "b" in unread] == [
        "\u00e9",
        ROWS,
        ROWS,
        ROWS[1:3],
        True,
        False,
    ]
    assert serde.columns == 1


def test_parts_stay_unread() -> None:
    serde = CountingSerde()
    unread = column(serde)
    taken, cut = unread.take(np.array([3, 0, 2, 2])), sliced(unread, 1, 3)
    assert serde.columns == 0
    assert [*taken] == ["a", "a", "\u00e9", "\u00e9"]
    assert [*cut] == [None, "\u00e9"]


def test_an_equal_serde_writes_the_bytes() -> None:
    serde = CountingSerde()
    assert column().written_by(StringSerde()) == DATA
    assert column(serde).written_by(serde) == DATA
    assert column(serde).written_by(CountingSerde()) is None, "its attributes may change what it writes"
    assert column().written_by(BytesSerde()) is None


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (Serdes.string(), [b"\xff"]),
        (Serdes.string(), (b"a",)),
        (Serdes.long(), [b"short"]),
        (Serdes.json(), [b"{}"]),
    ],
)
def test_bytes_that_may_be_written_in_another_way_are_read(serde: Serde, data: Any) -> None:
    assert unread_column(serde, "in", data) is None


def test_a_batch_has_lists_in_place_of_unread_columns() -> None:
    numbers = np.arange(4)
    batch = listed(RecordBatch(column(), DATA, numbers, numbers))
    assert batch.keys == ROWS
    assert type(batch.keys) is list
    assert not are_same(column(), column())
