"""Libraries of data frames, each as a function that reads the rows of an object with `__arrow_c_stream__`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import duckdb
import polars as pl
import pyarrow as pa

Rows = list[dict[str, Any]]


def _duckdb(shown: Any) -> Rows:
    rows: Rows = pa.table(duckdb.sql("from shown")).to_pylist()  # DuckDB finds the name in this function
    return rows


READERS: Final[Mapping[str, Callable[[Any], Rows]]] = {
    "pyarrow": lambda shown: pa.table(shown).to_pylist(),
    "polars": lambda shown: pl.DataFrame(shown).to_dicts(),
    "duckdb": _duckdb,
}
"""By the name of the library."""


def rows_for_all(shown: Any) -> Rows:
    """Return the rows of `shown`, once it has been checked that each library reads the same ones."""
    read = {name: reader(shown) for name, reader in READERS.items()}
    assert read["polars"] == read["duckdb"] == read["pyarrow"]
    return read["pyarrow"]
