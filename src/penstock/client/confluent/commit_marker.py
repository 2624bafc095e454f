"""The commit marker of a sink partition: its last committed epoch, as an offset of an internal commits topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Position

from penstock.client.api import GroupIdentity, OffsetAndMetadata
from penstock.client.confluent.connection import ClientConnection
from penstock.client.failures import Right
from penstock.client.settings import CONSUMER, HURRIED, client_settings
from penstock.config import StreamsConfig
from penstock.errors import RetriableError, TaskCorruptedError, TaskMigratedError
from penstock.record import TopicPartition

COORDINATOR_TIMEOUT_MS: Final = 10_000
"""Timeout (ms) of a client that looks for the group coordinator. librdkafka may not find one that has moved (its issue
5511); a new client finds it immediately."""


class CommitMarker:
    """Reads and formats the commit marker of one sink partition.

    Args:
        config: the application's configuration.
        transactional_id: the transactional id of the writer, for messages.
        group: consumer group under which epochs are committed.
        partition: the partition of the commits topic; it must exist.
        timeout_ms: the timeout (ms) of one call.
        was_committed: called with the epoch if the marker is missing; returns whether that epoch is committed anyway.
            Brokers delete committed offsets after `offsets.retention.minutes`.
    """

    def __init__(
        self,
        config: StreamsConfig,
        transactional_id: str,
        group: str,
        partition: TopicPartition,
        timeout_ms: int,
        was_committed: Callable[[int], bool],
    ) -> None:
        self.rights = (Right("READ", "group", group), Right("READ", "topic", partition.topic))
        self.partition = partition
        self.committer = GroupIdentity(group, -1, "")
        self._config = config
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._was_committed = was_committed
        self._seen: str | None = None
        self._reader: tuple[ClientConnection, Consumer] | None = None

    def of(self, epoch: int, owner: str, note: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the offset that marks `epoch` of `owner` as committed."""
        return {self.partition: OffsetAndMetadata(epoch, f"{owner} {note}".rstrip())}

    def committed_by(self, owner: str) -> None:
        """Note that the last committed marker is one of `owner`."""
        self._seen = owner

    def has(self, epoch: int, owner: str, note: str) -> bool:
        """Return whether `epoch` of `owner` is committed. Raises as `TransactionalWriter.write`."""
        found = self.read()
        if found.offset < 0:  # never committed, or deleted by the brokers after their retention
            return self._was_committed(epoch)
        writer, _, written_note = (found.metadata or "").partition(" ")
        if writer != owner:
            # The marker of an earlier topology version is expected until this one has written; after that, only
            # another program can have replaced it.
            if self._seen == owner:
                raise TaskMigratedError(
                    f"Another program writes as {self._transactional_id}: it has the same application.id and another "
                    "checkpoint. Both would process all records, and they fence each other. Stop one of them, or give "
                    "it its own application.id."
                )
            return False
        self._seen = owner
        if found.offset < epoch:
            return False
        if found.offset > epoch:
            raise TaskMigratedError(
                f"Epoch {found.offset} of {self._transactional_id} is already committed, but this program is at epoch "
                f"{epoch}: another program with this application.id has continued from the same checkpoint. Run only "
                "one."
            )
        if note and written_note and note != written_note:
            raise TaskCorruptedError(
                f"Epoch {epoch} of {self._transactional_id} is already committed with other input than this program is "
                "about to process: the checkpoint was changed, or is an older copy. Restore the whole checkpoint "
                "directory from the newest copy."
            )
        return True

    def read(self) -> Position:
        """Return the committed epoch.

        A reader that has found its group before all brokers were unavailable may not find it again. A new reader then
        repeats the request.
        """
        deadline = time.monotonic() + self._timeout_ms / 1000
        position = Position(self.partition.topic, self.partition.partition)
        while True:
            connection, reader = self._open_reader()
            try:
                ask = partial(_committed_by, reader, position, connection.timeout)
                found = connection.call(f"reading the committed epoch at {self.partition}", ask, *self.rights)
                connection.serve(0)  # else reports of brokers that no call needs would accumulate
                connection.answered()
                return found
            except RetriableError:
                self._reader = None
                if time.monotonic() >= deadline:
                    raise

    def close(self) -> None:
        """Release connections and threads."""
        if self._reader is not None:
            self._reader[1].close()
            self._reader = None

    def _open_reader(self) -> tuple[ClientConnection, Consumer]:
        if self._reader is None:
            # read_committed makes librdkafka ask for stable offsets, so it waits for a commit in progress.
            forced = {"group.id": self.committer.group, "isolation.level": "read_committed"}
            timeout_ms = min(self._timeout_ms, COORDINATOR_TIMEOUT_MS)
            connection = ClientConnection(client_settings(self._config, CONSUMER, forced, HURRIED), timeout_ms)
            reader = connection.make(Consumer)
            connection.serve_events_of(reader)
            self._reader = connection, reader
        return self._reader


def _committed_by(reader: Consumer, asked: Position, seconds: float) -> Position:
    (position,) = reader.committed([asked], seconds)
    if position.error is not None:
        raise KafkaException(position.error)
    return position
