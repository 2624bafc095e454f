"""The output of the polling thread.

With at least once, output is flushed before offsets are committed; with exactly once, both are in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.client.api import (
    BatchProducer,
    CommitRefusedError,
    GroupIdentity,
    OffsetAndMetadata,
    OnRefused,
    RefusedOutputError,
    TransactionalProducer,
)
from penstock.errors import ProducerFencedError, TaskMigratedError
from penstock.host.threads import vocabulary as v
from penstock.host.threads.membership import Membership
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition

RefusedBy = Callable[[TaskId], OnRefused]
"""Returns the handler for a task's records that the producer refuses."""


class Output(Protocol):
    """The destination of the output of all tasks."""

    def do(self, action: v.OutputAction) -> v.Event | None:
        """Perform `action` and return the event for the core, or None for no event."""
        ...

    def close(self) -> None:
        """Release the producer."""
        ...


class AtLeastOnceOutput:
    """Writes without transactions.

    After a failed write, every action but `Abort` is ignored until the core aborts: all records since the last commit
    are processed again.

    Args:
        make_producer: makes the producer, and a new one after each failure.
        refused_by: returns the handler of a task's refused records.
    """

    def __init__(self, make_producer: Callable[[], BatchProducer], refused_by: RefusedBy) -> None:
        self._make_producer = make_producer
        self._refused_by = refused_by
        self._producer = make_producer()
        self._has_failed = False

    def do(self, action: v.OutputAction) -> v.Event | None:
        """Send or flush; a failed producer is replaced."""
        try:
            match action:
                case v.Abort() if self._has_failed:
                    self._has_failed = False
                case v.Abort():
                    self._producer.flush()
                case _ if self._has_failed:
                    return None
                case v.Send(output, task):
                    self._producer.send(output, self._refused_by(task))
                    return v.OutputLags() if self._producer.lags() else None
                case v.Flush():
                    return v.Written(self._producer.flush())
                case v.CommitTransaction():
                    raise AssertionError("There is no transaction.")
        except Exception as error:
            self._has_failed = not isinstance(action, v.Abort)
            self._producer.close()  # the failure may be permanent
            self._producer = self._make_producer()
            return v.TransactionLost(error, False) if isinstance(error, RefusedOutputError) else v.Failed(error)
        return None

    def close(self) -> None:
        """Release the producer."""
        self._producer.close()


class ExactlyOnceOutput:
    """Writes in transactions.

    A transaction belongs to the member that began it. If the group has removed that member since, the transaction is
    aborted, even if the instance has rejoined as another member, whose commit the group would accept. A newer
    generation of the same member is fine.

    After a transaction fails, every action but `Abort` is ignored until the core, which is notified later, aborts.
    Otherwise offsets would be committed without the lost records. If the group has refused the offsets, the membership
    is notified too, because it may have ended.

    Args:
        producer: writes the transactions.
        membership: of the instance in its group.
        refused_by: returns the handler of a task's refused records.
    """

    def __init__(self, producer: TransactionalProducer, membership: Membership, refused_by: RefusedBy) -> None:
        self._producer = producer
        self._refused_by = refused_by
        self._membership = membership
        self._member: GroupIdentity | None = None
        self._has_failed = False

    def do(self, action: v.OutputAction) -> v.Event | None:
        """Send, commit or abort."""
        try:
            match action:
                case v.Abort():
                    self._member, self._has_failed = None, False
                    self._producer.abort()
                case _ if self._has_failed:
                    return None
                case v.Send(output, task):
                    self._take_member()
                    self._producer.send(output, self._refused_by(task))
                    return v.OutputLags() if self._producer.lags() else None
                case v.CommitTransaction(offsets):
                    return v.TransactionCommitted(self._commit(offsets))
                case v.Flush():
                    raise AssertionError("A transaction is flushed by its commit.")
        except Exception as error:
            self._member = None
            self._has_failed = not isinstance(action, v.Abort)
            if isinstance(error, TaskMigratedError | RefusedOutputError):
                is_fenced = isinstance(error, ProducerFencedError) and self._membership.fenced()
                return v.TransactionLost(error, is_fenced)
            return v.Failed(error)
        return None

    def _take_member(self) -> GroupIdentity:
        if self._member is None:
            self._member = self._membership.identity()
        if self._member is None:
            raise TaskMigratedError("The instance is not a member of its group: its tasks belong to other instances.")
        return self._member

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, int]:
        member = self._committing_member()
        try:
            return self._producer.commit(offsets, member)
        except CommitRefusedError as error:
            self._membership.commit_refused(error.code, member)
            raise

    def _committing_member(self) -> GroupIdentity:
        begun, now = self._take_member(), self._membership.identity()
        self._member = None
        if now is None or now.member_id != begun.member_id:
            raise TaskMigratedError(
                f"The group {begun.group} has removed the member {begun.member_id}, which began the transaction: "
                "other instances have had its tasks since."
            )
        return now

    def close(self) -> None:
        """Release the producer and abort an open transaction."""
        self._producer.close()
