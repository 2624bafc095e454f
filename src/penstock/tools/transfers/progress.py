"""The progress of a transfer: the last value of each key of a compacted topic.

It is written in the transactions of the output.

The name of a transfer is that of its topic and of its transactional id. A new writer first aborts and fences the open
transaction of an earlier writer of the name, and then reads the progress. Of two concurrent writers only the later one
can write, and it knows all commits of the earlier one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import orjson

from penstock.client.api import Admin, GroupIdentity, NewTopic, RefusedOutputError
from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher, ConfluentTransactionalProducer
from penstock.config import StreamsConfig
from penstock.errors import RetriableError, StreamsError
from penstock.host.crashpoints import crash_point
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from penstock_broker.common.clock import SystemClock

MIRROR: Final = "penstock-mirror-"
REDRIVE: Final = "penstock-redrive-"
"""The prefixes of the names of mirrors and of redrives."""

Key: TypeAlias = tuple[str | int, ...]
"""A key of the progress, written as JSON."""

Progress: TypeAlias = Mapping[Key, Any]
"""JSON-compatible values by key."""

_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"


class ProgressWriter:
    """Writes records together with the progress, in successive transactions.

    The constructor creates the topic `name` if missing, fences earlier writers of this name, and reads the progress.

    Args:
        config: of the clients.
        name: of the topic, also the transactional id.

    Raises:
        StreamsError: the topic is not compacted.
        KafkaError: the brokers do not answer, or a permission is missing.
    """

    def __init__(self, config: StreamsConfig, name: str) -> None:
        self._topic = name
        self._transactions = 0
        admin = ConfluentAdmin(config)
        try:
            if name not in admin.topics():
                admin.create_topics([NewTopic(name, 1, config={_POLICY: _COMPACT})])
            self._producer = ConfluentTransactionalProducer(config, name, before_commit=self._sent)
            crash_point("transfer.fenced", 0)
            try:
                # To the very end: the last stable offset may not include the most recent commits yet.
                place = TopicPartition(name, 0)
                end = admin.end_offsets([place])[place]
                self._committed = dict(_read(admin, config, place, end))
            except BaseException:
                self._producer.close()
                raise
        finally:
            admin.close()

    @property
    def committed(self) -> Progress:
        """The committed progress."""
        return self._committed

    def write(self, output: Sequence[PartitionBatch], progress: Progress) -> None:
        """Write `output` and `progress` in one transaction.

        Raises:
            ProducerFencedError: another writer of this name has started.
            KafkaError: brokers reject a record, or the result of the commit is unknown until a new writer reads it.
        """
        crash_point("transfer.read", self._transactions)
        everything = [*output, self._batch(progress)]
        try:
            self._commit(everything)
        except RefusedOutputError:  # a second attempt, in which the producer identifies the record
            self._commit(everything)
        crash_point("transfer.committed", self._transactions)
        self._transactions += 1
        self._committed.update(progress)

    def close(self) -> None:
        """Release connections and threads; harmless when called again."""
        self._producer.close()

    def _commit(self, output: Sequence[PartitionBatch]) -> None:
        self._producer.send(output)
        self._producer.commit({}, GroupIdentity(self._topic, -1, ""))

    def _sent(self) -> None:
        crash_point("transfer.sent", self._transactions)

    def _batch(self, progress: Progress) -> PartitionBatch:
        count = len(progress)
        batch = RecordBatch(
            keys=[orjson.dumps(key) for key in progress],
            values=[orjson.dumps(value) for value in progress.values()],
            timestamps=np.full(count, SystemClock().milliseconds(), np.int64),
            offsets=np.zeros(count, np.int64),
        )
        return PartitionBatch(self._topic, 0, batch)


def identified(admin: Admin, names: Collection[str]) -> dict[str, str]:
    """Return the ids of existing topics.

    Raises:
        RetriableError: brokers do not know a topic yet, or are older than Kafka 2.8. To continue without an id would
            start the topic over as soon as it has an id.
    """
    found = admin.topic_ids(names)
    missing = sorted(set(names) - found.keys())
    if missing:
        raise RetriableError(
            f"The brokers return no id for topic {missing[0]}: expected Kafka 2.8 or later. If it is new, try again."
        )
    return found


def committed_progress(config: StreamsConfig, name: str) -> Progress:
    """Return the committed progress of `name` without fencing its writers; empty without progress.

    Raises:
        StreamsError: the topic is not compacted.
        KafkaError: the brokers do not answer, or a permission is missing.
    """
    admin = ConfluentAdmin(config)
    try:
        if name not in admin.topics():
            return {}
        place = TopicPartition(name, 0)
        end = admin.end_offsets([place], read_committed=True)[place]
        return _read(admin, config, place, end)
    finally:
        admin.close()


def _read(admin: Admin, config: StreamsConfig, place: TopicPartition, end: int) -> Progress:
    name = place.topic
    policy = admin.describe_topic(name).config.get(_POLICY)
    if policy != _COMPACT:
        raise StreamsError(
            f"Topic {name} stores the progress of the transfer, and {_POLICY}={policy} would delete it. Change that "
            f"with `penstock topics alter {name} --set {_POLICY}={_COMPACT}`, or delete the topic to start over."
        )
    first = admin.beginning_offsets([place])[place]
    found: dict[Key, Any] = {}
    fetcher = ConfluentFetcher(config)
    try:
        for batch in fetcher.fetch(place, first, end, read_committed=True) if first < end else ():
            for key, value in zip(batch.keys, batch.values, strict=True):
                found[tuple(orjson.loads(key))] = orjson.loads(value)
    finally:
        fetcher.close()
    return found
