"""Columns of bytes and texts as Arrow sees them: found distinct in one pass, without an object for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.extras import load
from penstock.record import DictionaryColumn

Places = npt.NDArray[np.int32]
"""For each row of a column the place of its entry in the list of distinct ones."""


FEW_ROWS = 400
"""Rows up to which Arrow costs more than it saves."""


def arrow(module: str = "pyarrow") -> Any:
    """Return a module of Arrow. It is loaded where it is first needed: it takes time and memory, and programs whose
    batches are small never need it."""
    return load(module, "Work on columns")


def distinct(column: Sequence[bytes | None]) -> tuple[list[Any], Places]:
    """Return the distinct entries of a column of bytes and None in the order of their first rows, and the place of the
    entry of each row."""
    if isinstance(column, DictionaryColumn):
        return column.compact()
    if len(column) <= FEW_ROWS:
        return _collected(column)
    return _encoded(arrow().array(column, arrow().large_binary()))


def distinct_texts(column: Sequence[str | None]) -> tuple[list[Any], Places]:
    """As `distinct`, for a column of texts and None; the entries are UTF-8.

    Raises UnicodeEncodeError or ArrowInvalid for a text that UTF-8 cannot hold.
    """
    if len(column) <= FEW_ROWS:
        texts, places = _collected(column)
        return [None if text is None else text.encode() for text in texts], places
    return _encoded(arrow().array(column, arrow().large_string()))


def _collected(column: Sequence[Any]) -> tuple[list[Any], Places]:
    entries: dict[Any, int] = {}
    places = [entries.setdefault(entry, len(entries)) for entry in column]
    return list(entries), np.array(places, np.int32)


def _encoded(array: Any) -> tuple[list[Any], Places]:
    encoded = array.dictionary_encode(null_encoding="encode")
    places: Places = encoded.indices.to_numpy()
    return encoded.dictionary.cast(arrow().large_binary()).to_pylist(), places
