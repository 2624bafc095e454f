"""The topics of the broker and their partitions.

Creates, deletes, grows and finds topics, and checks their names. Not here: the log of a partition (partition.py) and
the stored metadata of a topic (metadata_store.py).

Rules: the database determines the existing topics. The name of a topic's directory is the topic's id, so a topic that
is deleted and created again never sees the old records. A start removes the remains of a deletion, and sets records of
unknown topics aside, as Kafka does. The directories of the partitions are created before the database contains the
topic, so a directory that is missing at startup existed before. Only the broker writes internal topics: clients can
read them, but not create, produce to, grow or delete them.
"""

from __future__ import annotations

import logging
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

from penstock_broker.batch import BatchHeader
from penstock_broker.common.clock import Clock
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ApiError, BrokerError
from penstock_broker.log import has_log, make_log
from penstock_broker.metadata_store import TOPICS_DIRECTORY, MetadataStore, TopicRow
from penstock_broker.partition import Partition
from penstock_broker.topic_config import BROKER_KEYS, check_topic_configs, log_config
from penstock_broker.wire.error_codes import ErrorCode

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""Name of the topic with groups and their offsets."""

TRANSACTIONS_TOPIC: Final = "__transaction_state"
"""Name of the topic with the states of transactional ids."""

ALL_BROKERS: Final = ""
"""Broker name in a client-set configuration for all brokers."""

_INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
# Small segments limit the reads at startup, because the last one is never compacted.
_INTERNAL_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(1024 * 1024)}
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_DELETED_SUFFIX: Final = ".deleted"
_STRAY_SUFFIX: Final = ".stray"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic.

    Args:
        name: its name.
        topic_id: its id, never used again.
        configs: its own configuration, without defaults.
        partitions: its partitions, by number.
    """

    name: str
    topic_id: uuid.UUID
    configs: Mapping[str, str]
    partitions: list[Partition]

    @property
    def is_internal(self) -> bool:
        """Whether only the broker itself writes to it."""
        return self.name in _INTERNAL_TOPICS

    def check_not_internal(self) -> None:
        """Check that clients may change the topic.

        Raises:
            ApiError: INVALID_TOPIC_EXCEPTION.
        """
        _check_not_internal(self.name)


