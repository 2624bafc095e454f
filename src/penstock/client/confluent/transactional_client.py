"""The transactional producer of librdkafka: its life, its transactions, and the quirks of both.

Whether a failed transaction can be aborted is up to librdkafka: a producer that was fenced, or whose transaction the
broker has ended, cannot do anything any more. It is thrown away, and a new one of the same transactional id ends what
it left open. So after an abort the transaction is over in any case.
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
"""How much later than its time-out a call may return."""

_ABORT_SECONDS: Final = 5.0
"""How long a client may take to abort; a new one does it in less time than one that cannot reach a coordinator."""

_REPORT_SECONDS: Final = 0.1  # until the delivery reports of a failed transaction have arrived
_MOST_REPORTS: Final = 20
"""How often to look for the report of the record because of which others were not sent."""

_HURRIED_SECONDS: Final = 0.1
_HURRIED_PRODUCERS: Final = 6

_TIMEOUT: Final = "transaction.timeout.ms"
_TRANSACTION_TIMEOUT_MS: Final = 60_000
"""librdkafka's default of it."""


class Slowness(NamedTuple):
    """A transaction for which there was too little time.

    is_ended: brokers have ended it. is_longer: the next one has more time. is_throttled: the client was above its
    quota. waiting, taken: records that brokers had not taken, and that they had. timeout_ms: its time-out.
    """

    is_ended: bool
    is_longer: bool
    is_throttled: bool
    waiting: int
    taken: int
    timeout_ms: int


