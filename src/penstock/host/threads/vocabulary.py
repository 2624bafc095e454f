"""The messages between the core of an instance and the threads around it.

An event reports a fact; an action is a request of the core. All are frozen values. The core (`instance`) receives
events and returns actions; it exchanges no other data with the threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from penstock.client.api import OffsetAndMetadata
from penstock.host.api import StreamThreadExceptionResponse
from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.threads.new_calls import NO_CALLS, NewCalls
from penstock.metrics import SensorReport
from penstock.metrics.measurements import Measurement
from penstock.plan.subtopology import TaskId
from penstock.record import PartitionBatch, RecordBatch, TopicPartition, size_of
from penstock.state.api import Base
from penstock.task.changelog_copy import ChangelogStamp
from penstock.task.idling import InputWait
from penstock.task.partition_group import BufferSize
from penstock.task.task_checkpoint import TaskCheckpoint

GLOBAL_TASK = TaskId(-1, -1)
"""The id of the global stores' task. Each instance has it if the topology has global stores."""


@dataclass(frozen=True)
class OpenedState:
    """The state of a restored task.

    stamp: of the base. positions: the next offset of each partition that the task reads. checkpoint: the task's state
    outside of its stores. ends: for the global task, the offsets that it must reach before other tasks may start; for
    others, the ends of their answers partitions.
    """

    base: Base
    stamp: ChangelogStamp
    positions: Mapping[TopicPartition, int]
    checkpoint: TaskCheckpoint
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)


class Unread(NamedTuple):
    """The progress in a partition that is not read to its end.

    position: the committed offset. stable: the current end for readers of committed records.
    """

    position: int
    end: int
    stable: int


# ---------------------------------------- events


@dataclass(frozen=True)
class Assigned:
    """The group assigned exactly these tasks to the instance. standbys: other instances' tasks to keep a copy of."""

    tasks: frozenset[TaskId]
    standbys: frozenset[TaskId] = frozenset()


@dataclass(frozen=True)
class MembershipLost:
    """The group removed the instance, which may no longer commit."""

    error: Exception


@dataclass(frozen=True)
class MembershipRefused:
    """The group refuses the instance as a member, for a possibly permanent reason.

    The instance has no tasks any more, and the handler of uncaught exceptions decides whether it tries again.
    """

    error: Exception


@dataclass(frozen=True)
class ApplicationShutDown:
    """All instances of the group are to commit and end.

    error: ends this instance; None for the requesting instance, which has an error of its own.
    """

    error: Exception | None


@dataclass(frozen=True)
class SessionTimedOut:
    """Other instances may have the tasks of this one.

    The coordinator has not answered for the session timeout, or it has refused a commit for an unknown reason.
    Processing stops until `Reconnected`, `Assigned` or `MembershipLost`.
    """


@dataclass(frozen=True)
class Reconnected:
    """The coordinator answers again, and the instance still has its tasks."""


@dataclass(frozen=True)
class Restored:
    """The state of a task is restored to the end of its changelogs."""

    task: TaskId
    state: OpenedState


@dataclass(frozen=True)
class Started:
    """The processors of a task are initialised. next_wall_clock_ms, calls: as in `Ran` and `CommitApplied`."""

    task: TaskId
    next_wall_clock_ms: int | None
    calls: NewCalls = NO_CALLS


@dataclass(frozen=True)
class Arrived:
    """Records of a partition that the instance reads."""

    partition: TopicPartition
    batch: RecordBatch

    @cached_property
    def size(self) -> int:
        """The bytes of the keys and values, counted once."""
        return size_of(self.batch)


@dataclass(frozen=True)
class OutOfRange:
    """A partition lacks the offset to read: its records were deleted, or never existed."""

    partition: TopicPartition
    error: Exception


@dataclass(frozen=True)
class PositionReset:
    """The new offset of a partition that was out of range."""

    partition: TopicPartition
    position: int


@dataclass(frozen=True)
class EndsKnown:
    """The current end offsets of partitions, as the broker reported with the last records."""

    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class EndsReached:
    """All offsets before these ends have been read; the last ones may have no record."""

    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class UnreadFound:
    """The group's uncommitted input up to the planned end; None if brokers did not answer."""

    unread: Mapping[TopicPartition, Unread] | None


@dataclass(frozen=True)
class Ran:
    """A task has processed the records of a run, except those that have to wait.

    Args:
        task: the task.
        output: its output.
        waiting: the size of the waiting records in the task, by partition with waiting records.
        next_wall_clock_ms: the time of its next work without records, None for never.
        commit_requested: whether a processor asked for a commit.
        uncommitted_bytes: the size of its state changes.
        records: the number of processed records.
        nanoseconds: the duration of the run.
        awaited: the partitions that the waiting records wait for.
        punctuation_nanoseconds: the part of the duration spent in punctuations.
        adds_calls: whether a commit may free calls: of new records, or of those that wait since the task was opened.
    """

    task: TaskId
    output: Sequence[PartitionBatch] = ()
    waiting: Mapping[TopicPartition, BufferSize] = field(default_factory=dict)
    next_wall_clock_ms: int | None = None
    commit_requested: bool = False
    uncommitted_bytes: int = 0
    records: int = 0
    nanoseconds: int = 0
    awaited: tuple[TopicPartition, ...] = ()
    punctuation_nanoseconds: int = 0
    adds_calls: bool = False


