"""The transactional writer: one transaction has all output of one epoch for one sink partition.

`TransactionalWriter` writes an epoch once, regardless of the number of calls and processes. The transaction of the
records also commits the *marker* of the epoch: an offset of an internal commits topic, which is the number of the
epoch, with the owner (the identity of its topology version) and a note as metadata. Three rules make zombies harmless:

1. A new producer first fences earlier producers of its transactional id, and ends their open transactions
   (`init_transactions`).
2. Then the writer reads the committed epoch, at each attempt, without a cache. If it is this epoch of this owner, the
   output is already committed.
3. Then the transaction follows. If it fails for any reason, the producer is discarded, and the next attempt begins at
   step 1. A producer that does not answer is also discarded: it could not abort, and brokers refuse its later requests.

Between 1 and the end of 3 no other producer can have written under the transactional id, or this producer is fenced
and its transaction fails.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException, Producer

from penstock.client.api import GroupCommit, GroupIdentity, OnRefused
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.commit_marker import COORDINATOR_TIMEOUT_MS, CommitMarker
from penstock.client.confluent.connection import ClientConnection, is_forbidden
from penstock.client.confluent.refusals import (
    MOST_REFUSED,
    ONE_BY_ONE,
    RefusedError,
    fail_on_refused,
    is_refusal,
    replaced,
)
from penstock.client.confluent.transaction_steps import UnansweredError, until
from penstock.client.confluent.transactional_client import TransactionalClient, transactional_right
from penstock.client.failures import Right
from penstock.client.settings import PRODUCER, client_settings
from penstock.client.sockets.offsets import MEMBER_FENCED, has_members
from penstock.config import StreamsConfig
from penstock.errors import RetriableError, StreamsError
from penstock.record import PartitionBatch, TopicPartition

_log = logging.getLogger(__name__)

_ATTEMPTS = 4
_LOOK_SECONDS = 0.5  # how often to check whether the login was refused

_NO_TRANSACTIONS: Final = frozenset(
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


class TransactionalWriter:
    """Writes each epoch of one sink partition exactly once; see the module. It connects when first used.

    Args:
        config: the application's configuration.
        transactional_id: the same in every process that writes for this sink partition, and in no other.
        group: consumer group under which epochs are committed.
        marker: partition of the commits topic for this sink partition; it must exist.
        before_commit: called with the epoch when its whole transaction is sent and nothing is committed.
        timeout_ms: timeout of each request.
        was_committed: see `CommitMarker`.
        before_write: called when earlier producers are fenced and nothing is sent; its errors are raised. It is called
            after the fence, because a check before it could miss a driver that starts in between, whose producer this
            one then fences.
    """

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
        self._config = config
        self._transactional_id = transactional_id
        self._before_commit = before_commit
        self._before_write = before_write
        self._timeout_ms = timeout_ms
        self._marker = CommitMarker(config, transactional_id, group, marker, timeout_ms, was_committed)
        forced = {"linger.ms": 1}
        self._client = TransactionalClient(config, transactional_id, timeout_ms, forced, {}, self._marker.rights)
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
        write = _EpochWrite(self._timeout_ms, epoch, output, group_commit)
        while True:
            if not self._client.claim(write.left) or self._client.is_open:  # open: an earlier call was interrupted
                self._client.discard()
            try:
                # Fence first, then look: what is committed after the fence stays so: no other producer can write.
                self._client.ready(write.settings)
                if self._marker.has(epoch, owner, note):
                    return False
            except RetriableError:
                if not write.may_wait():
                    raise
                continue
            self._before_write()
            if self._attempt(write, owner, note, on_refused):
                return True

    def fence(self) -> None:
        """Fence the previous writer, and end its open transaction; raises as `write`."""
        if self._client.is_open:  # an earlier call was interrupted
            self._client.discard()
        self._client.ready({})

    def has_written(self, epoch: int, owner: str) -> bool:
        """Fence the previous writer, and return whether the output of `epoch` of `owner` is committed.

        From then on no other writer can write it. Raises as `write`.
        """
        self.fence()
        return self._marker.has(epoch, owner, "")

    def close(self) -> None:
        """Release connections and threads; an open transaction is left to the next producer."""
        self._client.close()
        self._marker.close()
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _attempt(self, write: _EpochWrite, owner: str, note: str, on_refused: OnRefused) -> bool:
        """Write the remaining output in a transaction; return False if it must be written again."""
        refused: list[RefusedError] = []
        self._client.reports.forget()
        try:
            self._transaction(write, owner, note)
        except RefusedError as error:
            refused.append(error)
        except StreamsError:
            self._client.abort()  # else the offsets of the group wait until the transaction times out
            self._client.discard()
            raise
        except KafkaException as error:
            refused = self._take_failure(error, write)
        else:
            self._marker.committed_by(owner)
            if write.settings:  # batches of one record are slow
                self._client.discard()  # the next epoch gets a usual producer
            return True
        write.refusals += len(refused)
        try:
            write.left = replaced(write.left, refused, on_refused)
        except BaseException:
            self._client.abort()  # else readers of committed records wait until the transaction times out
            raise
        finally:
            # Whether the transaction was committed after all is unknown: only a new producer, which fences this one,
            # finds out.
            self._client.discard()
        return False

    def _transaction(self, write: _EpochWrite, owner: str, note: str) -> None:
        client = self._client
        seconds, patience = client.connection.timeout, write.patience
        client.begin()
        client.send(write.left)
        # The marker is part of the transaction: readers see output and marker together, or neither.
        client.send_offsets(self._marker.of(write.epoch, owner, note), self._marker.committer, seconds, patience)
        if write.group_commit is not None:
            self._commit_group(write.group_commit, patience)
        self._before_commit(write.epoch)
        remaining = client.drain_while_taken()
        if remaining and not client.reports.failures:
            raise KafkaException(Code(Code._MSG_TIMED_OUT, f"{remaining} records were not accepted"))
        client.commit(max(seconds, client.time.seconds - client.age))

    def _commit_group(self, group_commit: GroupCommit, patience: float) -> None:
        """Make the group part of the transaction, then commit the offsets again with their texts as they are."""
        no_member = GroupIdentity(group_commit.group, -1, "")
        self._client.send_offsets(group_commit.offsets, no_member, self._client.connection.timeout, patience)
        self._client.commit_texts(group_commit.offsets, no_member)
        # Offsets of a transaction are taken from anybody. Only now: an instance that joins the group after this waits
        # for the end of the transaction.
        if self._admin is None:
            self._admin = ConfluentAdmin(self._config, self._timeout_ms)
        group = self._admin.describe_group(group_commit.group)
        if group.members or group.state not in ("Empty", "Dead"):
            raise has_members(group_commit.group)

    def _take_failure(self, error: KafkaException, write: _EpochWrite) -> list[RefusedError]:
        """Return the records that another attempt leaves out; raise the error if it would not help."""
        code = self._client.reason(error.args[0])
        if write.group_commit is not None and error.args[0].code() in MEMBER_FENCED:
            self._client.discard()
            raise has_members(write.group_commit.group) from error
        reported_rows = self._client.reports.rows(write.left, is_refusal)
        is_early = isinstance(error, UnansweredError) and write.is_early()
        if not reported_rows:  # a refused record is no failure of the brokers, and has its own limit
            write.failures += not is_early and not self._gets_longer(code)
        # The report of a record shows a missing right, or that the brokers did not accept it in time, of which the
        # transaction only shows that they did not answer.
        reported = self._client.reports.first_failure()
        if reported is not None and (is_forbidden(reported[0]) or reported[0].code() == Code._MSG_TIMED_OUT):
            code = reported[0]
        if is_forbidden(code) or write.failures == _ATTEMPTS or write.refusals > MOST_REFUSED:
            self._client.discard()
            place = "" if reported is None else f" to {reported[1]}"
            named = [each.topic for each in write.left if each.topic in code.str()]
            topic = next(iter(named), None) if reported is None else reported[1].topic
            # Without a topic, it may be the right to commit an offset for the commits topic.
            needed = self._marker.rights[1] if topic is None else Right("WRITE", "topic", topic)
            doing = f"writing epoch {write.epoch}{place} as {self._transactional_id}"
            self._client.connection.fail(code, doing, needed, *self._client.rights)
        _log.info("Epoch %d of %s will be written again: %s", write.epoch, self._transactional_id, code.str())
        # One refused record fails its whole batch, so records are refused only where each has a batch of its own.
        refused = reported_rows if write.one_by_one else []
        write.one_by_one = write.one_by_one or bool(reported_rows)
        return refused

    def _gets_longer(self, error: Code) -> bool:
        """Return whether slow brokers caused `error`, and the next transaction has more time; that is no failure."""
        slow = self._client.slowness(error)
        return slow is not None and slow.is_longer and (slow.taken > 0 or slow.is_throttled)


class _EpochWrite:
    """One call of `write`: the remaining output, and the limits of its retries."""

    def __init__(
        self, timeout_ms: int, epoch: int, output: Sequence[PartitionBatch], group_commit: GroupCommit | None
    ) -> None:
        self.epoch = epoch
        self.left: Sequence[PartitionBatch] = list(output)
        self.group_commit = group_commit
        self.failures = 0
        self.refusals = 0
        self.one_by_one = False
        self._longest = 2 * timeout_ms / 1000
        self.patience = min(COORDINATOR_TIMEOUT_MS / 1000, self._longest)
        """Timeout (s) of the offsets of the transaction."""
        self._waits_until = 0.0

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of a new producer."""
        return ONE_BY_ONE if self.one_by_one else {}

    def is_early(self) -> bool:
        """Note a request without an answer; return whether it is too early to count it as a failure.

        The client may hang, or the coordinator may be unavailable or slow. Each client gets more time than the previous
        one, and failures count once the longest time is over.
        """
        self._waits_until = self._waits_until or time.monotonic() + self._longest
        self.patience = min(2 * self.patience, self._longest)
        return self.may_wait()

    def may_wait(self) -> bool:
        """Return whether to wait longer for brokers that do not answer."""
        return time.monotonic() < self._waits_until
