"""What the broker remembers besides records: cluster id, topics, producer ids, and what clients set for
the broker and for clients.

Contains one SQLite database in the data directory. Not here: what a topic is while the broker runs (topics.py), and
committed offsets, which are in a topic (groups/offsets.py). Format 1 had them in a table here.

Rules: every change is one transaction, so a crash leaves it complete or not started. It is on disk before anything is
done with it, so a loss of power takes none of it, whatever it takes of the records of topics. SQLite has no checksums
of what it stores, so the database has one of all rows, in its application_id, which each commit writes.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from penstock_broker.errors import ApiError, BrokerError
from penstock_broker.wire.error_codes import ErrorCode

_FORMAT: Final = 2
_FORMAT_WITH_OFFSETS: Final = 1
_NO_CHECKSUM: Final = 0  # older databases have none until their first commit
_SCHEMA: Final = """
create table meta (name text primary key, value) without rowid;
create table topic (name text primary key, id blob not null, partitions integer not null, configs text not null)
  without rowid;
"""
_SETTINGS_SCHEMA: Final = """
create table if not exists broker_config (broker text primary key, configs text not null) without rowid;
create table if not exists client_quota (client_id text unique, quotas text not null);
"""  # databases of format 2 that are older lack them


class TopicRow(NamedTuple):
    """A topic as it is stored: name, id, number of partitions, and the configuration that was given."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    configs: dict[str, str]


class OldOffset(NamedTuple):
    """The committed position of a group in one partition, as format 1 kept it."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


TOPICS_DIRECTORY: Final = "topics"
"""Name of the directory beside the database that has the records of topics."""


class MetadataStore:
    """The broker's database.

    Args:
        path: the file; made when absent.

    Raises:
        BrokerError: the file is no database of this broker, or of a version that this one does not know; or it is
            missing beside topics.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._database = sqlite3.connect(path, isolation_level=None)
            self._database.execute("pragma journal_mode=wal")
            self._database.execute("pragma synchronous=full")
            found = self._format()
            if found == 0:
                _check_no_records(path)
                self._create()
            self._check()
            self._database.executescript(_SETTINGS_SCHEMA)
        except sqlite3.DatabaseError as error:
            raise BrokerError(
                f"cannot open the broker's metadata {path}: {error}; restore the file, or remove the data directory to "
                "start over"
            ) from error
        if found not in (0, _FORMAT_WITH_OFFSETS, _FORMAT):
            raise BrokerError(
                f"the broker's metadata {path} has format {found}, this version reads format {_FORMAT}; use the "
                "version that wrote it, or another data directory"
            )

    def _create(self) -> None:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        rows = f"('cluster.id', '{cluster_id}'), ('next.producer.id', 1000), ('leader.epoch', -1)"
        self._database.executescript(
            f"begin; {_SCHEMA} insert into meta values {rows}; pragma user_version={_FORMAT}; commit;"
        )

    def _check(self) -> None:
        found: int = self._database.execute("pragma application_id").fetchone()[0]
        if found not in (_NO_CHECKSUM, self._checksum()):
            raise sqlite3.DatabaseError("its checksum is wrong")
        if found == _NO_CHECKSUM:
            with self._transaction():
                pass  # which writes one

    def _checksum(self) -> int:
        tables = self._database.execute("select name from sqlite_master where type='table' order by name").fetchall()
        checksum = 0
        for (table,) in tables:
            for row in self._database.execute(f'select * from "{table}" order by 1'):
                checksum = crc32c(repr((table, row)).encode(), checksum)
        return (checksum >> 1) or 1  # a signed number of 32 bits, and not _NO_CHECKSUM

    @property
    def has_partition_directories(self) -> bool:
        """Whether each partition of the topics had a directory; once they were made with its first record."""
        return self._database.execute("select 1 from meta where name='partition.directories'").fetchone() is not None

    def note_partition_directories(self) -> None:
        """Remember that each partition of the topics has a directory.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        if not self.has_partition_directories:
            with self._transaction():
                self._database.execute("insert into meta values ('partition.directories', 1)")

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
                self._database.execute(f"pragma application_id={self._checksum()}")
        except sqlite3.Error as error:
            raise ApiError(ErrorCode.kafka_storage_error, f"cannot write the broker's metadata: {error}") from error

    def reserve_producer_ids(self, at_least: int, count: int) -> int:
        """Return the first of some producer ids, none of which was ever reserved before.

        Args:
            at_least: the smallest id that may be returned.
            count: how many follow each other.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        with self._transaction():
            following: int = self._database.execute(
                "update meta set value=max(value+1, ?)+?-1 where name='next.producer.id' returning value+1",
                (at_least, count),
            ).fetchone()[0]
        return following - count

    def next_leader_epoch(self) -> int:
        """Return the epoch of the leader of all partitions from this start on, which no earlier start had.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        with self._transaction():  # all records of older databases are of epoch 0
            found: int = self._database.execute(
                "insert into meta values ('leader.epoch', 1) on conflict (name) do update set value=value+1 "
                "returning value"
            ).fetchone()[0]
        return found

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
        """Forget a topic.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        with self._transaction():
            self._database.execute("delete from topic where name=?", (name,))

    def broker_configs(self) -> dict[str, dict[str, str]]:
        """Return the configurations that clients have set for brokers, by the id of the broker; empty for all."""
        rows = self._database.execute("select broker, configs from broker_config")
        return {broker: json.loads(configs) for broker, configs in rows}

    def save_broker_configs(self, broker: str, configs: Mapping[str, str]) -> None:
        """Store the configuration that clients have set for a broker.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        with self._transaction():
            self._database.execute(
                "insert or replace into broker_config values (?, ?)", (broker, json.dumps(configs, sort_keys=True))
            )

    def client_quotas(self) -> dict[str | None, dict[str, float]]:
        """Return the quotas by client id; those under None are for clients that have none of their own."""
        rows = self._database.execute("select client_id, quotas from client_quota")
        return {client_id: json.loads(quotas) for client_id, quotas in rows}

    def save_client_quotas(self, client_id: str | None, quotas: Mapping[str, float]) -> None:
        """Store the quotas of a client id, or of clients that have none of their own.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        with self._transaction():
            self._database.execute("delete from client_quota where client_id is ?", (client_id,))
            if quotas:
                row = (client_id, json.dumps(quotas, sort_keys=True))
                self._database.execute("insert into client_quota values (?, ?)", row)

    def old_offsets(self) -> list[OldOffset]:
        """Return the committed offsets of a database of format 1; none if they were taken over."""
        if self._format() != _FORMAT_WITH_OFFSETS:
            return []
        rows = self._database.execute(
            "select group_id, topic, partition, offset, leader_epoch, metadata from committed_offset order by group_id"
        )
        return [OldOffset(*row) for row in rows]

    def drop_old_offsets(self) -> None:
        """Bring a database of format 1 to the present one, after its offsets were taken over.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        if self._format() == _FORMAT_WITH_OFFSETS:
            with self._transaction():
                self._database.execute("drop table committed_offset")
                self._database.execute(f"pragma user_version={_FORMAT}")

    def _format(self) -> int:
        found: int = self._database.execute("pragma user_version").fetchone()[0]
        return found

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _check_no_records(path: Path) -> None:
    """Raise BrokerError if there are topics beside a database that is new: nothing would know them any more, and the
    start would remove their records."""
    topics = path.with_name(TOPICS_DIRECTORY)
    if topics.is_dir() and any(topics.iterdir()):
        raise BrokerError(
            f"the broker's metadata {path} is missing or empty, but {topics} has records; restore the file, or remove "
            "the data directory to start over"
        )
