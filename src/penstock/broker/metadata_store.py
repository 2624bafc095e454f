"""What the broker remembers besides records: cluster id, topics, committed offsets, producer ids.

Here lives one SQLite database in the data directory. Not here: what a topic is while the broker runs (topics.py).

Rules: every change is one transaction, so a crash leaves it complete or not started. As with the log, a process that
dies loses nothing; a power failure may lose the last commits but not harm the database.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from penstock.broker.errors import ApiError, BrokerError

_FORMAT: Final = 1
_SCHEMA: Final = """
create table meta (name text primary key, value) without rowid;
create table topic (name text primary key, id blob not null, partitions integer not null, configs text not null)
  without rowid;
create table committed_offset (
  group_id text, topic text, partition integer, offset integer not null, leader_epoch integer not null, metadata text,
  primary key (group_id, topic, partition)) without rowid;
"""


class TopicRow(NamedTuple):
    """A topic as it is stored: name, id, number of partitions, and the configuration that was given."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    configs: dict[str, str]


class CommittedOffset(NamedTuple):
    """The committed position of a group in one partition."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class MetadataStore:
    """The broker's database.

    Args:
        path: the file; made when absent.

    Raises:
        BrokerError: the file is no database of this broker, or of a version that this one does not know.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._database = sqlite3.connect(path, isolation_level=None)
            self._database.execute("pragma journal_mode=wal")
            self._database.execute("pragma synchronous=normal")
            found: int = self._database.execute("pragma user_version").fetchone()[0]
            if found == 0:
                self._create()
        except sqlite3.DatabaseError as error:
            raise BrokerError(
                f"cannot open the broker's metadata {path}: {error}; restore the file, or remove the data directory to "
                "start over"
            ) from error
        if found not in (0, _FORMAT):
            raise BrokerError(
                f"the broker's metadata {path} has format {found}, this version reads format {_FORMAT}; use the "
                "version that wrote it, or another data directory"
            )

    def _create(self) -> None:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._database.executescript(
            f"begin; {_SCHEMA} insert into meta values ('cluster.id', '{cluster_id}'), ('next.producer.id', 1000); "
            f"pragma user_version={_FORMAT}; commit;"
        )

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, drawn when the data directory was made."""
        value: str = self._database.execute("select value from meta where name='cluster.id'").fetchone()[0]
        return value

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with self._database:
                self._database.execute("begin immediate")
                yield
        except sqlite3.Error as error:
            raise ApiError(ErrorCode.kafka_storage_error, f"cannot write the broker's metadata: {error}") from error

    def next_producer_id(self) -> int:
        """Return a producer id that was never handed out before.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        with self._transaction():
            value: int = self._database.execute(
                "update meta set value=value+1 where name='next.producer.id' returning value"
            ).fetchone()[0]
        return value

    def topics(self) -> list[TopicRow]:
        """Return all topics, by name."""
        rows = self._database.execute("select name, id, partitions, configs from topic order by name")
        return [TopicRow(name, uuid.UUID(bytes=key), count, json.loads(text)) for name, key, count, text in rows]

    def save_topic(self, topic: TopicRow) -> None:
        """Store a new topic, or a new number of partitions or configuration of one.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        configs = json.dumps(topic.configs, sort_keys=True)
        with self._transaction():
            self._database.execute(
                "insert or replace into topic values (?, ?, ?, ?)",
                (topic.name, topic.topic_id.bytes, topic.partitions, configs),
            )

    def delete_topic(self, name: str) -> None:
        """Forget a topic and the offsets that groups committed for it.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        with self._transaction():
            self._database.execute("delete from topic where name=?", (name,))
            self._database.execute("delete from committed_offset where topic=?", (name,))

    def commit_offsets(self, group_id: str, offsets: Iterable[CommittedOffset]) -> None:
        """Store positions of a group, all or none.

        Args:
            group_id: the group.
            offsets: its positions.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        with self._transaction():
            self._database.executemany(
                "insert or replace into committed_offset values (?, ?, ?, ?, ?, ?)",
                [(group_id, *offset) for offset in offsets],
            )

    def committed_offsets(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        """Return all positions of a group, by topic and partition.

        Args:
            group_id: the group.
        """
        rows = self._database.execute(
            "select topic, partition, offset, leader_epoch, metadata from committed_offset where group_id=? "
            "order by topic, partition",
            (group_id,),
        )
        return {(row[0], row[1]): CommittedOffset(*row) for row in rows}

    def close(self) -> None:
        """Close the database."""
        self._database.close()
