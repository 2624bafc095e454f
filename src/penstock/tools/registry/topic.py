"""The topic `_schemas`: the storage of the registry, in the record format of Confluent's Schema Registry.

This module reads and appends; subjects.py interprets the records.

Rules: the records of a change are one batch, so the log never has a part of them. Each batch is flushed to disk before
the response, because records of other topics refer to the ids of schemas.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from penstock.tools.registry.schemas import RefusedRequestError
from penstock_broker.batch import read_header
from penstock_broker.common.clock import Clock
from penstock_broker.common.log_limits import limit_rate
from penstock_broker.errors import ApiError, BrokerError
from penstock_broker.records import LogRecord, encode_records, read_records
from penstock_broker.topics import Topic, TopicRegistry

NAME: Final = "_schemas"
"""The name of the topic."""

_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(1024 * 1024), "flush.messages": "1"}
_READ_BYTES: Final = 1024 * 1024

_log = limit_rate(logging.getLogger(__name__), up_to=logging.ERROR)

Change = tuple[Mapping[str, Any], Mapping[str, Any] | None]
"""The key of a record and its value; None removes the key."""


class Key(msgspec.Struct, frozen=True):
    """The key of a record."""

    keytype: str
    subject: str | None = None
    version: int = 0


class SchemasTopic:
    """The topic, created if missing, with the current position in it.

    Args:
        topics: the topics of the broker.
        clock: the clock for the records.

    Raises:
        BrokerError: the topic has an unsuitable configuration.
    """

    def __init__(self, topics: TopicRegistry, clock: Clock) -> None:
        self._partition = _topic(topics).partitions[0]
        self._clock = clock
        self._position = 0

    def append(self, changes: Sequence[Change]) -> None:
        """Append records as one batch.

        Raises:
            RefusedRequestError: the write failed.
        """
        self._check_exists()
        now = self._clock.milliseconds()
        records = [LogRecord(at, now, _encoded(key), _encoded(value)) for at, (key, value) in enumerate(changes)]
        try:
            self._partition.append_own(memoryview(encode_records(records)))
        except ApiError as error:
            raise _storage_error(error) from error

    def news(self) -> Iterator[tuple[Key, bytes | None]]:
        """Yield key and value of each record since the last call.

        Raises:
            RefusedRequestError: the read failed.
        """
        self._check_exists()
        try:
            while (batches := self._next_batches()) is not None:
                yield from self._records(batches)
        except ApiError as error:
            raise _storage_error(error) from error

    def _next_batches(self) -> memoryview | None:
        self._position = max(self._position, self._partition.start_offset)
        return memoryview(self._partition.read(self._position, _READ_BYTES)) or None

    def _records(self, batches: memoryview) -> Iterator[tuple[Key, bytes | None]]:
        start = self._position
        while batches:
            header = read_header(batches)
            for record in () if header.is_control else read_records(batches):
                if record.offset >= start and (key := _key_of(record)) is not None:
                    yield key, record.value
            self._position = header.next_offset
            batches = batches[header.size :]

    def _check_exists(self) -> None:
        if self._partition.is_deleted:
            raise RefusedRequestError(
                500, 50001, f"The topic {NAME} was deleted, and all schemas with it. Restart the broker to begin again."
            )


def _topic(topics: TopicRegistry) -> Topic:
    try:
        if not topics.has_partition(NAME, 0):
            return topics.create(NAME, 1, _CONFIGS)
        topic = topics.by_name(NAME)
    except ApiError as error:
        raise BrokerError(f"cannot create the topic {NAME} of the schema registry: {error}") from error
    if len(topic.partitions) != 1 or topic.configs.get("cleanup.policy") != "compact":
        raise BrokerError(
            f"the topic {NAME} has {len(topic.partitions)} partitions and cleanup.policy="
            f"{topic.configs.get('cleanup.policy', 'delete')}; the schema registry needs one partition and compact. "
            "Start the broker without the registry, and delete the topic or copy its records"
        )
    return topic


def _key_of(record: LogRecord) -> Key | None:
    try:
        return msgspec.json.decode(record.key or b"", type=Key)
    except (msgspec.MsgspecError, RecursionError) as error:
        unreadable(record.key, error)
        return None


def unreadable(key: object, error: Exception) -> None:
    """Log a skipped record."""
    _log.error("%s: a record with the key %.200r is not the registry's and is left out: %s", NAME, key, error)


def _encoded(part: Mapping[str, Any] | None) -> bytes | None:
    return None if part is None else json.dumps(part, separators=(",", ":"), ensure_ascii=False).encode()


def _storage_error(error: ApiError) -> RefusedRequestError:
    return RefusedRequestError(500, 50001, f"Error in the backend data store, the topic {NAME}: {error}.")
