"""The messages between the core of an instance and the threads around it: events report what happened, actions say what
to do. Frozen values; the core (`instance`) takes events and returns actions, and nothing else passes between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from penstock.client.api import OffsetAndMetadata
from penstock.host.api import StreamThreadExceptionResponse
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
"""Stands for the task of the global stores. Each instance has it if the topology has global stores."""


@dataclass(frozen=True)
class OpenedState:
    """The state of a task that has been restored: its base, what the base holds, the position of each partition that
    the task reads, and what it remembers besides its stores. ends: of the task of the global stores, how far it reads
    before others may start."""

    base: Base
    stamp: ChangelogStamp
    positions: Mapping[TopicPartition, int]
    checkpoint: TaskCheckpoint
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)


class Unread(NamedTuple):
    """How far a partition is that is not read to its end. position: up to where it is committed. stable: the end of
    what readers of committed records see now."""

    position: int
    end: int
    stable: int


# ---------------------------------------- events


@dataclass(frozen=True)
class Assigned:
    """The group assigned these tasks to the instance, and no others. standbys: the tasks of other instances of whose
    state it keeps a copy."""

    tasks: frozenset[TaskId]
    standbys: frozenset[TaskId] = frozenset()


@dataclass(frozen=True)
class MembershipLost:
    """The group removed the instance, which may no longer commit."""

    error: Exception


@dataclass(frozen=True)
class MembershipRefused:
    """The group does not take the instance as a member, for a reason that may not pass: it has no tasks any more, and
    the handler of uncaught exceptions decides whether it tries again."""

    error: Exception


@dataclass(frozen=True)
class ApplicationShutDown:
    """All instances of the group are to commit and end. error: that ends this one; None for the one that asked for it,
    which has an error of its own."""

    error: Exception | None


@dataclass(frozen=True)
class CutOff:
    """Other instances may have the tasks: the coordinator has not answered for the time of the session, or it has
    refused a commit and the member does not know why. Nothing is processed until `Reconnected`, `Assigned` or
    `MembershipLost`."""


@dataclass(frozen=True)
class Reconnected:
    """The coordinator answers again, and the tasks are still those of the instance."""


@dataclass(frozen=True)
class Restored:
    """The state of a task is as of the end of its changelogs."""

    task: TaskId
    state: OpenedState


@dataclass(frozen=True)
class Started:
    """The processors of a task are initialised; next_wall_clock_ms as in `Ran`."""

    task: TaskId
    next_wall_clock_ms: int | None


@dataclass(frozen=True)
class Arrived:
    """Records of a partition that the instance reads."""

    partition: TopicPartition
    batch: RecordBatch

    @cached_property
    def size(self) -> int:
        """The bytes of the keys and values, which are not counted a second time."""
        return size_of(self.batch)


@dataclass(frozen=True)
class OutOfRange:
    """A partition does not have the offset from which it is to be read: its records were deleted, or never existed."""

    partition: TopicPartition
    error: Exception


@dataclass(frozen=True)
class PositionReset:
    """From which offset a partition is to be read that was out of range."""

    partition: TopicPartition
    position: int


@dataclass(frozen=True)
class EndsKnown:
    """How far partitions can be read now, as the broker reported with the last records."""

    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class EndsReached:
    """Partitions of which everything before these offsets has been read; there may be no record at the end."""

    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class UnreadFound:
    """What the group has not committed yet, of what a run to the end is to process; None if brokers did not say."""

    unread: Mapping[TopicPartition, Unread] | None


@dataclass(frozen=True)
class Ran:
    """A task has processed the records of a run, except those that have to wait.

    output: what it sent. positions: the next offset of each partition. waiting: the records that wait in the task, by
    partition, of those that have any. next_wall_clock_ms: when it has something to do though no record arrives, None
    for never. commit_requested: whether a processor asked for a commit. uncommitted_bytes: of its changes of state.
    records, nanoseconds: what it processed, and how long that took. awaited: the partitions that the records which wait
    are waiting for. punctuation_nanoseconds: how much of that time its punctuations took.
    """

    task: TaskId
    output: Sequence[PartitionBatch] = ()
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    waiting: Mapping[TopicPartition, BufferSize] = field(default_factory=dict)
    next_wall_clock_ms: int | None = None
    commit_requested: bool = False
    uncommitted_bytes: int = 0
    records: int = 0
    nanoseconds: int = 0
    awaited: tuple[TopicPartition, ...] = ()
    punctuation_nanoseconds: int = 0


@dataclass(frozen=True)
class CommitPrepared:
    """A task has flushed its caches: what it sent, with the records for its changelogs, and the offsets to be
    committed. measured, sensors, dropped: since it was prepared before, by operation; the number of records dropped.
    nanoseconds: how long that took."""

    task: TaskId
    output: Sequence[PartitionBatch]
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    measured: Mapping[str, Measurement] = field(default_factory=dict)
    sensors: Sequence[SensorReport] = ()
    dropped: int = 0
    nanoseconds: int = 0


@dataclass(frozen=True)
class OutputLags:
    """Brokers take output so slowly that a commit should come before there is more."""


@dataclass(frozen=True)
class Written:
    """Brokers have everything that was sent; ends: after the last record of each partition that was written to."""

    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class OffsetsCommitted:
    """The offsets of a commit are durable."""


@dataclass(frozen=True)
class TransactionCommitted:
    """Records and offsets of a commit are durable; ends: as in `Written`."""

    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class TransactionLost:
    """The output since the last commit is to be made again. The transaction was refused and is over, since another
    instance has the tasks or the same transactional id, or the broker has ended it after transaction.timeout.ms; or
    brokers refuse records. is_fenced: whether the producer of another member of the group was the reason."""

    error: Exception
    is_fenced: bool


@dataclass(frozen=True)
class CommitApplied:
    """The base of a task has the changes of the commit."""

    task: TaskId
    next_wall_clock_ms: int | None


@dataclass(frozen=True)
class Closed:
    """A task is closed, and its base free for others. stamp: what the base holds, None if it held nothing."""

    task: TaskId
    stamp: ChangelogStamp | None = None


@dataclass(frozen=True)
class Hangs:
    """What these tasks were asked for is not answered for now, because a function does not return."""

    tasks: frozenset[TaskId]


@dataclass(frozen=True)
class Failed:
    """Something failed. task: the task that it concerns, None for all."""

    error: BaseException
    task: TaskId | None = None


@dataclass(frozen=True)
class StandbysFailed:
    """A copy of the state of a task of another instance could not be kept, and all of them are closed."""

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
    """Commit, then end. leave: whether the instance leaves the group at once."""

    leave: bool = True


@dataclass(frozen=True)
class TimePassed:
    """Time has passed."""


RecordEvent = Arrived | OutOfRange | PositionReset | EndsKnown | EndsReached | UnreadFound | Ran
CommitEvent = CommitPrepared | OutputLags | Written | OffsetsCommitted | TransactionCommitted | CommitApplied
GroupEvent = Assigned | MembershipLost | MembershipRefused | ApplicationShutDown | CutOff | Reconnected
TaskEvent = Restored | Started | Closed | Hangs
ErrorEvent = TransactionLost | Failed | StandbysFailed | Decided
RequestEvent = PauseRequested | ResumeRequested | CloseRequested
Event = RecordEvent | CommitEvent | GroupEvent | TaskEvent | ErrorEvent | RequestEvent | TimePassed


# ---------------------------------------- actions


@dataclass(frozen=True)
class Restore:
    """Open the state of a task and restore it; answered by `Restored`, `Failed`, or `Closed` if the instance ends."""

    task: TaskId


@dataclass(frozen=True)
class CancelRestore:
    """Do not go on with the restore of a task: others are to have it. The restore is answered by `Closed`, unless it
    ends before."""

    task: TaskId


@dataclass(frozen=True)
class StandBy:
    """Keep a copy of the state of a task up to date, until it is restored or `StandDown`; not answered."""

    task: TaskId


@dataclass(frozen=True)
class StandDown:
    """Close the copy of the state of a task; not answered."""

    task: TaskId


@dataclass(frozen=True)
class Start:
    """Make a task over its state and initialise its processors; answered by `Started` or `Failed`."""

    task: TaskId
    state: OpenedState
    now_ms: int


@dataclass(frozen=True)
class Follow:
    """Read these partitions from these offsets on."""

    positions: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Unfollow:
    """Read these partitions no longer."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class ResetPosition:
    """Find out from where to read a partition that was out of range, by its offset reset; answered by `PositionReset`
    or `Failed`."""

    partition: TopicPartition


