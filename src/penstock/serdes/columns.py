"""Columns of bytes and texts in Arrow: distinct values in one pass, without objects per row."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.extras import load
from penstock.record import DictionaryColumn

Places = npt.NDArray[np.int32]
"""For each row of a column, its entry's index in the list of distinct entries."""


FEW_ROWS = 400
"""Number of rows up to which Arrow costs more than it saves."""

ROWS_BEFORE_ARROW = 20_000
"""Number of rows of larger columns that a process handles before it loads Arrow.

Loading suspends processing. In a program whose batches are large only after a pause, it would take longer than records
may be late.
"""

_rows_without_arrow = 0


def arrow(module: str = "pyarrow") -> Any:
    """Return a module of Arrow, loaded on first use.

    Loading takes time and memory, and programs with small batches never need it.

    Raises:
        ConfigError: Arrow is not installed.
    """
    return load(module, "Work on columns")


def distinct(column: Sequence[bytes | None]) -> tuple[list[Any], Places]:
    """Return the distinct entries of a column of bytes and None, and each row's index.

    The entries are in the order of their first rows.
    """
    if isinstance(column, DictionaryColumn):
        return column.compact()
    if not _pays(len(column)):
        return _collected(column)
    return encoded(arrow().array(column, arrow().large_binary()))


def distinct_texts(column: Sequence[str | None]) -> tuple[list[Any], Places]:
    """Like `distinct`, for a column of texts and None; the entries are UTF-8.

    Raises UnicodeEncodeError or ArrowInvalid for a text that UTF-8 cannot encode.
    """
    if not _pays(len(column)):
        texts, places = _collected(column)
        return [None if text is None else text.encode() for text in texts], places
    return encoded(arrow().array(column, arrow().large_string()))


def _pays(rows: int) -> bool:
    """Return whether Arrow pays off for a column of this many rows."""
    global _rows_without_arrow
    if rows <= FEW_ROWS:
        return False
    if "pyarrow" not in sys.modules and (_rows_without_arrow < ROWS_BEFORE_ARROW or not _is_installed()):
        _rows_without_arrow += rows
        return False
    return True


@cache
def _is_installed() -> bool:
    return find_spec("pyarrow") is not None


def _collected(column: Sequence[Any]) -> tuple[list[Any], Places]:
    entries: dict[Any, int] = {}
    places = [entries.setdefault(entry, len(entries)) for entry in column]
    return list(entries), np.array(places, np.int32)


def encoded(array: Any) -> tuple[list[Any], Places]:
    """Return the distinct entries of an array of Arrow as bytes, and each row's index."""
    dictionary = array.dictionary_encode(null_encoding="encode")
    places: Places = dictionary.indices.to_numpy()
    return dictionary.dictionary.cast(arrow().large_binary()).to_pylist(), places
