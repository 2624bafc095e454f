"""The formats of tables that tests of the lake use, in a directory of the test, and a reader of their files.

The reader takes only the list of a table's files from the library that wrote them, and reads these with DuckDB.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog

from penstock.lake import Delta, Iceberg
from penstock.lake.delta import DeltaLakeTable
from penstock.lake.iceberg import IcebergTable
from penstock.lake.tables import LakeTable


class IcebergFormat:
    """Iceberg with a catalog in SQLite."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def _properties(self) -> dict[str, str]:
        return {
            "type": "sql",
            "uri": f"sqlite:///{self._directory}/catalog.db",
            "warehouse": f"file://{self._directory}",
        }

    def catalog(self) -> Catalog:
        return load_catalog("local", **self._properties)

    def table(self) -> Iceberg:
        """Return the name of the table."""
        return Iceberg("shop.orders", "local", self._properties)

    def prepare(self) -> None:
        """Create the catalog in SQLite, and the namespace."""
        self.catalog().create_namespace("shop")

    def open(self, schema: pa.Schema) -> LakeTable:
        """Open the table as a program does."""
        return IcebergTable(self.table(), schema)

    def files(self) -> list[str]:
        """Return the paths of the table's data files."""
        if not self.catalog().table_exists("shop.orders"):
            return []
        tasks = self.catalog().load_table("shop.orders").scan().plan_files()
        return [task.file.file_path.removeprefix("file://") for task in tasks]

    def append_elsewhere(self, rows: pa.Table) -> None:
        """Append rows as another program that shares the table."""
        self.catalog().load_table("shop.orders").append(rows)

    def compact(self) -> None:
        """Make one file of all, as a job of another program."""
        table = self.catalog().load_table("shop.orders")
        table.overwrite(table.scan().to_arrow())


class DeltaFormat:
    """Delta Lake."""

    def __init__(self, directory: Path) -> None:
        self._uri = f"{directory}/orders"

    def table(self) -> Delta:
        """Return the name of the table."""
        return Delta(self._uri)

    def prepare(self) -> None:
        """Do nothing: Delta Lake has no catalog."""

    def open(self, schema: pa.Schema) -> LakeTable:
        """Open the table as a program does."""
        return DeltaLakeTable(self.table(), schema)

    def files(self) -> list[str]:
        """Return the paths of the table's data files."""
        if not DeltaTable.is_deltatable(self._uri):
            return []
        return [uri.removeprefix("file://") for uri in DeltaTable(self._uri).file_uris()]

    def append_elsewhere(self, rows: pa.Table) -> None:
        """Append rows as another program that shares the table."""
        write_deltalake(self._uri, rows, mode="append")

    def compact(self) -> None:
        """Make one file of all, as a job of another program."""
        DeltaTable(self._uri).optimize.compact()


LakeFormat = IcebergFormat | DeltaFormat
FORMATS = {"iceberg": IcebergFormat, "delta": DeltaFormat}


def rows_of(lake: LakeFormat, columns: str = "*") -> list[tuple[Any, ...]]:
    """Return `columns` of all rows, sorted."""
    files: Sequence[str] = lake.files()
    if not files:
        return []
    query = f"SELECT {columns} FROM read_parquet({files!r}, union_by_name = true)"
    return sorted(duckdb.connect().execute(query).fetchall())