@dataclass(frozen=True)
class FindUnread:
    """Find out what the group has not committed yet, up to these planned ends and in repartition topics; answered by
    `UnreadFound` or `Failed`."""

    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class PauseReading:
    """Fetch these partitions no further for now."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class ResumeReading:
    """Fetch these partitions again."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class RunTask:
    """Give records to a task and let it process; answered by `Ran` or `Failed`. wait: what it may have to wait for.
    commit: the number of the commit that will have it, for the log; the polling thread sets it."""

    task: TaskId
    records: Sequence[tuple[TopicPartition, RecordBatch]]
    wait: InputWait
    now_ms: int
    commit: int = 0


@dataclass(frozen=True)
class Prepare:
    """Flush the caches of a task for a commit; answered by `CommitPrepared` or `Failed`. commit: as for `RunTask`."""

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
    """Wait until all that was sent is written; answered by `Written` or `Failed`."""


@dataclass(frozen=True)
class CommitOffsets:
    """Commit offsets for the group as its member; answered by `OffsetsCommitted`, `MembershipLost` or `Failed`."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True)
class CommitTransaction:
    """Commit all that was sent, with offsets of the group as its member; answered by `TransactionCommitted`,
    `TransactionLost` or `Failed`."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True)
class Abort:
    """Abort the transaction: no consumer reads the output since the last commit. Without transactions, wait until it
    is written."""


