"""Columns of bytes and texts as Arrow sees them: found distinct in one pass, without an object for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.record import DictionaryColumn

Places = npt.NDArray[np.int32]
"""For each row of a column the place of its entry in the list of distinct ones."""


def distinct(column: Sequence[bytes | None]) -> tuple[list[Any], Places]:
    """Return the distinct entries of a column of bytes and None in the order of their first rows, and the place of the
    entry of each row."""
    if isinstance(column, DictionaryColumn):
        return column.compact()
    return _encoded(pa.array(column, pa.large_binary()))


def distinct_texts(column: Sequence[str | None]) -> tuple[list[Any], Places]:
    """As `distinct`, for a column of texts and None; the entries are UTF-8.

    Raises UnicodeEncodeError or ArrowInvalid for a text that UTF-8 cannot hold.
    """
    return _encoded(pa.array(column, pa.large_string()))


def _encoded(array: Any) -> tuple[list[Any], Places]:
    encoded = array.dictionary_encode(null_encoding="encode")
    places: Places = encoded.indices.to_numpy()
    return encoded.dictionary.cast(pa.large_binary()).to_pylist(), places
