"""TransactionalProducer over confluent-kafka: output, and the offsets of what it was made from, in one transaction.

Whether a failed transaction can be aborted is up to librdkafka: a producer that was fenced, or whose transaction the
broker has ended, cannot do anything any more. It is thrown away, and a new one of the same transactional id ends what
it left open. So after an error the transaction is over in any case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as Position

from penstock.client.api import CommitRefusedError, GroupIdentity, OffsetAndMetadata, OnRefused, RefusedOutputError
from penstock.client.confluent.batch_producer import Deliveries
from penstock.client.confluent.connection import ClientConnection, apart, drained
from penstock.client.confluent.pace import LAG_SECONDS, TIMED_OUT, Pace, TransactionTimeout
from penstock.client.confluent.refusals import Refusals, fail_on_refused
from penstock.client.confluent.sending import partition_of, send_accepted
from penstock.client.confluent.time_zero import NewClientNeededError, TransactionalTimeZero
from penstock.client.confluent.transactions import (
    FENCED,
    group_metadata,
    initialized_within,
    returning,
    transactional_right,
    until,
)
from penstock.client.failures import FORBIDDEN, Right
from penstock.client.settings import HURRIED, OF_KNOWN_TOPICS, PRODUCER, client_settings
from penstock.client.sockets.offsets import COUNTED_OUT, TransactionOffsets
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

_REPORT_SECONDS = 0.1
_MOST_REPORTS = 20
"""How often to look for the report of the record because of which others were not sent."""

_LATE_SECONDS = 1.0
"""How much later than its time-out a call may return."""

_ABORT_SECONDS = 5.0
"""How long a client may take to abort; a new one does it in less time than one that cannot reach a coordinator."""

_TRANSACTION_TIMEOUT_MS = 10_000

_OVER = frozenset((Code._FATAL, Code._STATE))
"""Codes of calls to a client whose transaction has failed before, for a reason that they do not have."""


class ConfluentTransactionalProducer:
    """One transaction after the other; see `client.api.TransactionalProducer`."""

    def __init__(
        self,
        config: StreamsConfig,
        transactional_id: str,
        timeout_ms: int = 60_000,
        before_commit: Callable[[], object] = lambda: None,
    ) -> None:
        """Connect, and end what earlier producers of `transactional_id` left open; timeout_ms bounds each call.
        before_commit: called when the whole transaction is sent and nothing is committed."""
        self._before_commit = before_commit
        self._transactional_id = transactional_id
        self._deliveries = Deliveries()
        forced = {
            "transactional.id": transactional_id,
            "on_delivery": self._deliveries.delivered,
            "delivery.report.only.error": False,
        }
        defaults = {**HURRIED, **OF_KNOWN_TOPICS, "linger.ms": 1, "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS}
        settings = client_settings(config, PRODUCER, forced, defaults)
        self._time = TransactionTimeout(int(settings["transaction.timeout.ms"]))
        self._pace = Pace()
        self._connection = ClientConnection(settings, timeout_ms)
        self._settings = self._connection.settings
        self._refusals = Refusals()
        self._time_zero = TransactionalTimeZero(config, timeout_ms, transactional_id, self._deliveries.written)
        self._config = config
        self._timeout_ms = timeout_ms
        self._offsets = self._connected_offsets()
        self._is_open = False
        self._began = 0.0
        self._client: Producer | None = None
        self._is_closed = False
        self._ready()

    def send(self, output: Sequence[PartitionBatch], on_refused: OnRefused = fail_on_refused) -> None:
        """Take records to be written in the transaction."""
        if not self._time_zero.claim(output):
            self._renew(output)
        client = self._begun()
        self._pace.give(sum(len(each.batch) for each in output), len(client))
        try:
            accepted = self._refusals.without_refused(output, on_refused)
            send_accepted(self._connection, client, self._time_zero, accepted, on_refused)
            client.poll(0)
        except KafkaException as error:
            self._fail(error.args[0], partition_of(error, output).topic)
        except NewClientNeededError:
            self._renew(output)
        except StreamsError:  # a record was refused, and nothing is to be written without it
            self._end()
            raise
        self._raise_failed()

    def lags(self) -> bool:
        """Return whether brokers take records so slowly that those sent should be committed before there are more."""
        left = 0.0 if self._client is None else self._pace.seconds_left(len(self._client))
        return left > min(LAG_SECONDS, self._time.seconds / 4)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupIdentity
    ) -> dict[TopicPartition, int]:
        """Commit the transaction with `offsets`."""
        client = self._begun()
        seconds = max(self._time.seconds - self._age(), _LATE_SECONDS)  # behind its time-out, it is over anyway
        has_texts = any(each.metadata for each in offsets.values())
        positions = [Position(*partition, each.offset, each.metadata) for partition, each in offsets.items()]
        if has_texts:  # one makes the group a part of the transaction; `_commit_texts` commits all
            positions = positions[:1]
        metadata = group_metadata(member)
        try:
            remaining = drained(client, seconds, lambda: self._deliveries.has_failed() or self._is_hopeless(client))
            self._raise_failed()
            if remaining:
                raise KafkaException(Code(Code._TIMED_OUT, "the brokers have not taken all records"))
            if positions:
                send = partial(client.send_offsets_to_transaction, positions, metadata, seconds)
                returning(seconds + _LATE_SECONDS, lambda: until(seconds, send))
            if has_texts:
                self._commit_texts(offsets, member)
            self._before_commit()
            if not positions:
                self._time_zero.end(is_commit=True)
            until(seconds, lambda: client.commit_transaction(seconds))
        except KafkaException as error:
            self._fail(error.args[0], "")
        self._is_open = False
        is_calm = self._time.committed(self._age())
        if any((self._refusals.written(), self._time_zero.committed(), is_calm)):
            self._client = None
        return self._deliveries.take_ends()

    def _commit_texts(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupIdentity) -> None:
        """Commit `offsets` in the transaction without librdkafka, which writes a zero byte at the end of each text."""
        try:
            code = self._offsets.commit(offsets, member)
        except KafkaError:
            self._end()
            raise
        if code:
            raise KafkaException(Code(code))

    def abort(self) -> None:
        """End the transaction without a commit."""
        self._end()
        self._ready()

    def close(self) -> None:
        """Abort, and release connections and threads; harmless when called again."""
        if self._is_open and self._client is not None:
            with suppress(KafkaException, KafkaError):
                self._client.abort_transaction(self._connection.timeout)
                self._time_zero.end(is_commit=False)
        self._client, self._is_open, self._is_closed = None, False, True
        self._offsets.close()
        self._time_zero.close()

    def _renew(self, output: Sequence[PartitionBatch]) -> None:
        """Give up the client, since only a new one can share the partitions of `output` that have timestamp 0. If it
        has begun a transaction, raise the error for it: its records are made again."""
        is_open = self._is_open
        if is_open:
            self._end()
        self._client = None
        if is_open:
            topics = ", ".join(dict.fromkeys(each.topic for each in output))
            raise RefusedOutputError(
                f"The transaction of {self._transactional_id} is begun again: records for {topics} have timestamp 0, "
                "and need a producer of their own."
            )

    def _begun(self) -> Producer:
        """Return the client in an open transaction."""
        client = self._ready()
        if not self._is_open:
            self._began = time.monotonic()
            try:
                client.begin_transaction()
            except KafkaException as error:
                self._fail(error.args[0], "")
            self._is_open = True
        return client

    def _connected_offsets(self) -> TransactionOffsets:
        # An answer that is lost is not waited for longer than the transaction lasts.
        return TransactionOffsets(self._config, self._transactional_id, min(self._timeout_ms, self._time.ms))

    def _age(self) -> float:
        """Return for how long (s) the transaction has been open."""
        return time.monotonic() - self._began

    def _is_hopeless(self, client: Producer) -> bool:
        """Return whether brokers take records too slowly for all to be taken in time, as far as half of it shows."""
        age, waiting = self._age(), len(client)
        is_known = age > self._time.seconds / 2 and self._pace.taken(waiting) > 0
        return is_known and self._pace.seconds_left(waiting) > 2 * (self._time.seconds - age)

    def _ready(self) -> Producer:
        if self._is_closed:
            raise KafkaError("The producer is closed.")
        if self._client is None:
            right = transactional_right(self._transactional_id)
            self._connection.settings = {**self._time_zero.settings(self._settings), **self._refusals.settings}
            client = initialized_within(self._time, self._connection, self._transactional_id, right)
            self._connection.serve = client.poll
            self._time_zero.continue_with(client, self._connection.timeout)
            self._client = client
        return self._client

    def _raise_failed(self) -> None:
        self._raise_refused()
        failed = self._deliveries.take_failed()
        if failed is not None:
            self._fail(failed[0], failed[1].topic)

    def _raise_refused(self) -> None:
        refused = self._deliveries.take_refused()
        if refused:
            self._end()
            self._client = None  # the next one sends in another way
            raise self._refusals.take(refused)

    def _fail(self, error: Code, topic: str) -> None:
        """End the transaction because of `error`, and raise the error for it."""
        error = self._reason(error)
        self._raise_refused()
        reported = self._deliveries.take_failed()
        if reported is not None and (error.txn_requires_abort() or error.code() in _OVER):
            error, topic = reported[0], reported[1].topic
        self._raise_slow(error)
        self._end()
        if error.code() in FENCED:
            raise ProducerFencedError(
                f"Another producer has fenced that of {self._transactional_id}: {error.str().rstrip('.')}."
            )
        if error.code() in COUNTED_OUT:
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
        rights = [transactional_right(self._transactional_id)]
        if topic:
            rights.insert(0, Right("WRITE", "topic", topic))
        self._connection.fail(error, f"writing as {self._transactional_id}", *rights)

    def _raise_slow(self, error: Code) -> None:
        """End the transaction and raise the error for it if there was too little time for it, and give the next one
        more. Brokers that end it answer as if another producer had fenced this one."""
        age = self._age()
        waiting = self._deliveries.failures + (0 if self._client is None else len(self._client))
        taken, before_ms = self._pace.taken(waiting), self._time.ms
        is_throttled = self._connection.throttled_until >= self._began
        is_ended = error.code() in FENCED and age >= self._time.seconds
        if not self._is_open or not (is_ended or error.code() in TIMED_OUT):
            return
        is_longer = self._time.lengthen(age, waiting, taken)
        self._end()
        if is_longer:
            self._client = None  # the next one has more time
            self._offsets.close()
            self._offsets = self._connected_offsets()
        if not (is_ended or (is_throttled and is_longer)):
            return
        left = f"brokers had not taken {counted(waiting, 'record')}"
        quota = ", because this client is above its quota" if is_throttled else ""
        raise TaskMigratedError(
            f"The transaction of {self._transactional_id} was open longer than transaction.timeout.ms={before_ms}, or "
            f"would be: {error.str().rstrip('.')}; {left}{quota}. Its records are processed again, with "
            f"transaction.timeout.ms={self._time.ms}; set a larger one if processing takes so long, or if this happens "
            "often."
        )

    def _reason(self, error: Code) -> Code:
        """Return why the client cannot go on, if it cannot: after that each call fails, and says only that it does, and
        a poll raises the reason. A poll also brings the reports of records, which may tell more."""
        if self._client is not None and error.code() not in FENCED:
            try:
                for _ in range(_MOST_REPORTS):
                    apart(partial(self._client.poll, _REPORT_SECONDS))
                    if not self._deliveries.lacks_cause():
                        break
            except KafkaException as raised:
                reason: Code = raised.args[0]
                return reason
        return error

    def _end(self) -> None:
        """Abort. A client that cannot, or whose commits are unknown, is replaced; the next one ends its transaction."""
        client, self._client = self._client, None
        self._offsets.forget()  # the next transaction may have another epoch
        if client is not None and self._is_open and not self._time_zero.has_written:
            with suppress(KafkaException):
                apart(partial(until, _ABORT_SECONDS, partial(client.abort_transaction, _ABORT_SECONDS)))
                self._client = client
        self._is_open = False
        self._deliveries.forget()
