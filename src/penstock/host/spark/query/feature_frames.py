"""Features of labels in a Spark DataFrame: a point-in-time join of labels and versions, by Spark.

Versions and labels of a key are one sequence in the order of time; each label takes the last version before it, by a
window function. So the cost grows with labels and versions, not with their product, and Spark bounds the memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.extras import load
from penstock.host.spark.protocol.application_description import dump_for_workers, load_in_worker
from penstock.host.spark.query.state_frames import StateScan
from penstock.state.api import StateStore
from penstock.state.query.columns import Column, StateColumns, record_batches
from penstock.state.query.features import (
    Features,
    Keys,
    added_columns,
    check_label_columns,
    key_columns,
    object_of_key,
    version_time,
)
from penstock.task.standby_task import empty_store
from penstock.windows import LONG_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LAST_VERSION: Final = (
    "last(version, true) OVER (PARTITION BY key ORDER BY at, is_label ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
)
"""The last version at the time of a row: a version that begins at that very time comes before labels."""

_IS_VALID: Final = "coalesce(at < version.valid_to, false)"

_INTEGERS: Final = frozenset(("tinyint", "smallint", "int", "bigint"))


class CheckpointFeatures(Features):
    """Features from a checkpoint, for labels in a DataFrame of Spark too.

    Args:
        names: the stores.
        partitions: returns the partitions of each store, by its name.
        scans: returns what workers need to read each store, by its name; all as of one commit.
    """

    def __init__(
        self,
        names: Sequence[str],
        partitions: Callable[[], Mapping[str, Sequence[StateStore]]],
        scans: Callable[[], Mapping[str, StateScan]],
    ) -> None:
        super().__init__(names, partitions)
        self._scans = scans

    def as_of(self, labels: Any, time: str = "timestamp", key: Keys = "key") -> Any:
        """Return the labels with their features, for a DataFrame of Spark as a DataFrame; see `Features.as_of`."""
        sql = sys.modules.get("pyspark.sql")
        if sql is None or not isinstance(labels, sql.DataFrame):
            return super().as_of(labels, time, key)
        joins = [_Join(scan) for scan in self._scans().values()]
        keys = key_columns(self._names, key)
        check_label_columns(labels.columns, [time, *keys.values()], [name for join in joins for name in join.added])
        milliseconds = _milliseconds(labels, time)
        frame = labels
        for join in joins:
            frame = join.joined(frame, milliseconds, keys[join.name])
        return load("penstock.host.spark.versions", "A DataFrame").readable_by_libraries(frame)


class _Join:
    """The join of labels with one store.

    Args:
        scan: of the store.
    """

    def __init__(self, scan: StateScan) -> None:
        example: Any = empty_store(scan.store, scan.config)
        self.name = scan.store.name
        object_of_key(self.name, example)
        self._scan = scan
        self._columns = _version_columns(example)
        self.added = added_columns(self.name)

    def joined(self, labels: DataFrame, milliseconds: str, key: str) -> DataFrame:
        """Return `labels` with the columns of the store; `milliseconds`: the expression of their times."""
        session = labels.sparkSession
        rows = labels.selectExpr(
            "struct(*) AS label",
            f"CAST({_quoted(key)} AS {self._columns[0].ddl}) AS key",
            f"{milliseconds} AS at",
            "true AS is_label",
        )
        ddl = ", ".join(f"{column.name} {column.ddl}" for column in self._columns)
        versions = self._read(session, _versions, ddl).selectExpr(
            "key", "valid_from AS at", "false AS is_label", "struct(value, timestamp, valid_to) AS version"
        )
        both = rows.unionByName(versions, allowMissingColumns=True)
        found = both.selectExpr("label", "key", "at", "is_label", f"{_LAST_VERSION} AS version").where("is_label")
        oldest = self._read(session, _oldest_known, "oldest bigint").selectExpr("max(oldest) AS oldest")
        value, timestamp, expired = map(_quoted, self.added)
        return found.crossJoin(oldest).selectExpr(
            "label.*",
            f"IF({_IS_VALID}, version.value, NULL) AS {value}",
            f"IF({_IS_VALID}, version.timestamp, NULL) AS {timestamp}",
            f"coalesce(NOT {_IS_VALID} AND key IS NOT NULL AND at < oldest, false) AS {expired}",
        )

    def _read(
        self, session: SparkSession, batches: Callable[[StateScan, int], Iterable[pa.RecordBatch]], ddl: str
    ) -> DataFrame:
        """Return the rows that `batches` yields for each partition of the store."""
        data = dump_for_workers((self._scan, batches))

        def read(frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            scan, batches = load_in_worker(data)
            for frame in frames:
                for number in frame.column(0).to_pylist():
                    yield from batches(scan, number)

        count = len(self._scan.tasks)
        return session.range(0, count, 1, count).mapInArrow(read, ddl)


def _versions(scan: StateScan, number: int) -> Iterator[pa.RecordBatch]:
    """Yield the versions of a partition; each is readable from `valid_from` up to, excluding, `valid_to`."""
    with scan.opened(number) as store:
        yield from record_batches(_version_columns(store), store.all_versions())


def _oldest_known(scan: StateScan, number: int) -> Iterator[pa.RecordBatch]:
    """Yield the oldest time at which a partition knows all versions, from its clock."""
    store: Any = empty_store(scan.store, scan.config, scan.clocks(number))
    yield pa.RecordBatch.from_arrays([pa.array([store.oldest_known])], names=["oldest"])


def _version_columns(store: Any) -> list[Column]:
    columns, oldest = StateColumns(store), store.oldest_known

    def valid_from(_: Any, version: Any) -> int:  # an earlier version is readable from the oldest known time on
        found: int = version.timestamp if version.valid_to is None else max(version.timestamp, oldest)
        return found

    def valid_to(_: Any, version: Any) -> int:
        return LONG_MAX if version.valid_to is None else version.valid_to

    times = (Column(part.__name__, "bigint", pa.int64(), part, part) for part in (valid_from, valid_to))
    return [columns.key, columns.value, version_time("timestamp"), *times]


def _milliseconds(labels: DataFrame, time: str) -> str:
    """Return the expression of the times of `labels` in ms; raises TypeError for another type."""
    type = dict(labels.dtypes)[time]
    if type == "timestamp":
        return f"unix_millis({_quoted(time)})"
    if type in _INTEGERS:
        return f"CAST({_quoted(time)} AS bigint)"
    raise TypeError(
        f"The column {time!r} of times has the type {type}: expected a timestamp with a zone (the type timestamp), or "
        "whole ms. Cast it."
    )


def _quoted(name: str) -> str:
    """Return the name of a column for an expression of Spark."""
    return "`" + name.replace("`", "``") + "`"