class TransactionalClient:
    """The producer of one transactional id, and one transaction after the other.

    A call raises KafkaException for what librdkafka reports, unless it says otherwise; the caller decides what follows.

    Args:
        config: the configuration of the application.
        transactional_id: its id; each new producer of it fences those before.
        timeout_ms: the bound (ms) of one call.
        forced: settings that users may not change.
        defaults: settings that users may change.
        rights: those that its use needs besides that to the transactional id.
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
        """Those of the last producer; a call that was abandoned may still bring reports of an earlier one."""
        own = {"transactional.id": transactional_id}
        # Settings are made for each producer: secrets that they refer to may have changed.
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
        """For how long (s) the transaction has been open."""
        return time.monotonic() - self._began

    def ready(self, sending: Mapping[str, Any]) -> None:
        """Have a producer that has fenced all earlier ones, perhaps one of an earlier transaction; raises KafkaError.
        sending: settings of a new one."""
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
        """Take that `output` will be written; return whether that is possible with this producer, or needs a new one,
        for its records with timestamp 0."""
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
        """Give the producer all records; see `send_output`. Raises NewClientNeededError for records that are not
        claimed."""
        producer = self._ready_producer()
        self._pace.give(sum(len(each.batch) for each in output), len(producer))
        send_output(self.connection, producer, self._time_zero, output, on_refused, refuses)
        producer.poll(0)

    def lags(self) -> bool:
        """Return whether brokers take records so slowly that those sent should be committed before there are more."""
        return self._pace.seconds_left(self._waiting()) > min(LAG_SECONDS, self.time.seconds / 4)

    def drain(self, seconds: float) -> int:
        """Wait until brokers have accepted every record or not accepted one, or will not take all in time; return how
        many they have not answered."""
        return drained(self._ready_producer(), seconds, lambda: bool(self.reports.failures) or self._is_hopeless())

    def drain_while_taken(self) -> int:
        """Wait as `drain`, but as long as brokers take some, however long the transaction is open by then."""
        return drained_while_taken(self.connection, self._ready_producer(), lambda: bool(self.reports.failures))

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupIdentity, seconds: float, most: float
    ) -> None:
        """Commit `offsets` of `member` in the transaction; each text gets a zero byte at its end. seconds: the time-out
        of the request, which librdkafka does not always keep. most: after how long (s) UnansweredError is raised; time
        that brokers make the client wait is added, up to the time-out."""
        producer = self._ready_producer()
        positions = [Position(*partition, each.offset, each.metadata) for partition, each in offsets.items()]
        send = partial(producer.send_offsets_to_transaction, positions, group_metadata(member), seconds)
        latest = time.monotonic() + max(most, seconds + LATE_SECONDS)
        returning(most, lambda: until(seconds, send), lambda: min(self._throttled_until(), latest - most))
        self._has_offsets = True

    def connect_offsets(self) -> TransactionOffsets:
        """Return the commits of offsets without librdkafka; raises ConfigError if they do not know a setting."""
        if self._offsets is None:
            # An answer that is lost is not waited for longer than the transaction lasts.
            timeout_ms = min(self._timeout_ms, self.time.ms)
            self._offsets = TransactionOffsets(self._config, self._transactional_id, timeout_ms)
        return self._offsets

    def commit_texts(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupIdentity) -> None:
        """Commit `offsets` in the transaction without librdkafka, which writes a zero byte at the end of each text. The
        group must be a part of the transaction. Raises KafkaError if there is no answer."""
        code = self.connect_offsets().commit(offsets, member)
        if code:
            raise KafkaException(Code(code))

    def commit(self, seconds: float) -> None:
        """Commit the transaction within `seconds`; the next one may get a new producer, which begins as usual."""
        producer = self._ready_producer()
        if not self._has_offsets:  # then librdkafka may know of nothing to commit
            self._time_zero.commit()
        until(seconds, lambda: producer.commit_transaction(seconds))
        self.is_open = False
        is_calm = self.time.committed(self.age)
        if self._time_zero.committed() or is_calm:
            self.discard()

    def abort(self) -> None:
        """End the transaction without a commit. A producer that cannot, or whose commits are unknown, is thrown away,
        and the next one ends what it left open."""
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
        """Throw the producer away, with its transaction; the next one fences it."""
        self._producer, self.is_open = None, False
        self.connection.serve = nothing_to_serve  # else the connection keeps the producer

    def close(self) -> None:
        """Release connections and threads; an open transaction is left to the next producer."""
        self.discard()
        self._close_offsets()
        self._time_zero.close()

    def reason(self, error: Code) -> Code:
        """Return why the producer cannot go on, if it cannot: after that each call fails, and says only that it does,
        and a poll raises the reason. A poll also brings the reports of records, which may tell more."""
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
        """Give the next transaction more time, if `error` shows that this one had too little and more may help.

        Brokers that end a transaction for its time-out answer as if another producer had fenced this one. Returns None
        if it is not for the time.
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
        """Return whether brokers take records too slowly for all to be taken in time, as far as half of it shows."""
        age, waiting = self.age, self._waiting()
        is_known = age > self.time.seconds / 2 and self._pace.taken(waiting) > 0
        return is_known and self._pace.seconds_left(waiting) > 2 * (self.time.seconds - age)

    def _throttled_until(self) -> float:
        apart(partial(self._ready_producer().poll, 0))  # an error is being handled
        return self.connection.throttled_until

    def _forget_epoch(self) -> None:
        """Take that the next transaction may have another epoch."""
        if self._offsets is not None:
            self._offsets.forget()

    def _close_offsets(self) -> None:
        if self._offsets is not None:
            self._offsets.close()
            self._offsets = None


def initialized_within(
    timeout: TransactionTimeout, connection: ClientConnection, transactional_id: str, *rights: Right
) -> Producer:
    """As `initialized`, of a producer whose transactions may take `timeout`, or less where brokers refuse so much."""
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
    """Return a producer that has fenced all earlier ones of `transactional_id`. rights: those that it needs.

    While the broker completes the previous transaction, which takes milliseconds, it refuses, and librdkafka asks
    again only after half a second. A new producer asks immediately, so the first ones get little time.
    """
    deadline = time.monotonic() + connection.timeout
    patience, hurried = _HURRIED_SECONDS, _HURRIED_PRODUCERS
    while True:
        producer = connection.make(Producer)
        remaining = deadline - time.monotonic()
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
    """Return `member` as librdkafka writes the metadata of a consumer: those of a consumer that assigns partitions
    itself name no member, and offsets with them are taken from anybody."""
    generation = struct.pack("=i", member.generation)
    texts = f"{member.group}\0{member.member_id}\0".encode()
    instance = b"\x01" if member.instance_id is None else b"\x00" + member.instance_id.encode() + b"\0"
    return b"CGMDv2:" + generation + texts + instance


def transactional_right(transactional_id: str) -> Right:
    """Return the right that a producer of `transactional_id` needs."""
    return Right("WRITE", "transactional-id", transactional_id)
