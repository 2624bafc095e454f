"""Features: the values of versioned stores at the times of labels (a point-in-time join).

A label is a row of a frame with a key and a time. A feature is the value that its store had for the key at that time,
as a stream-table join with that store would have found it. So a model is trained with the values that the topology
serves.

Rules:
- A label never gets a value that began after its time.
- Labels are read in batches. The lookups of a batch are in the order of keys and times.
- A store keeps old versions for its history retention. The value of an older label may be deleted, so it is marked as
  expired unless the latest version is its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.errors import InvalidStateStoreError, SerializationError, UnsupportedOperationError
from penstock.state.api import StateStore, StoreBuilder
from penstock.state.query.arrow_frames import reader_of, times_of
from penstock.state.query.columns import Column, StateColumns, object_of, time_column
from penstock.state.query.queryable import check_known
from penstock.state.suppliers import VersionedBytesStoreSupplier
from penstock.state.versioned_api import VersionedRecord

_ROWS: Final = 10_000
"""Labels of one batch."""

Keys = str | Mapping[str, str]
"""The column of the keys, or that of each store by its name."""


class Features:
    """Versioned stores whose values are the features of labels; see the module.

    Args:
        names: the stores.
        partitions: returns the partitions of each store, by its name.
    """

    def __init__(self, names: Sequence[str], partitions: Callable[[], Mapping[str, Sequence[StateStore]]]) -> None:
        self._names = names
        self._partitions = partitions

    def as_of(self, labels: Any, time: str = "timestamp", key: Keys = "key") -> Any:
        """Return the labels with the values that the stores had for their keys at their times.

        Each store adds three columns: its name, with the value; `<name>_timestamp`, the time from which the value is
        valid; `<name>_expired`, whether the label is older than the history of the store, so that a value may be
        missing. The value is null if the key had no value at that time.

        Args:
            labels: a frame of pandas, polars, pyarrow or DuckDB, or on Spark also a DataFrame.
            time: the column of the times: a timestamp (without a zone in UTC), or ms.
            key: the column of the keys, in the form of `streams.table`; or a dict with the column for each store.

        Returns:
            A pyarrow.Table, with the labels in their order; for a DataFrame of Spark a DataFrame, in no order.

        Raises:
            TypeError: `labels` is no frame, or the times have another type.
            ValueError: the frame lacks a column, has one with the name of a feature, or keys have another type or
                form.
            InvalidStateStoreError: a store is not readable now.
            UnsupportedOperationError: the keys of a store have fields.
        """
        return self.batches(labels, time, key).read_all()

    def batches(self, labels: Any, time: str = "timestamp", key: Keys = "key") -> pa.RecordBatchReader:
        """Return a reader of the rows of `as_of`, for labels that do not fit into memory.

        Each batch is made when it is read. All batches show the stores at the time of this call; if the application
        ends or moves a store meanwhile, the reader raises InvalidStateStoreError.
        """
        reader = reader_of(labels, "pyarrow.table() makes a frame of lists")
        stores = [_Lookup.of(name, stores) for name, stores in self._partitions().items()]
        added = [field for store in stores for field in store.fields]
        keys = key_columns(self._names, key)
        check_label_columns(reader.schema.names, [time, *keys.values()], [field.name for field in added])
        schema = pa.schema([*reader.schema, *added], reader.schema.metadata)

        def joined() -> Iterator[pa.RecordBatch]:
            for batch in _in_parts(reader):
                times = times_of(time, batch.column(time))
                found = [each for store in stores for each in store.columns(batch, keys[store.name], times)]
                yield pa.RecordBatch.from_arrays([*batch.columns, *found], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, joined())


def versioned_stores(names: Sequence[str], known: Mapping[str, StoreBuilder]) -> tuple[str, ...]:
    """Return the names of the stores of features, each once.

    Args:
        names: the requested stores.
        known: the builders of all stores of the topology.

    Raises:
        TypeError: `names` is a single name.
        ValueError: it is empty.
        UnknownStateStoreError: the topology has no store of that name.
        InvalidStateStoreError: a store keeps no versions.
    """
    if isinstance(names, str):
        raise TypeError(f"Expected a list of stores, got {names!r}: write features([{names!r}]).")
    if not names:
        raise ValueError("Expected the names of one or more versioned stores, got an empty list.")
    for name in names:
        check_known(name, known)
        if not isinstance(known[name].supplier, VersionedBytesStoreSupplier):
            raise InvalidStateStoreError(
                f"Store {name} is a {known[name].kind} store, which keeps no earlier values of a key. Features need a "
                f"versioned store: Materialized.as_(Stores.persistent_versioned_key_value_store({name!r}, "
                "history_retention_ms))."
            )
    return tuple(dict.fromkeys(names))


def key_columns(names: Sequence[str], key: Keys) -> Mapping[str, str]:
    """Return the column of the keys of each store; raises ValueError if `key` has another store, or lacks one."""
    if isinstance(key, str):
        return dict.fromkeys(names, key)
    if key.keys() != set(names):
        raise ValueError(f"key has columns for {_listed(key)}: expected one for each of {_listed(names)}.")
    return key


def check_label_columns(names: Sequence[str], needed: Sequence[str], added: Sequence[str]) -> None:
    """Raise ValueError unless labels with the columns `names` can be joined.

    Args:
        names: the columns of the labels.
        needed: the columns of times and keys.
        added: the columns of the features.
    """
    for column in needed:
        if names.count(column) != 1:
            problem = "no column" if column not in names else "several columns"
            raise ValueError(
                f"The labels have {problem} {column!r}: they have {_listed(names)}. Name the columns with time= and "
                "key=."
            )
    if taken := [column for column in added if column in names]:
        raise ValueError(f"The labels already have {_listed(taken)}, which the features add: rename those columns.")


def object_of_key(name: str, store: Any) -> Callable[[Any], Any]:
    """Return a function from an entry of the key column to a key of the store `name`.

    Raises UnsupportedOperationError if the keys have fields.
    """
    found = object_of(store.key_serde)
    if found is None:
        raise UnsupportedOperationError(
            f"Store {name} has keys with fields ({store.key_serde.type.__name__}), which labels cannot have: give the "
            "table a key of one field, such as a text or a number."
        )
    return found


def added_columns(name: str) -> tuple[str, str, str]:
    """Return the columns that the store `name` adds: value, time of the value, and whether the label is expired."""
    return name, f"{name}_timestamp", f"{name}_expired"


def version_time(name: str) -> Column:
    """Return the column of the time from which a version is valid."""
    return time_column(name, lambda _, version: version.timestamp)


@dataclass(frozen=True)
class _Lookup:
    """Lookups in the partitions of one store.

    Args:
        name: of the store.
        stores: its partitions.
        key: the column of its keys.
        key_of: returns the key of an entry of that column.
        added: the columns of the values, and of their times.
    """

    name: str
    stores: Sequence[Any]
    key: Column
    key_of: Callable[[Any], Any]
    added: tuple[Column, Column]

    @staticmethod
    def of(name: str, stores: Sequence[Any]) -> _Lookup:
        columns, (value, timestamp, _) = StateColumns(stores[0]), added_columns(name)
        added = columns.value._replace(name=value), version_time(timestamp)
        return _Lookup(name, stores, columns.key, object_of_key(name, stores[0]), added)

    @property
    def fields(self) -> list[pa.Field]:
        """The fields that the store adds to labels."""
        types = (*(each.type for each in self.added), pa.bool_())
        return [pa.field(name, type) for name, type in zip(added_columns(self.name), types, strict=True)]

    def columns(self, batch: pa.RecordBatch, key: str, times: Sequence[int | None]) -> Iterator[pa.Array]:
        """Yield the columns that the store adds to a batch of labels with `times`."""
        keys = self._keys(key, batch.column(key))
        found: list[VersionedRecord | None] = [None] * len(keys)
        complete = [
            (each, time, row)
            for row, (each, time) in enumerate(zip(keys, times, strict=True))
            if each is not None and time is not None
        ]
        for each, time, row in sorted(complete):
            found[row] = self._version(self._key(key, each), time)
        oldest = max(store.oldest_known for store in self.stores)  # after the lookups: history expires meanwhile
        expired = [False] * len(keys)
        for _, time, row in complete:
            expired[row] = found[row] is None and time < oldest
        for column in self.added:
            values = [None if version is None else column.of(None, version) for version in found]
            yield pa.array(values, column.type)
        yield pa.array(expired, pa.bool_())

    def _keys(self, name: str, column: pa.Array) -> list[Any]:
        try:
            return list(column.cast(self.key.type).to_pylist())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ValueError(
                f"The column {name!r} of keys has the type {column.type}, and store {self.name} has keys of "
                f"{self.key.type}: {error}"
            ) from error

    def _key(self, column: str, entry: Any) -> Any:
        try:
            return self.key_of(entry)
        except (ValueError, SerializationError) as error:
            raise ValueError(
                f"The column {column!r} of keys has {entry!r:.200}, which is no key of store {self.name}: {error}"
            ) from error

    def _version(self, key: Any, time: int) -> VersionedRecord | None:
        found = (store.get_version(key, time) for store in self.stores)
        return next((version for version in found if version is not None), None)


def _in_parts(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of a limited number of rows."""
    for batch in reader:
        for start in range(0, len(batch), _ROWS):
            yield batch.slice(start, _ROWS)


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "no columns"
