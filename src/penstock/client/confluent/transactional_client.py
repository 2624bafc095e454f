"""The transactional producer of librdkafka: its life cycle and its transactions.

librdkafka decides whether a failed transaction can be aborted. A producer that was fenced, or whose transaction the
broker has ended, fails in every call. It is discarded, and the next producer of the same transactional id ends its open
transaction. So a transaction is always over after `abort`.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as Position

from penstock.client.api import GroupIdentity, OffsetAndMetadata
from penstock.client.confluent.connection import ClientConnection, apart, drained, nothing_to_serve, passing
from penstock.client.confluent.delivery_reports import DeliveryReports
from penstock.client.confluent.pace import LAG_SECONDS, TIMED_OUT, Pace, TransactionTimeout, drained_while_taken
from penstock.client.confluent.refusals import RefusedError, is_refusal, raise_refused
from penstock.client.confluent.sending import send_output
from penstock.client.confluent.time_zero import TransactionalTimeZero
from penstock.client.confluent.transaction_steps import returning, until
from penstock.client.failures import Right
from penstock.client.settings import HURRIED, PRODUCER, client_settings
from penstock.client.sockets.offsets import TransactionOffsets
from penstock.config import StreamsConfig
from penstock.errors import KafkaError, RetriableError
from penstock.record import PartitionBatch, TopicPartition

FENCED: Final = frozenset((Code._FENCED, Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED))
"""Codes of calls to a producer that another one has fenced, or whose transaction brokers have ended."""

LATE_SECONDS: Final = 1.0
"""How much later (s) than its timeout a call may return."""

_ABORT_SECONDS: Final = 5.0
"""Timeout (s) of an abort. A new producer is quicker than one that cannot reach its coordinator."""

_REPORT_SECONDS: Final = 0.1  # until the delivery reports of a failed transaction have arrived
_MOST_REPORTS: Final = 20
"""Maximum number of polls for the report of the record that caused other failures."""

_HURRIED_SECONDS: Final = 0.1
_HURRIED_PRODUCERS: Final = 6

_TIMEOUT: Final = "transaction.timeout.ms"
_TRANSACTION_TIMEOUT_MS: Final = 60_000
"""librdkafka's default of transaction.timeout.ms."""


class Slowness(NamedTuple):
    """A transaction that was too long for its timeout.

    Args:
        is_ended: whether brokers have ended it.
        is_longer: whether the next transaction has a longer timeout.
        is_throttled: whether the client exceeded its quota.
        waiting: number of records that brokers had not accepted.
        taken: number of records that brokers had accepted.
        timeout_ms: the timeout (ms) of the transaction.
    """

    is_ended: bool
    is_longer: bool
    is_throttled: bool
    waiting: int
    taken: int
    timeout_ms: int