@dataclass(frozen=True)
class CommitPrepared:
    """A task has flushed its caches.

    output: with the records for its changelogs. offsets: to commit. measured, sensors, dropped: since the previous
    prepared commit, by operation; the number of dropped records. nanoseconds: the duration of the preparation.
    """

    task: TaskId
    output: Sequence[PartitionBatch]
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    measured: Mapping[str, Measurement] = field(default_factory=dict)
    sensors: Sequence[SensorReport] = ()
    dropped: int = 0
    nanoseconds: int = 0


@dataclass(frozen=True)
class OutputLags:
    """Brokers accept output so slowly that a commit should precede more output."""


@dataclass(frozen=True)
class Written:
    """Brokers have all sent records. ends: the next offset of each written partition."""

    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class OffsetsCommitted:
    """The offsets of a commit are durable."""


@dataclass(frozen=True)
class TransactionCommitted:
    """Records and offsets of a commit are durable. ends: as in `Written`."""

    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class TransactionLost:
    """The output since the last commit is lost and must be repeated.

    The transaction was refused and is over, because another instance has the tasks or the same transactional id, or
    because the broker has ended it after transaction.timeout.ms; or brokers refuse records. is_fenced: whether the
    producer of another member of the group was the reason.
    """

    error: Exception
    is_fenced: bool


@dataclass(frozen=True)
class CommitApplied:
    """The base of a task has the changes of the commit. calls: those that may be made now."""

    task: TaskId
    next_wall_clock_ms: int | None
    calls: NewCalls = NO_CALLS


@dataclass(frozen=True)
class Closed:
    """A task is closed, and its base is free for others. stamp: of the base, None without one."""

    task: TaskId
    stamp: ChangelogStamp | None = None


@dataclass(frozen=True)
class Hangs:
    """Actions on these tasks are unanswered for now, because a function does not return."""

    tasks: frozenset[TaskId]


@dataclass(frozen=True)
class Failed:
    """An action failed. task: the affected task, None for all."""

    error: BaseException
    task: TaskId | None = None


@dataclass(frozen=True)
class StandbysFailed:
    """A standby copy failed, and all of them are closed."""

    error: BaseException


@dataclass(frozen=True)
class Decided:
    """The handler of uncaught exceptions has answered."""

    response: StreamThreadExceptionResponse


@dataclass(frozen=True)
class PauseRequested:
    """No task may process until `ResumeRequested`."""


@dataclass(frozen=True)
class ResumeRequested:
    """Tasks may process again."""


@dataclass(frozen=True)
class CloseRequested:
    """Commit, then end. operation: whether the instance leaves the group."""

    operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT


@dataclass(frozen=True)
class TimePassed:
    """Time has passed."""


FREQUENT = (Arrived, Ran, EndsReached, EndsKnown)
"""Events of each few records. They change neither the tasks of an instance nor their states."""
RecordEvent = Arrived | OutOfRange | PositionReset | EndsKnown | EndsReached | UnreadFound | Ran
CommitEvent = CommitPrepared | OutputLags | Written | OffsetsCommitted | TransactionCommitted | CommitApplied
GroupEvent = Assigned | MembershipLost | MembershipRefused | ApplicationShutDown | SessionTimedOut | Reconnected
TaskEvent = Restored | Started | Closed | Hangs
ErrorEvent = TransactionLost | Failed | StandbysFailed | Decided
RequestEvent = PauseRequested | ResumeRequested | CloseRequested
Event = RecordEvent | CommitEvent | GroupEvent | TaskEvent | ErrorEvent | RequestEvent | TimePassed


# ---------------------------------------- actions


@dataclass(frozen=True)
class Restore:
    """Restore the state of a task; answered by `Restored`, `Failed`, or `Closed` if cancelled."""

    task: TaskId


@dataclass(frozen=True)
class CancelRestore:
    """Cancel the restore of a moving task; answered by `Closed`, unless it ends before."""

    task: TaskId


@dataclass(frozen=True)
class StandBy:
    """Keep a standby copy of a task until it is restored or `StandDown`; not answered."""

    task: TaskId


@dataclass(frozen=True)
class StandDown:
    """Close the standby copy of a task; not answered."""

    task: TaskId


@dataclass(frozen=True)
class Start:
    """Create a task over its state and initialise its processors; answered by `Started` or `Failed`."""

    task: TaskId
    state: OpenedState
    now_ms: int