@dataclass(frozen=True)
class Apply:
    """Apply the changes of a commit to the base of a task; answered by `CommitApplied` or `Failed`. ends: as in
    `Written`. committed: the offsets that the commit has for inputs of the task."""

    task: TaskId
    ends: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Purge:
    """Delete, if it is time to, the records of repartition topics before these committed positions; not answered."""

    positions: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Close:
    """Close a task, with its base; answered by `Closed`. Changes since its last commit are lost. state: of a task that
    was restored and not started."""

    task: TaskId
    state: OpenedState | None = None


@dataclass(frozen=True)
class GiveUp:
    """Tell the group that these tasks are closed here, so that other members may run them. assignments: how many
    `Assigned` the core had taken by then."""

    tasks: frozenset[TaskId]
    assignments: int


@dataclass(frozen=True)
class StepBack:
    """Leave the tasks to others in the group for now, for this reason; answered by `MembershipLost`."""

    error: Exception


@dataclass(frozen=True)
class LookForHung:
    """Find out whether a function has not returned for `limit_ms`; answered by `Hangs` for the tasks that it keeps."""

    limit_ms: int


@dataclass(frozen=True)
class EndHung:
    """End what has been doing one thing about a task for `limit_ms`, where it can be ended; what it does is then
    answered."""

    limit_ms: int


@dataclass(frozen=True)
class ShutDownApplication:
    """Have all instances of the group end; answered by `ApplicationShutDown`, unless the group cannot be told."""


@dataclass(frozen=True)
class Leave:
    """Leave the group."""


@dataclass(frozen=True)
class Ask:
    """Ask the handler of uncaught exceptions about an error; answered by `Decided`."""

    error: BaseException


@dataclass(frozen=True)
class TellRetry:
    """Tell people that something failed for a reason that passes, and is tried again. task: whose restore is tried
    again alone, None if all tasks are opened again."""

    error: BaseException
    task: TaskId | None = None


@dataclass(frozen=True)
class TellRunning:
    """Tell the application that all its tasks are being processed."""


@dataclass(frozen=True)
class TellRebalancing:
    """Tell the application that tasks are being set up."""


@dataclass(frozen=True)
class End:
    """The instance has ended; error: what ended it, None for an end that was asked for or planned."""

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
"""Takes the next action of the core."""