class TransactionalClient:
    """The producer of one transactional id. It has one transaction at a time.

    Methods raise the KafkaException of librdkafka unless they say otherwise; the caller handles it.

    Args:
        config: the configuration of the application.
        transactional_id: the transactional id; each new producer fences the previous ones.
        timeout_ms: the timeout (ms) of one call.
        forced: settings that users may not change.
        defaults: settings that users may change.
        rights: required rights in addition to the right to the transactional id.
    """

    def __init__(
        self,
        config: StreamsConfig,
        transactional_id: str,
        timeout_ms: int,
        forced: Mapping[str, Any],
        defaults: Mapping[str, Any],
        rights: Sequence[Right] = (),
    ) -> None:
        self.reports = DeliveryReports()
        """Reports of the current producer only: an abandoned call may still receive reports of an earlier one."""
        own = {"transactional.id": transactional_id}
        # Each producer gets new settings: referenced secrets may have changed.
        self._settings = partial(client_settings, config, PRODUCER, {**own, **forced}, {**HURRIED, **defaults})
        settings = self._settings()
        self.time = TransactionTimeout(int(settings.get(_TIMEOUT, _TRANSACTION_TIMEOUT_MS)))
        self.rights = (transactional_right(transactional_id), *rights)
        self.connection = ClientConnection(settings, timeout_ms)
        self.is_open = False
        self._config = config
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._time_zero = TransactionalTimeZero(config, timeout_ms, transactional_id)
        self._pace = Pace()
        self._producer: Producer | None = None
        self._offsets: TransactionOffsets | None = None
        self._began = 0.0
        self._has_offsets = False

    @property
    def age(self) -> float:
        """Time (s) since the begin of the transaction."""
        return time.monotonic() - self._began

    def ready(self, sending: Mapping[str, Any]) -> None:
        """Create a producer that fences all earlier ones, unless the current one can continue.

        Args:
            sending: additional settings of a new producer.

        Raises:
            KafkaError: no producer could be initialised.
        """
        if self._producer is not None:
            return
        connection = ClientConnection(self._settings(), self._timeout_ms)
        reports = DeliveryReports()
        own = {"on_delivery": reports.delivered}
        connection.settings = {**self._time_zero.settings(connection.settings), **own, **sending}
        producer = initialized_within(self.time, connection, self._transactional_id, *self.rights)
        self._time_zero.continue_with(producer, connection.timeout, reports.written)
        connection.serve = producer.poll
        self.connection, self.reports, self._producer = connection, reports, producer
        self._forget_epoch()

    def claim(self, output: Sequence[PartitionBatch]) -> bool:
        """Reserve the partitions of `output`; return False if its records with timestamp 0 need a new producer."""
        return self._time_zero.claim(output)

    def begin(self) -> None:
        """Begin a transaction, unless one is open."""
        if not self.is_open:
            self._began, self._has_offsets = time.monotonic(), False
            self._pace.give(0, 0)  # librdkafka counts what it has to report, even of a new producer, as waiting
            self._ready_producer().begin_transaction()
            self.is_open = True

    def send(
        self,
        output: Sequence[PartitionBatch],
        on_refused: Callable[[RefusedError], object] = raise_refused,
        refuses: Callable[[Code], bool] = is_refusal,
    ) -> None:
        """Send all records; see `send_output`. Raises NewClientNeededError for records that are not claimed."""
        producer = self._ready_producer()
        self._pace.give(sum(len(each.batch) for each in output), len(producer))
        send_output(self.connection, producer, self._time_zero, output, on_refused, refuses)
        producer.poll(0)

    def lags(self) -> bool:
        """Return whether brokers are so slow that the sent records should be committed before others are sent."""
        return self._pace.seconds_left(self._waiting()) > min(LAG_SECONDS, self.time.seconds / 4)

    def drain(self, seconds: float) -> int:
        """Wait until all records are accepted, one has failed, or the timeout cannot be met.

        Returns:
            the number of records without an answer.
        """
        return drained(self._ready_producer(), seconds, lambda: bool(self.reports.failures) or self._is_hopeless())

    def drain_while_taken(self) -> int:
        """Wait like `drain`, but as long as brokers accept records, regardless of the age of the transaction."""
        return drained_while_taken(self.connection, self._ready_producer(), lambda: bool(self.reports.failures))

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupIdentity, seconds: float, most: float
    ) -> None:
        """Commit offsets in the transaction. librdkafka appends a zero byte to each metadata text.

        Args:
            offsets: the offsets with their metadata.
            member: the committing member.
            seconds: the timeout (s) of the request, which librdkafka does not always respect.
            most: time (s) until UnansweredError is raised; throttling is added, up to `seconds`.
        """
        producer = self._ready_producer()
        positions = [Position(*partition, each.offset, each.metadata) for partition, each in offsets.items()]
        send = partial(producer.send_offsets_to_transaction, positions, group_metadata(member), seconds)
        latest = time.monotonic() + max(most, seconds + LATE_SECONDS)
        returning(most, lambda: until(seconds, send), lambda: min(self._throttled_until(), latest - most))
        self._has_offsets = True

    def connect_offsets(self) -> TransactionOffsets:
        """Return the offset commits without librdkafka. Raises ConfigError for a setting that they do not support."""
        if self._offsets is None:
            # A lost answer delays the caller for at most the timeout of the transaction.
            timeout_ms = min(self._timeout_ms, self.time.ms)
            self._offsets = TransactionOffsets(self._config, self._transactional_id, timeout_ms)
        return self._offsets

    def commit_texts(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupIdentity) -> None:
        """Commit offsets in the transaction without librdkafka, which appends a zero byte to each metadata text.

        The group must already be part of the transaction. Raises KafkaError if the broker does not answer.
        """
        code = self.connect_offsets().commit(offsets, member)
        if code:
            raise KafkaException(Code(code))

    def commit(self, seconds: float) -> None:
        """Commit the transaction within `seconds`. The next transaction may use a new producer."""
        producer = self._ready_producer()
        if not self._has_offsets:  # then librdkafka may know of nothing to commit
            self._time_zero.commit()
        until(seconds, lambda: producer.commit_transaction(seconds))
        self.is_open = False
        is_calm = self.time.committed(self.age)
        if self._time_zero.committed() or is_calm:
            self.discard()

    def abort(self) -> None:
        """Abort the transaction.

        A producer that cannot abort, or whose commits are unknown, is discarded. The next one ends its transaction.
        """
        has_ended = False
        if self._producer is not None and self.is_open:
            self.reports.ignore()
            abort = partial(self._producer.abort_transaction, _ABORT_SECONDS)
            with suppress(KafkaException, KafkaError):
                returning(_ABORT_SECONDS + LATE_SECONDS, partial(until, _ABORT_SECONDS, abort))
                if self._time_zero.has_written:  # of which librdkafka may know nothing
                    returning(_ABORT_SECONDS, self._time_zero.give_up())
                else:
                    has_ended = True
        self.is_open = False
        if not has_ended:
            self.discard()
        self._forget_epoch()
        self.reports.forget()

    def discard(self) -> None:
        """Discard the producer with its transaction; the next producer fences it."""
        self._producer, self.is_open = None, False
        self.connection.serve = nothing_to_serve  # else the connection keeps the producer

    def close(self) -> None:
        """Release connections and threads; an open transaction is left to the next producer."""
        self.discard()
        self._close_offsets()
        self._time_zero.close()

    def reason(self, error: Code) -> Code:
        """Return the cause of `error`.

        After a fatal error, librdkafka fails each call without the reason; only a poll raises it. A poll also delivers
        the reports of records, which may be more specific.
        """
        if self._producer is not None and error.code() not in FENCED:
            try:
                for _ in range(_MOST_REPORTS):
                    apart(partial(self._producer.poll, _REPORT_SECONDS))
                    if not self.reports.lacks_cause():
                        break
            except KafkaException as raised:
                reason: Code = raised.args[0]
                return reason
        return error

    def slowness(self, error: Code) -> Slowness | None:
        """Lengthen the timeout of the next transaction if `error` shows that this one was too slow.

        If brokers end a transaction after its timeout, they answer as if another producer had fenced this one.

        Returns:
            the facts for messages, None if the timeout did not cause the error.
        """
        age, timeout_ms = self.age, self.time.ms
        is_ended = error.code() in FENCED and age >= self.time.seconds
        if not self.is_open or not (is_ended or error.code() in TIMED_OUT):
            return None
        waiting = self._waiting() + len(self.reports.failures)
        taken = self._pace.taken(waiting)
        is_throttled = self.connection.throttled_until >= self._began
        is_longer = self.time.lengthen(age, waiting, taken)
        if is_longer:
            self._close_offsets()  # new ones wait longer too
        return Slowness(is_ended, is_longer, is_throttled, waiting, taken, timeout_ms)

    def _ready_producer(self) -> Producer:
        assert self._producer is not None
        return self._producer

    def _waiting(self) -> int:
        return 0 if self._producer is None else len(self._producer)

    def _is_hopeless(self) -> bool:
        """Return whether, after half of the timeout, brokers appear too slow to accept all records in time."""
        age, waiting = self.age, self._waiting()
        is_known = age > self.time.seconds / 2 and self._pace.taken(waiting) > 0
        return is_known and self._pace.seconds_left(waiting) > 2 * (self.time.seconds - age)

    def _throttled_until(self) -> float:
        apart(partial(self._ready_producer().poll, 0))  # an error is being handled
        return self.connection.throttled_until

    def _forget_epoch(self) -> None:
        """Forget the producer epoch: the next transaction may have another one."""
        if self._offsets is not None:
            self._offsets.forget()

    def _close_offsets(self) -> None:
        if self._offsets is not None:
            self._offsets.close()
            self._offsets = None


