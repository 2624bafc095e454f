"""The writer of epochs in transactions: all output of one sink partition and one epoch in one transaction.

`TransactionalWriter` writes an epoch once, however often and from however many processes it is called. The transaction
that holds the records also commits, as an offset of an internal commits topic, the number of the epoch, with the owner
(the identity of its topology version) and a note as metadata: the *marker* of the epoch. Rules, which together make
zombies harmless:

1. A new producer first ends what earlier producers of its transactional id left open, and fences them
   (`init_transactions`).
2. Then the committed epoch is read, each time, never remembered: if it is this epoch of this owner, the output is there
   already.
3. Then the transaction. If it fails for whatever reason the producer is thrown away, and the next attempt begins at 1.
   So is a producer that does not answer: it could not abort, and what it still does after the fence is refused.

Between 1 and the end of 3 no other producer can have written under the transactional id, or this producer is fenced
and its transaction fails.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as Code
from confluent_kafka import TopicPartition as Position

from penstock.background import in_background
from penstock.client.api import GroupCommit, GroupIdentity, OnRefused
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.connection import RETRY_SECONDS, ClientConnection, apart, is_forbidden, passing
from penstock.client.confluent.pace import TIMED_OUT, Pace, TransactionTimeout, drained_while_taken
from penstock.client.confluent.refusals import (
    MOST_REFUSED,
    ONE_BY_ONE,
    RefusedError,
    Reports,
    fail_on_refused,
    replaced,
)
from penstock.client.confluent.sending import send_output
from penstock.client.confluent.time_zero import TransactionalTimeZero
from penstock.client.failures import Right
from penstock.client.settings import CONSUMER, HURRIED, PRODUCER, client_settings
from penstock.client.sockets.offsets import COUNTED_OUT, TransactionOffsets, has_members
from penstock.config import StreamsConfig
from penstock.errors import (
    KafkaError,
    RetriableError,
    StreamsError,
    TaskCorruptedError,
    TaskMigratedError,
)
from penstock.record import PartitionBatch, TopicPartition

_log = logging.getLogger(__name__)

_ATTEMPTS = 4
_REPORT_SECONDS = 0.1  # until the delivery reports of a failed transaction have arrived
_LOOK_SECONDS = 0.5  # how often to check whether the login was refused
_HURRIED_SECONDS = 0.1
_HURRIED_PRODUCERS = 6
_COORDINATOR_TIMEOUT_MS = 10_000
"""How long a client may take to reach the coordinator of the group. librdkafka may not find one that has moved (its
issue 5511); a new client finds it immediately."""

_TIMEOUT = "transaction.timeout.ms"
_TRANSACTION_TIMEOUT_MS = 60_000
"""librdkafka's default of it."""

_NO_TRANSACTIONS = frozenset(
    (
        Code.UNSUPPORTED_VERSION,
        Code._UNSUPPORTED_FEATURE,
        Code.INVALID_REQUEST,
    )
)


def transactions_refused(config: StreamsConfig, transactional_id: str, timeout_ms: int = 15_000) -> str | None:
    """Return why the brokers have no transactions, None if they have them.

    Creates a producer to find out. Raises TransactionalIdAuthorizationError if the brokers do not allow this user
    `transactional_id`, BrokerNotFoundError, and KafkaError for any other trouble.
    """
    forced = {"transactional.id": transactional_id}
    connection = ClientConnection(client_settings(config, PRODUCER, forced), timeout_ms)
    producer = connection.make(Producer)
    connection.serve = producer.poll

    def begin() -> None:
        try:
            producer.init_transactions(min(_LOOK_SECONDS, connection.timeout))
        except KafkaException as error:
            if connection.is_refused():
                raise KafkaException(connection.noticed) from error
            raise

    try:
        until(connection.timeout, begin)
    except KafkaException as error:
        code: Code = error.args[0]
        if code.code() in _NO_TRANSACTIONS:
            return str(code.str())
        connection.fail(code, f"checking transactions as {transactional_id}", transactional_right(transactional_id))
    return None


