"""The membership of an instance in its group: its tasks, and commits reserved to members."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from penstock.client.api import GroupIdentity, OffsetAndMetadata
from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.threads import vocabulary as v
from penstock.host.threads.subscription import Endpoint
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition

Post = Callable[[v.Event], None]
"""Posts an event to the core, from any thread."""


class ChangelogPositions(Protocol):
    """The positions of the state of tasks. Called by the group thread."""

    def positions(self) -> Mapping[TaskId, int]:
        """Return the positions of tasks that this instance does not run. A position is the sum of the next offsets of
        the changelogs here."""
        ...

    def ends(self) -> Mapping[TaskId, int]:
        """Return the sum of the changelog ends of each task. Raises KafkaError if the brokers do not answer."""
        ...


class Membership(Protocol):
    """The group member of an instance. It posts `Assigned` and `MembershipLost` from its own thread."""

    def start(self) -> None:
        """Join the group; the answer is an event."""
        ...

    def identity(self) -> GroupIdentity | None:
        """Return the identity for commits, None while not a group member; from any thread."""
        ...

    def endpoints(self) -> Sequence[Endpoint]:
        """Return the endpoints for queries of all members' state; from any thread."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit `offsets` as the member; the answer is `OffsetsCommitted`, `MembershipLost` or `Failed`."""
        ...

    def commit_refused(self, code: int, member: GroupIdentity) -> None:
        """Note that the group refuses offsets committed by the transaction of this instance as `member`.
        `MembershipLost` follows if that ends the membership."""
        ...

    def fenced(self) -> bool:
        """Note that another producer has fenced the producer of this instance. Return whether another member of the
        group is known to have the same process id."""
        ...

    def give_up(self, tasks: frozenset[TaskId], assignments: int) -> None:
        """Report to the group that these tasks are closed here. assignments: the number that the core had received by
        then."""
        ...

    def step_back(self, error: Exception) -> None:
        """Leave the tasks to others, because the instance makes no progress; `MembershipLost` follows."""
        ...

    def shut_down(self) -> None:
        """Inform all members of the end of the application. `ApplicationShutDown` follows here and on each of them when
        they learn of it, or nothing if the group cannot be informed."""
        ...

    def leave(self, operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT) -> None:
        """End the membership; `operation` says whether the group learns of it at once."""
        ...

    def close(self) -> None:
        """Release the connection and the thread; safe to call again."""
        ...