@dataclass(frozen=True)
class Follow:
    """Read these partitions from these offsets."""

    positions: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Unfollow:
    """Stop reading these partitions."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class ResetPosition:
    """Reset the position of an out-of-range partition; answered by `PositionReset` or `Failed`."""

    partition: TopicPartition


@dataclass(frozen=True)
class FindUnread:
    """Find uncommitted input up to `ends` and in repartition topics; answered by `UnreadFound` or `Failed`."""

    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class PauseReading:
    """Stop fetching these partitions for now."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class ResumeReading:
    """Fetch these partitions again."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class RunTask:
    """Give records to a task and let it process them; answered by `Ran` or `Failed`.

    wait: the state of the inputs that it may wait for. commit: the number of the commit that will include the run, for
    the log; set by the polling thread.
    """

    task: TaskId
    records: Sequence[tuple[TopicPartition, RecordBatch]]
    wait: InputWait
    now_ms: int
    commit: int = 0


@dataclass(frozen=True)
class Prepare:
    """Flush the caches of a task for a commit; answered by `CommitPrepared` or `Failed`. commit: as in `RunTask`."""

    task: TaskId
    now_ms: int
    commit: int = 0


@dataclass(frozen=True)
class Send:
    """Write records of a task in the background."""

    output: Sequence[PartitionBatch]
    task: TaskId


@dataclass(frozen=True)
class Flush:
    """Wait until all sent records are written; answered by `Written` or `Failed`."""


@dataclass(frozen=True)
class CommitOffsets:
    """Commit offsets as a group member; answered by `OffsetsCommitted`, `MembershipLost` or `Failed`."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True)
class CommitTransaction:
    """Commit sent records, and offsets as a member; answered by `TransactionCommitted`, `TransactionLost` or
    `Failed`."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True)
class Abort:
    """Abort the transaction, so that no consumer reads the output since the last commit.

    Without transactions, wait until that output is written.
    """


@dataclass(frozen=True)
class Apply:
    """Apply the changes of a commit to a task's base; answered by `CommitApplied` or `Failed`.

    ends: as in `Written`. committed: the committed offsets of the task's inputs.
    """

    task: TaskId
    ends: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Purge:
    """Delete the records of repartition and answers topics before these committed positions, if due; not answered."""

    positions: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Close:
    """Close a task and its base without a commit; answered by `Closed`. state: of a task that was not started."""

    task: TaskId
    state: OpenedState | None = None


@dataclass(frozen=True)
class GiveUp:
    """Inform the group of tasks closed here, so that other members may run them.

    assignments: the number of `Assigned` events that the core had received by then.
    """

    tasks: frozenset[TaskId]
    assignments: int


@dataclass(frozen=True)
class StepBack:
    """Leave the tasks to other members for now, because of `error`; answered by `MembershipLost`."""

    error: Exception


@dataclass(frozen=True)
class LookForHung:
    """Check for functions that have not returned for `limit_ms`; answered by `Hangs` with their tasks."""

    limit_ms: int


@dataclass(frozen=True)
class EndHung:
    """End workers busy with one action for `limit_ms`, if possible; then their actions are answered."""

    limit_ms: int


@dataclass(frozen=True)
class ShutDownApplication:
    """End all instances of the group; answered by `ApplicationShutDown`, unless the group is unreachable."""


@dataclass(frozen=True)
class Leave:
    """End the membership of the group."""

    operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT


@dataclass(frozen=True)
class Ask:
    """Ask the handler of uncaught exceptions about an error; answered by `Decided`."""

    error: BaseException


@dataclass(frozen=True)
class TellRetry:
    """Report a retry after a transient failure.

    task: the task whose restore alone is retried; None if all tasks are opened again.
    """

    error: BaseException
    task: TaskId | None = None


@dataclass(frozen=True)
class TellRunning:
    """Report to the application that all its tasks are being processed."""


@dataclass(frozen=True)
class TellRebalancing:
    """Report to the application that tasks are being set up."""


@dataclass(frozen=True)
class End:
    """The instance has ended. error: the cause, None for a requested or planned end."""

    error: BaseException | None = None


TaskAction = Start | RunTask | Prepare | Apply | Close
RestoreAction = Restore | ResetPosition | FindUnread | StandBy | StandDown | Purge
ReadAction = Follow | Unfollow | PauseReading | ResumeReading
OutputAction = Send | Flush | CommitTransaction | Abort
GroupAction = CommitOffsets | GiveUp | StepBack | ShutDownApplication | Leave
HungAction = LookForHung | EndHung
TellAction = Ask | TellRetry | TellRunning | TellRebalancing | End
Action = TaskAction | RestoreAction | CancelRestore | ReadAction | OutputAction | GroupAction | HungAction | TellAction

Do = Callable[[Action], None]
"""Receives the next action of the core."""
