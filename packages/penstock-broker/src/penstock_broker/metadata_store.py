"""Persistent metadata: cluster id, topics, producer ids, and client-set configurations and quotas.

Contains one SQLite database in the data directory. Not here: the state of a topic while the broker runs (topics.py),
and committed offsets, which are in a topic (groups/offsets.py). Format 1 had them in a table here.

Rules: every change is one transaction, so a crash leaves it complete or not started. It is on disk before it takes
effect, so a power failure loses no change, even if it loses records of topics. SQLite has no checksums of its contents,
so the database has a checksum of all rows in its application_id, which each commit writes.
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
_NO_CHECKSUM: Final = 0  # older databases have no checksum until their first commit
_SCHEMA: Final = """
create table meta (name text primary key, value) without rowid;
create table topic (name text primary key, id blob not null, partitions integer not null, configs text not null)
  without rowid;
"""
_SETTINGS_SCHEMA: Final = """
create table if not exists broker_config (broker text primary key, configs text not null) without rowid;
create table if not exists client_quota (client_id text unique, quotas text not null);
"""  # missing in older databases of format 2


class TopicRow(NamedTuple):
    """A stored topic: name, id, number of partitions, and its own configuration."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    configs: dict[str, str]


class OldOffset(NamedTuple):
    """The committed position of a group in one partition, as stored by format 1."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


TOPICS_DIRECTORY: Final = "topics"
"""Name of the directory next to the database with the records of topics."""


class MetadataStore:
    """The broker's database.

    Args:
        path: the file; created if missing.

    Raises:
        BrokerError: the file is not a database of this broker, or of an unknown version; or it is missing although
            topics exist.
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
                pass  # the transaction writes one

    def _checksum(self) -> int:
        tables = self._database.execute("select name from sqlite_master where type='table' order by name").fetchall()
        checksum = 0
        for (table,) in tables:
            for row in self._database.execute(f'select * from "{table}" order by 1'):
                checksum = crc32c(repr((table, row)).encode(), checksum)
        return (checksum >> 1) or 1  # a signed number of 32 bits, and not _NO_CHECKSUM

    @property
    def has_partition_directories(self) -> bool:
        """Whether each partition of the topics has a directory.

        Older versions created it with the first record.
        """
        return self._database.execute("select 1 from meta where name='partition.directories'").fetchone() is not None

    def note_partition_directories(self) -> None:
        """Record that each partition of the topics has a directory.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        if not self.has_partition_directories:
            with self._transaction():
                self._database.execute("insert into meta values ('partition.directories', 1)")

    @property
    def cluster_id(self) -> str:
        """The cluster id, generated with the data directory."""
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
        """Return the first of a range of producer ids that were never reserved before.

        Args:
            at_least: lower bound of the ids.
            count: number of ids in the range.

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
        """Return a new leader epoch for all partitions, which no earlier start had.

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
        """Return all topics, sorted by name."""
        rows = self._database.execute("select name, id, partitions, configs from topic order by name")
        return [TopicRow(name, uuid.UUID(bytes=key), count, json.loads(text)) for name, key, count, text in rows]

    def save_topic(self, topic: TopicRow) -> None:
        """Store a new topic, or a changed partition count or configuration.

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
        """Delete a topic.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        with self._transaction():
            self._database.execute("delete from topic where name=?", (name,))

    def broker_configs(self) -> dict[str, dict[str, str]]:
        """Return the client-set configurations by broker id; the empty id is for all brokers."""
        rows = self._database.execute("select broker, configs from broker_config")
        return {broker: json.loads(configs) for broker, configs in rows}

    def save_broker_configs(self, broker: str, configs: Mapping[str, str]) -> None:
        """Store the client-set configuration of a broker.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        with self._transaction():
            self._database.execute(
                "insert or replace into broker_config values (?, ?)", (broker, json.dumps(configs, sort_keys=True))
            )

    def client_quotas(self) -> dict[str | None, dict[str, float]]:
        """Return the quotas by client id; the key None holds the default quotas."""
        rows = self._database.execute("select client_id, quotas from client_quota")
        return {client_id: json.loads(quotas) for client_id, quotas in rows}

    def save_client_quotas(self, client_id: str | None, quotas: Mapping[str, float]) -> None:
        """Store the quotas of a client id, or the default quotas.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        with self._transaction():
            self._database.execute("delete from client_quota where client_id is ?", (client_id,))
            if quotas:
                row = (client_id, json.dumps(quotas, sort_keys=True))
                self._database.execute("insert into client_quota values (?, ?)", row)

    def old_offsets(self) -> list[OldOffset]:
        """Return the committed offsets of a database of format 1, if not migrated yet."""
        if self._format() != _FORMAT_WITH_OFFSETS:
            return []
        rows = self._database.execute(
            "select group_id, topic, partition, offset, leader_epoch, metadata from committed_offset order by group_id"
        )
        return [OldOffset(*row) for row in rows]

    def drop_old_offsets(self) -> None:
        """Upgrade a database of format 1 after the migration of its offsets.

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
    """Raise BrokerError if a new database has existing topics next to it.

    The broker would not know these topics, and would set their records aside at startup.
    """
    topics = path.with_name(TOPICS_DIRECTORY)
    if topics.is_dir() and any(topics.iterdir()):
        raise BrokerError(
            f"the broker's metadata {path} is missing or empty, but {topics} has records; restore the file, or remove "
            "the data directory to start over"
        )
