"""The tables that `KStream.to_lake` writes, as users name them, and the interface to an open one.

`iceberg` and `delta` open a table; each needs the extra `lake`, so they are loaded by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, eq=False)
class LakeSink:
    """A table that receives the records of an internal topic.

    The topology writes the topic, and the application copies it to the table.

    Args:
        table: the table.
        key_serde: of the records; None for the configured default.
        value_serde: as for keys.
        partitions: the number of partitions of a new topic; None for `num.partitions`.
    """

    table: Iceberg | Delta
    key_serde: Serde | None
    value_serde: Serde | None
    partitions: int | None = None


class TopicIncarnation(NamedTuple):
    """A topic from its creation to its deletion. The offsets of a recreated topic begin again.

    id: of Kafka; empty if brokers have no ids. partitions: their number.
    """

    topic: str
    id: str
    partitions: int


class LakeConflictError(StreamsError):
    """Another program has changed the table, or created the topic again, since they were read. No row was written.

    What to do: Nothing. The application reads both again and continues with the offsets of the table.
    """


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