class TopicRegistry:
    """All topics of the broker.

    Args:
        config: the broker's settings.
        store: the broker's database.
        clock: the machine's clock.

    Raises:
        BrokerError: a log is damaged in a way that no crash can cause.
    """

    def __init__(self, config: BrokerConfig, store: MetadataStore, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self._directory = config.data_dir / TOPICS_DIRECTORY
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._name_by_metrics_name: dict[str, str] = {}
        self._used_partitions = 0
        self._revision = 0
        self._dynamic_defaults = store.broker_configs()
        self._leader_epoch = store.next_leader_epoch()
        self._directory.mkdir(exist_ok=True)
        rows = store.topics()
        self._remove_orphans({row.topic_id.hex for row in rows})
        for row in rows:
            self._report_missing(row)
            self._add(row)
        store.note_partition_directories()

    def _remove_orphans(self, known: set[str]) -> None:
        for path in self._directory.iterdir():
            if path.name in known or path.suffix == _STRAY_SUFFIX:
                continue
            size = sum(file.stat().st_size for file in path.glob("*/*.log"))
            if path.suffix == _DELETED_SUFFIX or not size:
                shutil.rmtree(path, ignore_errors=True)
                continue
            stray = path.rename(path.with_suffix(_STRAY_SUFFIX))
            _log.error(
                "%s has %d bytes of records of a topic that the broker's metadata do not know: it is kept as %s. "
                "If metadata.sqlite was replaced, restore the right one and the directory's name; else delete it",
                path, size, stray,
            )  # fmt: skip

    def _report_missing(self, row: TopicRow) -> None:
        missing = [index for index in range(row.partitions) if not has_log(self._directory_of(row, index))]
        for index in missing if self._store.has_partition_directories else ():
            _log.error(
                "%s-%d: all of its records are missing, because %s is gone or has no *.log file. To have them back, "
                "stop the broker and restore that directory",
                row.name, index, self._directory_of(row, index),
            )  # fmt: skip
        self._make_logs(row, (index for index in missing if not self._directory_of(row, index).exists()))

    def _directory_of(self, row: TopicRow, index: int) -> Path:
        return self._directory / row.topic_id.hex / str(index)

    def _make_logs(self, row: TopicRow, indexes: Iterable[int]) -> None:
        for index in indexes:
            make_log(self._directory_of(row, index))

    def _add(self, row: TopicRow) -> Topic:
        partitions = self._open(row, range(row.partitions))
        topic = Topic(row.name, row.topic_id, row.configs, partitions)
        self._by_name[row.name] = self._by_id[row.topic_id] = topic
        self._name_by_metrics_name[_metrics_name(row.name)] = row.name
        self._count_partitions(topic, len(partitions))
        return topic

    def _count_partitions(self, topic: Topic, more: int) -> None:
        self._revision += 1
        if not topic.is_internal:
            self._used_partitions += more

    def _open(self, row: TopicRow, indexes: range) -> list[Partition]:
        config = log_config(self.default_configs | row.configs)
        return [
            Partition(self._directory_of(row, index), row.name, index, config, self._clock, self._leader_epoch)
            for index in indexes
        ]

    @property
    def default_configs(self) -> dict[str, str]:
        """Default topic configuration, as far as it differs from Kafka's."""
        configs = self._config.topic_defaults
        for broker in sorted(self._dynamic_defaults):  # values for all brokers come before values for one
            configs |= {BROKER_KEYS[name]: value for name, value in self._dynamic_defaults[broker].items()}
        return configs

    def dynamic_defaults(self, broker: str) -> Mapping[str, str]:
        """Return the client-set topic defaults, by the broker's names of the keys.

        Args:
            broker: the broker's id, or ALL_BROKERS.
        """
        return self._dynamic_defaults.get(broker, {})

    def set_dynamic_defaults(self, broker: str, configs: dict[str, str]) -> None:
        """Replace the client-set topic defaults.

        Args:
            broker: the broker's id, or ALL_BROKERS.
            configs: checked values by the broker's names of the keys.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR; nothing was changed.
        """
        self._store.save_broker_configs(broker, configs)
        self._dynamic_defaults[broker] = configs
        for topic in self._by_name.values():
            self._apply_configs(topic)

    def set_configs(self, topic: Topic, configs: dict[str, str]) -> None:
        """Replace the configuration of a topic.

        Args:
            topic: the topic.
            configs: checked values, without defaults.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR; nothing was changed.
        """
        self._store.save_topic(TopicRow(topic.name, topic.topic_id, len(topic.partitions), configs))
        changed = replace(topic, configs=configs)
        self._by_name[topic.name] = self._by_id[topic.topic_id] = changed
        self._apply_configs(changed)

    def _apply_configs(self, topic: Topic) -> None:
        config = log_config({**self.default_configs, **topic.configs})
        for partition in topic.partitions:
            partition.log.config = config

    @property
    def revision(self) -> int:
        """A number that grows with each added or removed topic or partition."""
        return self._revision

    def all(self) -> list[Topic]:
        """Return all topics, sorted by name."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    def by_name(self, name: str) -> Topic:
        """Return the topic with a name.

        Raises:
            ApiError: INVALID_TOPIC_EXCEPTION or UNKNOWN_TOPIC_OR_PARTITION.
        """
        topic = self._by_name.get(name)
        if topic is None:
            check_topic_name(name)
            raise ApiError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
        return topic

    def by_id(self, topic_id: uuid.UUID) -> Topic:
        """Return the topic with an id.

        Raises:
            ApiError: UNKNOWN_TOPIC_ID.
        """
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.unknown_topic_id, f"there is no topic with the id {topic_id}")
        return topic

    def partition(self, name: str, index: int) -> Partition:
        """Return a partition by topic name.

        Raises:
            ApiError: INVALID_TOPIC_EXCEPTION or UNKNOWN_TOPIC_OR_PARTITION.
        """
        return partition_of(self.by_name(name), index)

    def has_partition(self, name: str, index: int) -> bool:
        """Return whether a partition exists."""
        topic = self._by_name.get(name)
        return topic is not None and 0 <= index < len(topic.partitions)

    def partitions(self) -> Iterator[Partition]:
        """Yield the partitions of all topics."""
        return chain.from_iterable(topic.partitions for topic in self._by_name.values())

    def check_new(self, name: str, partitions: int | None, configs: Mapping[str, str | None]) -> TopicRow:
        """Check whether a topic can be created, and return its database row.

        Args:
            name: its name.
            partitions: number of partitions; None for the broker's default.
            configs: its configuration.

        Raises:
            ApiError: the name is taken or illegal, or the number or the configuration is rejected.
        """
        check_topic_name(name)
        _check_not_internal(name)
        if name in self._by_name:
            raise ApiError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        self._check_collision(name)
        count = self._config.num_partitions if partitions is None else partitions
        if count < 1:
            raise ApiError(
                ErrorCode.invalid_partitions, f"topic {name!r} cannot have {count} partitions; it needs at least 1"
            )
        self._check_room(name, count)
        return TopicRow(name, uuid.uuid4(), count, check_topic_configs(configs, self.default_configs))

    def create(self, name: str, partitions: int | None, configs: Mapping[str, str | None]) -> Topic:
        """Create a topic and return it.

        Args:
            name: its name.
            partitions: number of partitions; None for the broker's default.
            configs: its configuration.

        Raises:
            ApiError: the name is taken or illegal, or the number or the configuration is rejected.
        """
        return self.create_checked(self.check_new(name, partitions, configs))

    def create_checked(self, row: TopicRow) -> Topic:
        """Create a topic and return it.

        Args:
            row: its row from check_new.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR; nothing was created.
        """
        self._save_new_partitions(row, range(row.partitions))
        return self._add(row)

    def _save_new_partitions(self, row: TopicRow, indexes: range) -> None:
        try:
            self._make_logs(row, indexes)
        except OSError as error:
            raise ApiError(
                ErrorCode.kafka_storage_error, f"cannot make {error.filename} for topic {row.name!r}: {error.strerror}"
            ) from error
        self._store.save_topic(row)

    def internal_topic(self, name: str) -> Topic:
        """Return an internal topic, creating it if it does not exist.

        It has one partition, because there is one broker.

        Args:
            name: its name, OFFSETS_TOPIC or TRANSACTIONS_TOPIC.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        topic = self._by_name.get(name)
        if topic is not None:
            return topic
        return self.create_checked(TopicRow(name, uuid.uuid4(), 1, dict(_INTERNAL_CONFIGS)))

    def read_internal(self, name: str, take: Callable[[BatchHeader, memoryview], None]) -> None:
        """Read the log of an internal topic at startup, if the topic exists.

        Args:
            name: its name, OFFSETS_TOPIC or TRANSACTIONS_TOPIC.
            take: called with header and bytes of each batch; may raise an ApiError for an unreadable batch.

        Raises:
            BrokerError: it cannot be read.
        """
        topic = self._by_name.get(name)
        if topic is None:
            return
        try:
            for header, batch in topic.partitions[0].batches():
                take(header, batch)
        except ApiError as error:
            raise BrokerError(
                f"cannot read the topic {name}: {error}; restore the file, or remove the data directory to start over"
            ) from error

    def _check_collision(self, name: str) -> None:
        other = self._name_by_metrics_name.get(_metrics_name(name))
        if other is not None:
            raise ApiError(
                ErrorCode.invalid_topic_exception,
                f"Topic '{name}' collides with existing topic: {other} ('.' and '_' count as the same)",
            )

    def _check_room(self, name: str, more: int) -> None:
        if self._used_partitions + more > self._config.max_partitions:
            raise ApiError(
                ErrorCode.policy_violation,
                f"{more} more partitions for topic {name!r} would exceed the broker's limit of "
                f"{self._config.max_partitions} (max_partitions; {self._used_partitions} are in use)",
            )

    def delete(self, topic: Topic) -> None:
        """Delete a topic and its records.

        Args:
            topic: the topic.

        Raises:
            ApiError: INVALID_TOPIC_EXCEPTION for an internal topic, KAFKA_STORAGE_ERROR; nothing was deleted.
        """
        topic.check_not_internal()
        self._store.delete_topic(topic.name)
        del self._by_name[topic.name], self._by_id[topic.topic_id]
        del self._name_by_metrics_name[_metrics_name(topic.name)]
        self._count_partitions(topic, -len(topic.partitions))
        for partition in topic.partitions:
            partition.close_deleted()
        self._remove_directory(topic)

    def _remove_directory(self, topic: Topic) -> None:
        path = self._directory / topic.topic_id.hex
        # If the broker is killed before the removal is finished, the next start finds the directory by this name.
        deleted = path.with_suffix(_DELETED_SUFFIX)
        with suppress(OSError):
            path.rename(deleted)
        shutil.rmtree(deleted, ignore_errors=True)

    def check_growth(self, topic: Topic, count: int) -> None:
        """Check whether the partition count of a topic can be increased.

        Args:
            topic: the topic.
            count: the new number of partitions.

        Raises:
            ApiError: INVALID_PARTITIONS if it is not larger than the current number, POLICY_VIOLATION above the
                broker's limit, INVALID_TOPIC_EXCEPTION for an internal topic.
        """
        topic.check_not_internal()
        have = len(topic.partitions)
        if count <= have:
            raise ApiError(
                ErrorCode.invalid_partitions, f"Topic {topic.name} has {have} partitions; {count} would not be more."
            )
        self._check_room(topic.name, count - have)

    def grow(self, topic: Topic, count: int) -> None:
        """Increase the partition count of a topic.

        Args:
            topic: the topic.
            count: the new number of partitions.

        Raises:
            ApiError: as by check_growth, or KAFKA_STORAGE_ERROR; the topic is unchanged.
        """
        self.check_growth(topic, count)
        row = TopicRow(topic.name, topic.topic_id, count, dict(topic.configs))
        have = len(topic.partitions)
        self._save_new_partitions(row, range(have, count))
        topic.partitions.extend(self._open(row, range(have, count)))
        self._count_partitions(topic, count - have)

    def close(self) -> None:
        """Close the files of all partitions."""
        for partition in self.partitions():
            partition.close()


def partition_of(topic: Topic, index: int) -> Partition:
    """Return a partition of a topic.

    Raises:
        ApiError: UNKNOWN_TOPIC_OR_PARTITION.
    """
    if not 0 <= index < len(topic.partitions):
        raise ApiError(
            ErrorCode.unknown_topic_or_partition,
            f"topic {topic.name!r} has partitions 0 to {len(topic.partitions) - 1}, not {index}",
        )
    return topic.partitions[index]


def _metrics_name(name: str) -> str:
    # Kafka's metrics write '.' as '_', so Kafka rejects two names that differ only in that.
    return name.replace(".", "_")


def _check_not_internal(name: str) -> None:
    if name in _INTERNAL_TOPICS:
        raise ApiError(ErrorCode.invalid_topic_exception, f"topic {name!r} is internal: only the broker changes it")


def check_topic_name(name: str) -> None:
    """Check a topic's name by Kafka's rules.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION.
    """
    if name in (".", "..") or not _LEGAL_NAME.fullmatch(name):
        raise ApiError(
            ErrorCode.invalid_topic_exception,
            f"{name[:260]!r} is not a topic name: it needs 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', "
            "and must not be '.' or '..'",
        )


def check_replication_factor(replicas: int) -> None:
    """Check the number of replicas of a new topic.

    Args:
        replicas: the number; -1 for the broker's default.

    Raises:
        ApiError: INVALID_REPLICATION_FACTOR.
    """
    if replicas not in (1, -1):
        raise ApiError(
            ErrorCode.invalid_replication_factor,
            f"Unable to replicate the partition {replicas} time(s): there is 1 broker",
        )
