"""What the host needs of the group: which tasks are its own, and offsets that only a member may commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from penstock.client.api import GroupIdentity, OffsetAndMetadata
from penstock.host.threads import vocabulary as v
from penstock.host.threads.subscription import Endpoint
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition

Post = Callable[[v.Event], None]
"""Gives an event to the core, from any thread."""


class ChangelogPositions(Protocol):
    """How much there is of the state of tasks. The thread of the group asks."""

    def positions(self) -> Mapping[TaskId, int]:
        """Return what this instance has of the state of tasks that it does not run, as the sum of the next offsets of
        their changelogs."""
        ...

    def ends(self) -> Mapping[TaskId, int]:
        """Return the sum of the ends of the changelogs of each task; raises KafkaError if the brokers do not answer."""
        ...


class Membership(Protocol):
    """The member of the group that an instance is. It tells `Assigned` and `MembershipLost` from its own thread."""

    def start(self) -> None:
        """Join the group; the answer is an event."""
        ...

    def identity(self) -> GroupIdentity | None:
        """Return who commits for the instance, None while it is no member; from any thread."""
        ...

    def endpoints(self) -> Sequence[Endpoint]:
        """Return where the state of all members can be asked for; from any thread."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit `offsets` as the member; the answer is `OffsetsCommitted`, `MembershipLost` or `Failed`."""
        ...

    def commit_refused(self, code: int, member: GroupIdentity) -> None:
        """Take that the group refuses offsets which the transaction of this instance commits as `member`;
        `MembershipLost` follows if that ends the membership."""
        ...

    def fenced(self) -> bool:
        """Take that another producer has fenced that of this instance; return whether another member of the group has
        the process id of this one, as far as is known."""
        ...

    def give_up(self, tasks: frozenset[TaskId], assignments: int) -> None:
        """Tell the group that these tasks are closed here. assignments: how many the core had taken by then."""
        ...

    def step_back(self, error: Exception) -> None:
        """Leave the tasks to others, because the instance does not get on; `MembershipLost` follows."""
        ...

    def shut_down(self) -> None:
        """Tell all members that the application ends; `ApplicationShutDown` follows when they hear of it, here and in
        each of them, or nothing where the group cannot be told."""
        ...

    def leave(self) -> None:
        """Leave the group."""
        ...

    def close(self) -> None:
        """Release the connection and the thread; harmless when called again."""
        ...
