"""Objects with rows: a table in a notebook, and an Arrow stream for dataframe libraries.

pandas, polars and pyarrow are imported on first use.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from penstock.errors import StreamsError
from penstock.extras import load_package
from penstock.notebook import Forms, failed, mime_bundle

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # its stubs are another package
    import polars as pl
    import pyarrow as pa

SHOWN_ROWS: Final = 20
"""The number of rows in a notebook."""


class Tabular:
    """The base of objects with rows.

    `pa.table(object)`, `pl.DataFrame(object)` and DuckDB's `from object` read them, one batch of rows at a time (the
    Arrow PyCapsule interface).
    """

    def _arrow_reader(self) -> pa.RecordBatchReader:
        """Return a reader of all current rows."""
        raise NotImplementedError

    def _title(self) -> str:
        """Return the heading of the rows in a notebook."""
        raise NotImplementedError

    def _table(self, limit: int) -> Forms:
        """Return the notebook forms of the first rows, up to `limit`."""
        raise NotImplementedError

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._arrow_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """Return the rows as a pyarrow.Table."""
        return self._arrow_reader().read_all()

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas.DataFrame; raises ModuleNotFoundError if pandas is not installed."""
        load_package("pandas", "to_pandas()")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a polars.DataFrame; raises ModuleNotFoundError if polars is not installed."""
        frame: pl.DataFrame = load_package("polars", "to_polars()").DataFrame(self)
        return frame

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        try:
            forms = self._table(SHOWN_ROWS)
        except StreamsError as error:  # such as for a closed store
            forms = failed(self._title(), error)
        return mime_bundle(forms, include, exclude)