FENCED = frozenset((Code._FENCED, Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED))
"""Codes of calls to a producer that another one has fenced, or whose transaction brokers have ended."""


class UnansweredError(KafkaException):
    """A producer has not returned from a step of its transaction: it cannot abort, and what it has done is unknown."""


class TransactionalWriter:
    """Writes each epoch of one sink partition exactly once; see the module."""

    def __init__(
        self,
        config: StreamsConfig,
        transactional_id: str,
        group: str,
        marker: TopicPartition,
        before_commit: Callable[[int], object],
        timeout_ms: int = 60_000,
        was_committed: Callable[[int], bool] = lambda _: False,
        before_write: Callable[[], object] = lambda: None,
    ) -> None:
        """Connect when first used.

        Args:
            config: the application's configuration.
            transactional_id: the same in every process that writes for this sink partition, and in no other.
            group: consumer group under which epochs are committed.
            marker: partition of the commits topic for this sink partition; it must exist.
            before_commit: called with the epoch when its whole transaction is sent and nothing is committed.
            timeout_ms: timeout of each request.
            was_committed: called with the epoch if there is no marker: whether that epoch is known to be committed
                anyway. Brokers delete committed offsets after `offsets.retention.minutes`.
            before_write: called when earlier producers are fenced and nothing is sent; its errors are raised. It is
                called after the fence, because a check before it could miss a driver that starts in between, whose
                producer this one then fences.
        """
        self._was_committed = was_committed
        self._before_write = before_write
        self._reports = Reports()
        self._time_zero = TransactionalTimeZero(config, timeout_ms, transactional_id)
        self._seen: str | None = None
        self._config = config
        self._transactional_id = transactional_id
        self._group = group
        self._marker = marker
        self._before_commit = before_commit
        self._timeout_ms = timeout_ms
        self._reading = (Right("READ", "group", group), Right("READ", "topic", marker.topic))
        self._rights = (transactional_right(transactional_id), *self._reading)
        self._time: TransactionTimeout | None = None
        self._pace = Pace()
        self._began = 0.0
        self._producer: tuple[ClientConnection, Producer] | None = None
        self._reader: tuple[ClientConnection, Consumer] | None = None
        self._offsets: TransactionOffsets | None = None
        self._admin: ConfluentAdmin | None = None

    def write(
        self,
        epoch: int,
        owner: str,
        output: Sequence[PartitionBatch],
        on_refused: OnRefused = fail_on_refused,
        note: str = "",
        group_commit: GroupCommit | None = None,
    ) -> bool:
        """Write `output` as that of `epoch` of `owner`; return False if it is already committed.

        Args:
            epoch, owner: together they name the output; neither has a space in it.
            output: the records, in order for each partition.
            on_refused: decides about records that brokers refuse; if it raises, the error is raised and nothing is
                written.
            note: identifies the input of the epoch; at most 3,000 characters.
            group_commit: offsets that the transaction commits too.

        Raises:
            TaskMigratedError: a later epoch of `owner` is committed, so this process is a zombie; another topology
                version of the application writes at the same time; or the group of `group_commit` has members.
            TaskCorruptedError: the epoch is committed with another note.
            KafkaError: the transaction failed several times, each with a new producer.
        """
        left, one_by_one, failures, refusals = list(output), False, 0, 0
        longest = 2 * self._timeout_ms / 1000
        patience, waits_until = min(_COORDINATOR_TIMEOUT_MS / 1000, longest), 0.0
        while True:
            if not self._time_zero.claim(left):
                self._producer = None
            try:
                # Fence first, then look: what is committed after the fence stays so: no other producer can write.
                connection, producer = self._ready(one_by_one)
                if self._is_committed(epoch, owner, note):
                    return False
            except RetriableError:
                if time.monotonic() >= waits_until:
                    raise
                continue
            self._before_write()
            self._reports.clear()
            refused: list[RefusedError] = []
            try:
                self._transaction(connection, producer, epoch, f"{owner} {note}".rstrip(), left, group_commit, patience)
                self._seen = owner
                if self._time_zero.committed() or one_by_one:  # batches of one record are slow
                    self._producer = None  # the next epoch gets a usual producer
                return True
            except RefusedError as error:
                refused.append(error)
            except StreamsError:
                self._producer = None
                with suppress(KafkaException):  # else the offsets of the group wait until the transaction times out
                    returning(patience, partial(producer.abort_transaction, connection.timeout))
                raise
            except KafkaException as error:
                with suppress(KafkaException):  # a producer that was fenced has nothing more to tell
                    apart(partial(producer.poll, _REPORT_SECONDS))
                if group_commit is not None and error.args[0].code() in COUNTED_OUT:
                    self._producer = None
                    raise has_members(group_commit.group) from error
                reported = self._reports.refused(left)
                is_early = False
                if isinstance(error, UnansweredError):
                    # The client may hang, or the coordinator be away or slow: each client gets more time than the one
                    # before, and failures count when `longest` is over.
                    waits_until = waits_until or time.monotonic() + longest
                    patience, is_early = min(2 * patience, longest), time.monotonic() < waits_until
                # a refused record is no failure of the brokers, and has its own limit
                failures += not reported and not is_early and not self._gets_longer(connection, producer, error.args[0])
                failed = self._failure(error.args[0])
                if is_forbidden(failed) or failures == _ATTEMPTS or refusals > MOST_REFUSED:
                    self._producer = None
                    doing = f"writing epoch {epoch}{self._place()} as {self._transactional_id}"
                    connection.fail(failed, doing, self._topic_right(failed, left), *self._rights)
                _log.info(
                    "Epoch %d of %s will be written again: %s", epoch, self._transactional_id, error.args[0].str()
                )
                if one_by_one:
                    refused.extend(reported)
                one_by_one = one_by_one or bool(reported)
            # Whether the transaction was committed after all is unknown: only a new producer, which fences this one,
            # finds out.
            self._producer = None
            refusals += len(refused)
            left = replaced(left, refused, on_refused)

    def _gets_longer(self, connection: ClientConnection, producer: Producer, error: Code) -> bool:
        """Return whether brokers have taken records too slowly for the transaction, and the next one has more time:
        that is no failure. They answer as if another producer had fenced this one where they have ended it."""
        assert self._time is not None
        age, waiting = time.monotonic() - self._began, len(producer) + len(self._reports)
        taken = self._pace.taken(waiting)
        is_ended = error.code() in FENCED and age >= self._time.seconds
        is_longer = (is_ended or error.code() in TIMED_OUT) and self._time.lengthen(age, waiting, taken)
        return is_longer and (taken > 0 or connection.throttled_until >= self._began)

    def fence(self) -> None:
        """Fence the previous writer, and end its open transaction; raises as `write`."""
        self._ready(one_by_one=False)

    def has_written(self, epoch: int, owner: str) -> bool:
        """Fence the previous writer, and return whether the output of `epoch` of `owner` is committed.

        From then on no other writer can write it. Raises as `write`.
        """
        self.fence()
        return self._is_committed(epoch, owner, "")

    def close(self) -> None:
        """Release connections and threads; an open transaction is left to the next producer."""
        self._producer = None
        self._time_zero.close()
        if self._reader is not None:
            self._reader[1].close()
            self._reader = None
        if self._offsets is not None:
            self._offsets.close()
            self._offsets = None
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _failure(self, error: Code) -> Code:
        """Return why a transaction has failed: the delivery report of its records, if it shows a missing right, or that
        the brokers did not accept a record in time, of which the transaction only shows that they did not answer."""
        reported = self._reports.first_failure()
        says_more = reported is not None and (is_forbidden(reported[0]) or reported[0].code() == Code._MSG_TIMED_OUT)
        return reported[0] if reported is not None and says_more else error

    def _place(self) -> str:
        """Return for a message to which partition a record was not delivered."""
        reported = self._reports.first_failure()
        return "" if reported is None else f" to {reported[1]}"

    def _topic_right(self, error: Code, output: Sequence[PartitionBatch]) -> Right:
        """Return the missing right on a topic if a transaction fails with `error`: to write to one, or to commit an
        offset for the commits topic."""
        reported = self._reports.first_failure()
        written = [] if reported is None else [reported[1].topic]
        named = next(iter([*written, *(each.topic for each in output if each.topic in error.str())]), None)
        return Right("READ", "topic", self._marker.topic) if named is None else Right("WRITE", "topic", named)

    def _ready(self, one_by_one: bool) -> tuple[ClientConnection, Producer]:
        """Return a producer that has fenced all earlier ones, perhaps one of an earlier epoch; a new one sends records
        `one_by_one` if requested."""
        if self._producer is None:
            forced = {
                "transactional.id": self._transactional_id,
                "linger.ms": 1,
                "on_delivery": self._reports.delivered,
                **(ONE_BY_ONE if one_by_one else {}),
            }
            settings = self._time_zero.settings(client_settings(self._config, PRODUCER, forced, HURRIED))
            self._time = self._time or TransactionTimeout(int(settings.get(_TIMEOUT, _TRANSACTION_TIMEOUT_MS)))
            connection = ClientConnection(settings, self._timeout_ms)
            producer = initialized_within(self._time, connection, self._transactional_id, *self._rights)
            self._time_zero.continue_with(producer, connection.timeout)
            self._producer = connection, producer
            if self._offsets is not None:
                self._offsets.forget()
        return self._producer

    def _is_committed(self, epoch: int, owner: str, note: str) -> bool:
        found = self._committed()
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

    def _committed(self) -> Position:
        """Return the committed epoch. A reader that knew its group before the last broker was away may not find it any
        more: then a new reader asks."""
        deadline = time.monotonic() + self._timeout_ms / 1000
        position = Position(self._marker.topic, self._marker.partition)
        while True:
            connection, reader = self._open_reader()
            try:
                ask = partial(_committed_by, reader, position, connection.timeout)
                found = connection.call(f"reading the committed epoch at {self._marker}", ask, *self._reading)
                connection.answered()
                return found
            except RetriableError:
                self._reader = None
                if time.monotonic() >= deadline:
                    raise

    def _open_reader(self) -> tuple[ClientConnection, Consumer]:
        if self._reader is None:
            # read_committed makes librdkafka ask for stable offsets, so it waits for a commit in progress.
            forced = {"group.id": self._group, "isolation.level": "read_committed"}
            timeout_ms = min(self._timeout_ms, _COORDINATOR_TIMEOUT_MS)
            connection = ClientConnection(client_settings(self._config, CONSUMER, forced, HURRIED), timeout_ms)
            reader = connection.make(Consumer)
            connection.serve_events_of(reader)
            self._reader = connection, reader
        return self._reader

    def _transaction(
        self,
        connection: ClientConnection,
        producer: Producer,
        epoch: int,
        metadata: str,
        output: Sequence[PartitionBatch],
        group_commit: GroupCommit | None,
        patience: float,
    ) -> None:
        marker = Position(self._marker.topic, self._marker.partition, epoch, metadata)
        self._began = time.monotonic()
        producer.begin_transaction()
        self._pace.give(sum(len(each.batch) for each in output), 0)
        send_output(connection, producer, self._time_zero, output)
        # The marker is part of the transaction: readers see output and marker together, or neither.
        self._send_offsets(connection, producer, [marker], self._reader_group(), patience)
        if group_commit is not None:
            self._commit_group(connection, producer, group_commit, patience)
        self._before_commit(epoch)
        self._wait_for_reports(connection, producer)
        assert self._time is not None
        seconds = max(connection.timeout, self._time.seconds - (time.monotonic() - self._began))
        until(seconds, lambda: producer.commit_transaction(seconds))
        self._time.committed(time.monotonic() - self._began)

    def _send_offsets(
        self, connection: ClientConnection, producer: Producer, offsets: list[Position], group: object, patience: float
    ) -> None:
        send = partial(producer.send_offsets_to_transaction, offsets, group, connection.timeout)
        throttled = partial(_throttled_until, connection, producer)
        returning(patience, lambda: until(connection.timeout, send), throttled)

    def _commit_group(
        self, connection: ClientConnection, producer: Producer, group_commit: GroupCommit, patience: float
    ) -> None:
        """Make the group part of the transaction, then commit the offsets again with their texts as they are."""
        nobody = GroupIdentity(group_commit.group, -1, "")
        positions = [
            Position(*partition, each.offset, each.metadata) for partition, each in group_commit.offsets.items()
        ]
        self._send_offsets(connection, producer, positions, group_metadata(nobody), patience)
        if self._offsets is None:
            self._offsets = TransactionOffsets(self._config, self._transactional_id, self._timeout_ms)
        code = self._offsets.commit(group_commit.offsets, nobody)
        if code:
            raise KafkaException(Code(code))
        # Offsets of a transaction are taken from anybody. Only now: an instance that joins the group after this waits
        # for the end of the transaction.
        if self._admin is None:
            self._admin = ConfluentAdmin(self._config, self._timeout_ms)
        group = self._admin.describe_group(group_commit.group)
        if group.members or group.state not in ("Empty", "Dead"):
            raise has_members(group_commit.group)

    def _wait_for_reports(self, connection: ClientConnection, producer: Producer) -> None:
        """Wait until the brokers have accepted every record or refused one."""
        remaining = drained_while_taken(connection, producer, lambda: len(self._reports) > 0)
        if remaining and not self._reports:
            raise KafkaException(Code(Code._MSG_TIMED_OUT, f"{remaining} records were not accepted"))

    def _reader_group(self) -> object:
        assert self._reader is not None
        return self._reader[1].consumer_group_metadata()


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
            _init_transactions(producer, min(patience, remaining))
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


