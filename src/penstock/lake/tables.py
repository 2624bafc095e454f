"""The tables that `to_lake` writes, as users name them, and the interface to an open one.

`iceberg` and `delta` open a table; each needs the extra `lake`, so they are loaded by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.errors import StreamsError
from penstock.serdes import Serde

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Iceberg:
    """A table of Apache Iceberg. It and its namespace are created if they do not exist.

    Args:
        name: its name after its namespace, such as `shop.orders`.
        catalog: the name of its catalog in the configuration of PyIceberg.
        properties: properties of the catalog, such as `uri`, that precede those of PyIceberg's configuration.
    """

    name: str
    catalog: str = "default"
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return f"the Iceberg table {self.name} of the catalog {self.catalog}"


@dataclass(frozen=True)
class Delta:
    """A table of Delta Lake. It is created if it does not exist.

    Args:
        uri: its directory, such as `s3://lake/orders`.
        storage_options: options of the storage, such as credentials, as in the package deltalake.
    """

    uri: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return f"the Delta table {self.uri}"


class LakeMode(Enum):
    """How records become rows of a table.

    APPEND: each record is a row. UPSERT: a record replaces the row of its key; without a value, it deletes the row.
    """

    APPEND = "append"
    UPSERT = "upsert"


@dataclass(frozen=True, eq=False)
class LakeSink:
    """A table that receives the records of an internal topic.

    The topology writes the topic, and the application copies it to the table.

    Args:
        table: the table.
        key_serde: of the records; None for the configured default.
        value_serde: as for keys.
        partitions: the number of partitions of a new topic; None for `num.partitions`.
        mode: how records become rows.
        node: the name of the sink, and the line of the program that made it.
    """

    table: Iceberg | Delta
    key_serde: Serde | None
    value_serde: Serde | None
    partitions: int | None = None
    mode: LakeMode = LakeMode.APPEND
    node: str = ""


class TopicIncarnation(NamedTuple):
    """A topic from its creation to its deletion. The offsets of a recreated topic begin again.

    id: of Kafka; empty if brokers have no ids. partitions: their number.
    """

    topic: str
    id: str
    partitions: int


class LakeTableError(StreamsError):
    """A table of a lake cannot be opened or written.

    What to do: Follow the message, which names the sink with its line of the program, the table and the cause. The
    records remain in the topic of the sink, and the next start continues at the offsets in the table.
    """


class LakeConflictError(LakeTableError):
    """Another program has changed the table, or created the topic again, since they were read. No row was written.

    What to do: Nothing. The application reads both again and continues with the offsets of the table.
    """


class KeyedRows(NamedTuple):
    """The last record of each key in a commit.

    rows: the new rows. deleted: the key columns of the rows to delete. keys: the names of the key columns.
    """

    rows: pa.Table
    deleted: pa.Table
    keys: tuple[str, ...]


class LakeTable(Protocol):
    """A table with the offsets of the records that it contains."""

    def refresh(self) -> None:
        """Read the newest version of the table."""
        ...

    def offsets(self, source: TopicIncarnation) -> Mapping[int, int]:
        """Return the next offset to copy of each partition of `source`, as of the version that was read.

        Partitions without records in the table are omitted.
        """
        ...

    def append(self, rows: pa.Table, source: TopicIncarnation, offsets: Mapping[int, int]) -> None:
        """Add `rows` and replace the offsets of `source`, in one commit on top of the version that was read.

        Columns that the table lacks are added to it.

        Raises:
            LakeConflictError: the table has another version now; nothing was written.
            StreamsError: the table has a column of another type.
        """
        ...

    def upsert(self, changes: KeyedRows, source: TopicIncarnation, offsets: Mapping[int, int]) -> None:
        """Replace or delete the rows of the keys of `changes`, and replace the offsets, as `append` does.

        Raises:
            LakeConflictError: the table has another version now; nothing was written.
            StreamsError: the table lacks a key column, or has a column of another type.
        """
        ...
