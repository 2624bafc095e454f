"""The tables of sinks: opened, and changed by records as the sink says. Errors name the sink."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from penstock.config import StreamsConfig
from penstock.errors import KafkaError, StreamsError
from penstock.extras import load
from penstock.host.lake.copying import LakeTarget
from penstock.lake.columns import LakeColumns
from penstock.lake.tables import Delta, Iceberg, LakeMode, LakeSink, LakeTable, LakeTableError, TopicIncarnation
from penstock.lake.upserts import UpsertColumns
from penstock.serdes.api import inner_serde, or_default

_log = logging.getLogger(__name__)

_ADVICE: Final[Mapping[type[Iceberg | Delta], str]] = {
    Iceberg: "Check the name of the catalog, its type, uri and credentials (in the configuration of PyIceberg, or the "
    "properties of Iceberg), and that this process may read and write the warehouse.",
    Delta: "Check the uri and the storage_options of Delta, and that this process may read and write there.",
}


class AppendTarget:
    """A table with a row for each record (`LakeTarget`)."""

    def __init__(self, table: LakeTable, columns: LakeColumns) -> None:
        self.refresh, self.offsets, self.rows = table.refresh, table.offsets, columns.rows
        self._append = table.append

    def commit(self, rows: list[pa.Table], source: TopicIncarnation, offsets: Mapping[int, int]) -> None:
        """Append the rows."""
        self._append(pa.concat_tables(rows).combine_chunks(), source, offsets)


class UpsertTarget:
    """A table with a row for each key (`LakeTarget`)."""

    def __init__(self, table: LakeTable, columns: UpsertColumns) -> None:
        self.refresh, self.offsets, self.rows = table.refresh, table.offsets, columns.rows
        self._upsert, self._changes = table.upsert, columns.changes

    def commit(self, rows: list[pa.Table], source: TopicIncarnation, offsets: Mapping[int, int]) -> None:
        """Replace and delete the rows of their keys."""
        self._upsert(self._changes(rows), source, offsets)


def target_of(sink: LakeSink, config: StreamsConfig) -> LakeTarget:
    """Return the table of a sink, open; it is created if it does not exist.

    Raises:
        ConfigError: a package or a serde is missing.
        LakeTableError: a serde has no columns, or the table cannot be opened.
    """
    kind, name = ("iceberg", "IcebergTable") if isinstance(sink.table, Iceberg) else ("delta", "DeltaLakeTable")
    open_table = getattr(load(f"penstock.lake.{kind}", "to_lake", extra="lake"), name)
    key_serde, value_serde = config["default.key.serde"], config["default.value.serde"]
    serdes = (
        inner_serde(or_default(sink.key_serde, key_serde, key_serde, value_serde), "key"),
        inner_serde(or_default(sink.value_serde, value_serde, key_serde, value_serde), "value"),
    )
    try:
        columns = LakeColumns(*serdes)
        if sink.mode is LakeMode.APPEND:
            return AppendTarget(open_table(sink.table, columns.schema), columns)
        keyed = UpsertColumns(columns)
        return UpsertTarget(open_table(sink.table, keyed.schema), keyed)
    except Exception as error:
        raise of_sink(sink, error) from None


def of_sink(sink: LakeSink, error: Exception) -> StreamsError:
    """Return the error of the application for an error of a sink's table; those of brokers stay as they are.

    Libraries write settings into their messages, such as passwords: the name of a setting replaces its value.
    """
    if isinstance(error, KafkaError | LakeTableError):
        return error
    if isinstance(error, StreamsError):
        return LakeTableError(f"Sink {sink.node}: {error}")
    _log.debug("Where %s failed:\n%s", sink.table, "".join(traceback.format_tb(error.__traceback__)))
    settings = sink.table.properties if isinstance(sink.table, Iceberg) else sink.table.storage_options
    message = f"{type(error).__name__}: {error}".rstrip(".")
    for name, value in sorted(settings.items(), key=lambda each: -len(str(each[1]))):  # one may be a part of another
        if value:
            message = re.sub(rf"(?<!\w){re.escape(str(value))}(?!\w)", f"<{name}>", message)
    return LakeTableError(
        f"Sink {sink.node} cannot open or write {sink.table}: {message}. {_ADVICE[type(sink.table)]} "
        "No record is lost: the next start continues at the offsets in the table."
    )