def _init_transactions(producer: Producer, seconds: float) -> None:
    until(seconds, lambda: producer.init_transactions(seconds))


def until(seconds: float, step: Callable[[], object]) -> None:
    """Run a step of the transaction protocol, repeated while its error is a passing one, for at most `seconds`; raises
    KafkaException."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            step()
            return
        except KafkaException as error:
            code: Code = error.args[0]
            if code.fatal() or code.txn_requires_abort() or not passing(code) or time.monotonic() >= deadline:
                raise
            time.sleep(RETRY_SECONDS)


def returning(seconds: float, step: Callable[[], object], throttled_until: Callable[[], float] = lambda: 0.0) -> None:
    """Run a step that may not return in spite of its timeout: librdkafka waits for a group coordinator that went away.
    Raises UnansweredError after `seconds`, and abandons the waiting thread with its producer. throttled_until: returns
    until when (s, monotonic) brokers make the client wait, a time that does not count."""
    deadline = time.monotonic() + seconds
    future = in_background("penstock-transaction", step)
    try:
        while True:
            try:
                future.result(max(deadline - time.monotonic(), 0))
                return
            except TimeoutError as error:
                deadline = throttled_until() + seconds
                if time.monotonic() >= deadline:
                    raise UnansweredError(
                        Code(Code._TIMED_OUT, "the request for the offsets of the transaction got no answer")
                    ) from error
    finally:
        del future  # it has the error, whose frames have it: a reference cycle


def _throttled_until(connection: ClientConnection, producer: Producer) -> float:
    producer.poll(0)
    return connection.throttled_until


def _committed_by(reader: Consumer, asked: Position, seconds: float) -> Position:
    (position,) = reader.committed([asked], seconds)
    if position.error is not None:
        raise KafkaException(position.error)
    return position