def initialized_within(
    timeout: TransactionTimeout, connection: ClientConnection, transactional_id: str, *rights: Right
) -> Producer:
    """Return `initialized` with a transaction timeout of `timeout`, or less if brokers refuse it."""
    while True:
        connection.settings = {**connection.settings, _TIMEOUT: timeout.ms}
        try:
            return initialized(connection, transactional_id, *rights)
        except RetriableError:
            raise
        except KafkaError:
            if not timeout.refused():
                raise


def initialized(connection: ClientConnection, transactional_id: str, *rights: Right) -> Producer:
    """Return a producer that has fenced all earlier ones of `transactional_id`.

    The broker refuses while it completes the previous transaction, which takes milliseconds, and librdkafka retries
    only after half a second. A new producer asks immediately, so the first ones get little time.

    Args:
        connection: the connection of the producer.
        transactional_id: the transactional id.
        rights: the rights that it needs, for errors.
    """
    connection.asks()
    deadline = time.monotonic() + connection.timeout
    patience, hurried = _HURRIED_SECONDS, _HURRIED_PRODUCERS
    while True:
        producer = connection.make(Producer)
        remaining = max(deadline - time.monotonic(), 0)  # a negative timeout is no limit for librdkafka
        try:
            seconds = min(patience, remaining)
            until(seconds, partial(producer.init_transactions, seconds))
            return producer
        except KafkaException as error:
            code: Code = error.args[0]
            if not passing(code) or patience >= remaining:
                connection.serve = producer.poll
                connection.fail(code, f"beginning as {transactional_id}", *rights)
        hurried -= 1
        if hurried <= 0:
            patience *= 2


def group_metadata(member: GroupIdentity) -> bytes:
    """Return `member` in librdkafka's format of consumer group metadata.

    librdkafka's own metadata of a consumer with `assign` name no member, so brokers accept its offsets from any client.
    """
    generation = struct.pack("=i", member.generation)
    texts = f"{member.group}\0{member.member_id}\0".encode()
    instance = b"\x01" if member.instance_id is None else b"\x00" + member.instance_id.encode() + b"\0"
    return b"CGMDv2:" + generation + texts + instance


def transactional_right(transactional_id: str) -> Right:
    """Return the right that a producer of `transactional_id` needs."""
    return Right("WRITE", "transactional-id", transactional_id)
