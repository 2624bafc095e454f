"""TransactionalProducer over confluent-kafka: output, and the offsets of its input, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException

from penstock.client.api import CommitRefusedError, GroupIdentity, OffsetAndMetadata, OnRefused, RefusedOutputError
from penstock.client.confluent.refusals import Refusals, fail_on_refused, is_held_back
from penstock.client.confluent.sending import partition_of, send_accepted
from penstock.client.confluent.time_zero import NewClientNeededError
from penstock.client.confluent.transactional_client import FENCED, LATE_SECONDS, TransactionalClient
from penstock.client.failures import FORBIDDEN, Right
from penstock.client.settings import OF_KNOWN_TOPICS
from penstock.client.sockets.offsets import MEMBER_FENCED
from penstock.config import StreamsConfig
from penstock.errors import (
    KafkaError,
    ProducerFencedError,
    RetriableError,
    StreamsError,
    TaskMigratedError,
    counted,
)
from penstock.record import PartitionBatch, TopicPartition

_TRANSACTION_TIMEOUT_MS = 10_000

_OVER = frozenset((Code._FATAL, Code._STATE))
"""Codes of calls after a failed transaction; they do not contain the reason of the failure."""


class ConfluentTransactionalProducer:
    """A transactional producer; see `client.api.TransactionalProducer`.

    The constructor ends open transactions of earlier producers of the transactional id.

    Args:
        config: the configuration of the application.
        transactional_id: the transactional id of the producer.
        timeout_ms: the timeout (ms) of each call.
        before_commit: called after all records are sent, before the commit.
    """

    def __init__(
        self,
        config: StreamsConfig,
        transactional_id: str,
        timeout_ms: int = 60_000,
        before_commit: Callable[[], object] = lambda: None,
    ) -> None:
        self._before_commit = before_commit
        self._transactional_id = transactional_id
        self._refusals = Refusals()
        self._is_closed = False
        forced = {"delivery.report.only.error": False}
        defaults = {**OF_KNOWN_TOPICS, "linger.ms": 1, "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS}
        self._client = TransactionalClient(config, transactional_id, timeout_ms, forced, defaults)
        self._client.connect_offsets()
        self._ready()

    def send(self, output: Sequence[PartitionBatch], on_refused: OnRefused = fail_on_refused) -> None:
        """Write records in the transaction."""
        if not self._client.claim(output):
            self._renew(output)
        self._begin()
        try:
            accepted = self._refusals.without_refused(output, on_refused)
            send_accepted(self._client.send, accepted, on_refused)
        except KafkaException as error:
            self._fail(error.args[0], partition_of(error, output).topic)
        except NewClientNeededError:
            self._renew(output)
        except StreamsError:  # a record was refused; the others must not be written without it
            self._client.abort()
            raise
        self._raise_failed()

    def lags(self) -> bool:
        """Return whether brokers are so slow that the sent records should be committed before others are sent."""
        return self._client.lags()

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupIdentity
    ) -> dict[TopicPartition, int]:
        """Commit the transaction with `offsets`."""
        client = self._client
        self._begin()
        seconds = max(client.time.seconds - client.age, LATE_SECONDS)  # after its timeout, it is over anyway
        has_texts = any(each.metadata for each in offsets.values())
        try:
            remaining = client.drain(seconds)
            self._raise_failed()
            if remaining:
                raise KafkaException(Code(Code._TIMED_OUT, "the brokers have not accepted all records"))
            if offsets:
                # With texts, one offset adds the group to the transaction, and `commit_texts` commits all.
                first = dict(islice(offsets.items(), 1)) if has_texts else offsets
                client.send_offsets(first, member, seconds, seconds + LATE_SECONDS)
            if has_texts:
                self._commit_texts(offsets, member)
            self._before_commit()
            client.commit(seconds)
        except KafkaException as error:
            self._fail(error.args[0], "")
        if self._refusals.written():
            client.discard()
        return client.reports.take_ends()

    def abort(self) -> None:
        """Abort the transaction."""
        self._client.abort()
        self._ready()

    def close(self) -> None:
        """Abort, and release connections and threads; idempotent."""
        self._is_closed = True
        self._client.abort()
        self._client.close()

    def _commit_texts(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupIdentity) -> None:
        try:
            self._client.commit_texts(offsets, member)
        except KafkaError:
            self._client.abort()
            raise

    def _renew(self, output: Sequence[PartitionBatch]) -> None:
        """Discard the producer: only a new one can share the partitions of `output` with timestamp 0.

        Raises RefusedOutputError if a transaction is open: its records must be processed again.
        """
        is_open = self._client.is_open
        self._client.abort()
        self._client.discard()
        if is_open:
            topics = ", ".join(dict.fromkeys(each.topic for each in output))
            raise RefusedOutputError(
                f"The transaction of {self._transactional_id} is begun again: records for {topics} have timestamp 0, "
                "and need a producer of their own."
            )

    def _ready(self) -> None:
        if self._is_closed:
            raise KafkaError("The producer is closed.")
        self._client.ready(self._refusals.settings)

    def _begin(self) -> None:
        self._ready()
        try:
            self._client.begin()
        except KafkaException as error:
            self._fail(error.args[0], "")

    def _raise_failed(self) -> None:
        self._raise_refused()
        failed = self._client.reports.cause()
        if failed is not None:
            self._fail(failed[0], failed[1].topic)

    def _raise_refused(self) -> None:
        refused = self._client.reports.refused_records()
        if refused:
            self._client.abort()
            self._client.discard()  # the next producer has other settings
            raise self._refusals.take(refused)

    def _fail(self, error: Code, topic: str) -> None:
        """Abort the transaction and raise the error of Penstock for `error`."""
        error = self._client.reason(error)
        self._raise_refused()
        reported = self._client.reports.cause()
        if reported is not None and (error.txn_requires_abort() or error.code() in _OVER or is_held_back(error)):
            error, topic = reported[0], reported[1].topic
        self._raise_slow(error)
        self._client.abort()
        if error.code() in FENCED:
            raise ProducerFencedError(
                f"Another producer has fenced that of {self._transactional_id}: {error.str().rstrip('.')}."
            )
        if error.code() in MEMBER_FENCED:
            raise CommitRefusedError(
                f"The group has removed the member that commits as {self._transactional_id}: "
                f"{error.str().rstrip('.')}. Its tasks belong to other members, or will be opened again.",
                error.code(),
            )
        if error.code() not in FORBIDDEN and (error.fatal() or error.code() in _OVER):
            raise RetriableError(
                f"The producer of {self._transactional_id} failed: {error.str().rstrip('.')}. Uncommitted records are "
                "processed again with a new producer."
            )
        rights = [Right("WRITE", "topic", topic)] if topic else []
        self._client.connection.fail(error, f"writing as {self._transactional_id}", *rights, *self._client.rights)

    def _raise_slow(self, error: Code) -> None:
        """Abort a transaction that was too slow, lengthen the timeout of the next one, and raise the error."""
        slow = self._client.slowness(error)
        if slow is None:
            return
        self._client.abort()
        if slow.is_longer:
            self._client.discard()  # the next producer has a longer timeout
        if not (slow.is_ended or (slow.is_throttled and slow.is_longer)):
            return
        left = f"brokers had not taken {counted(slow.waiting, 'record')}"
        quota = ", because this client is above its quota" if slow.is_throttled else ""
        raise TaskMigratedError(
            f"The transaction of {self._transactional_id} was open longer than "
            f"transaction.timeout.ms={slow.timeout_ms}, or would be: {error.str().rstrip('.')}; {left}{quota}. Its "
            f"records are processed again, with transaction.timeout.ms={self._client.time.ms}; set a larger one if "
            "processing takes so long, or if this happens often."
        )
