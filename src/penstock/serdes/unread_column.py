"""Columns of bytes that a task has received and not read: keys that no operator between a source and a sink uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.record import LazyColumn, take_from
from penstock.serdes.api import Serde


class UnreadColumn(LazyColumn[Any]):
    """A column of bytes, which are read when a row is used.

    All of them are readable, and the serde writes each as it was.

    Args:
        serde: of the rows.
        topic: the topic of the bytes.
        data: the bytes of each row; None for null.
    """

    __slots__ = ("_data", "_rows", "_serde", "_topic")

    def __init__(self, serde: Serde, topic: str, data: list[bytes | None]) -> None:
        self._serde = serde
        self._topic = topic
        self._data = data
        self._rows: list[Any] | None = None

    def rows(self) -> list[Any]:
        """Return the rows as objects."""
        if self._rows is None:
            self._rows = self._serde.deserialize_column(self._topic, self._data)
        return self._rows

    def take(self, rows: npt.NDArray[np.integer[Any]] | slice) -> UnreadColumn:
        """Return the selected rows."""
        taken = self._data[rows] if isinstance(rows, slice) else take_from(self._data, rows)
        return UnreadColumn(self._serde, self._topic, taken)

    def written_by(self, serde: Serde) -> list[bytes | None] | None:
        """Return the bytes that another serde writes for the rows; None if they are unknown without reading."""
        return self._data if _are_equal(serde, self._serde) else None

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, entry: object) -> bool:
        return entry in self.rows()


def unread_column(serde: Serde, topic: str, data: Sequence[bytes | None]) -> UnreadColumn | None:
    """Return bytes as an unread column; None if a row may be unreadable, or be written in another way.

    Args:
        serde: of the rows.
        topic: the topic of the bytes.
        data: the bytes of each row; None for null.
    """
    return UnreadColumn(serde, topic, data) if isinstance(data, list) and serde.is_canonical_column(data) else None


def _are_equal(serde: Serde, other: Serde) -> bool:
    """Return whether two serdes write the same: they are one object, or of one class without attributes."""
    return serde is other or (type(serde) is type(other) and not vars(serde) and not vars(other))
