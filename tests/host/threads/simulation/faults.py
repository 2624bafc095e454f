"""The rules without which tasks are processed twice, or by nobody, each taken out: the simulation must notice."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest

from penstock.client.api import GroupIdentity, OffsetAndMetadata
from penstock.errors import TaskMigratedError
from penstock.host.threads.active_task import ActiveTask
from penstock.host.threads.classic_member import ClassicMember
from penstock.host.threads.instance import Instance
from penstock.host.threads.member_messages import SyncAnswered
from penstock.host.threads.member_states import MemberState
from penstock.host.threads.output import ExactlyOnceOutput
from penstock.host.threads.subscription import follow
from penstock.host.threads.vocabulary import Abort, CommitPrepared, Event, OutputAction, Prepare, Ran
from penstock.host.threads.workers.messages import WorkerAction
from penstock.host.threads.workers.worker_process import WorkerDiedError
from penstock.host.threads.workers.worker_processes import WorkerProcesses
from penstock.processor.calls import Answer
from penstock.processor.park import StreamPark
from penstock.processor.waiting_records import WaitingRecords
from penstock.record import TopicPartition
from tests.host.threads.simulation.broker import Broker
from tests.host.threads.simulation.clients import SimulatedAdmin


def commit_as_nobody(patch: pytest.MonkeyPatch) -> None:
    """Commit with metadata that name no member, as those of a consumer that assigns partitions itself: no fencing."""

    def nobody(output: Any) -> GroupIdentity:
        return GroupIdentity("app", -1, "")

    patch.setattr(ExactlyOnceOutput, "_committing_member", nobody)


def commit_as_whoever_it_is_now(patch: pytest.MonkeyPatch) -> None:
    """Commit as the member of now, and join again before the tasks of the lost one are closed (R1)."""
    lose = ClassicMember._lose

    def committing(output: Any) -> GroupIdentity:
        now: GroupIdentity | None = output._membership.identity()
        if now is None:
            raise TaskMigratedError("The instance is no member.")
        return now

    def lose_and_join(member: Any, why: str, now: int) -> Any:
        steps = lose(member, why, now)
        member._held = frozenset()
        return [*steps, *member._join(now)] if member.state.value == "FENCED" else steps

    patch.setattr(ExactlyOnceOutput, "_committing_member", committing)
    patch.setattr(ClassicMember, "_lose", lose_and_join)


def rejoin_for_what_is_held(patch: pytest.MonkeyPatch) -> None:
    """Judge by what is held when the assignment arrives whether another join is needed (R2)."""
    synced = ClassicMember._synced

    def judged(member: Any, answer: SyncAnswered, now: int) -> Any:
        with pytest.MonkeyPatch.context() as context:
            held = member._held
            planned = "penstock.host.threads.classic_member.follow"
            context.setattr(planned, lambda *of: follow(*of)._replace(reported=held))
            return synced(member, answer, now)

    patch.setattr(ClassicMember, "_synced", judged)


def restore_to_the_stable_end(patch: pytest.MonkeyPatch) -> None:
    """Restore to the last stable offset (R3)."""
    end_offsets = SimulatedAdmin.end_offsets

    def stable(
        admin: SimulatedAdmin, partitions: Sequence[TopicPartition], read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        return end_offsets(admin, partitions, read_committed=True)

    patch.setattr(SimulatedAdmin, "end_offsets", stable)


def read_unstable_offsets(patch: pytest.MonkeyPatch) -> None:
    """Take the committed offsets though a transaction is about to commit others."""

    def unstable(broker: Broker, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        return {partition: broker.committed[partition] for partition in partitions if partition in broker.committed}

    patch.setattr(Broker, "fetch_offsets", unstable)


def leave_transactions_open(patch: pytest.MonkeyPatch) -> None:
    """Begin as a producer without an end to what an earlier one of the same transactional id left open."""

    def begin(broker: Broker, transactional_id: str) -> int:
        return broker._writers[transactional_id].epoch

    patch.setattr(Broker, "begin_writing", begin)


def punctuate_without_a_commit(patch: pytest.MonkeyPatch) -> None:
    """Take a run without records for one that has changed nothing, whatever its punctuations have done."""
    ran = ActiveTask.ran

    def unchanged(task: ActiveTask, event: Ran) -> None:
        ran(task, event)
        task.changed = bool(event.records) and task.changed

    patch.setattr(ActiveTask, "ran", unchanged)


def read_on_where_nothing_is(patch: pytest.MonkeyPatch) -> None:
    """Forget to what a position that was out of range is reset."""
    patch.setattr(Instance, "_position_reset", lambda *_: None)


def forget_what_a_dead_worker_had_to_do(patch: pytest.MonkeyPatch) -> None:
    """Do not answer what a worker process was asked for that has died."""
    patch.setattr(WorkerProcesses, "_died", lambda *_: None)


def commit_without_the_task_of_a_dead_worker(patch: pytest.MonkeyPatch) -> None:
    """Commit the output of a task without its offsets and changelogs, which nobody has flushed."""
    undone = WorkerProcesses._undone

    def committing(processes: Any, action: WorkerAction, error: WorkerDiedError) -> bool:
        if not isinstance(action, Prepare):
            return undone(processes, action, error)
        processes._answer(CommitPrepared(action.task, (), {}))
        return True

    patch.setattr(WorkerProcesses, "_undone", committing)


def keep_what_was_sent_before_an_error(patch: pytest.MonkeyPatch) -> None:
    """Go on with the transaction of tasks that were opened again from the last commit."""
    do = ExactlyOnceOutput.do

    def keeping(output: Any, action: OutputAction) -> Event | None:
        return None if isinstance(action, Abort) and not output._has_failed else do(output, action)

    patch.setattr(ExactlyOnceOutput, "do", keeping)


def wait_for_a_lost_answer(patch: pytest.MonkeyPatch) -> None:
    """Wait for the answer to JoinGroup or SyncGroup as long as the connection is open."""
    due_ms, tick = ClassicMember.due_ms, ClassicMember._tick

    def waits(member: Any) -> bool:
        return member.state in (MemberState.JOINING, MemberState.SYNCING)

    patch.setattr(ClassicMember, "due_ms", lambda member: None if waits(member) else due_ms(member))
    patch.setattr(ClassicMember, "_tick", lambda member, now: [] if waits(member) else tick(member, now))


FAULTS = (
    wait_for_a_lost_answer,
    commit_as_nobody,
    commit_as_whoever_it_is_now,
    rejoin_for_what_is_held,
    restore_to_the_stable_end,
    read_unstable_offsets,
    leave_transactions_open,
    punctuate_without_a_commit,
    read_on_where_nothing_is,
    forget_what_a_dead_worker_had_to_do,
    commit_without_the_task_of_a_dead_worker,
    keep_what_was_sent_before_an_error,
)


def take_answers_of_other_records(patch: pytest.MonkeyPatch) -> None:
    """Begin the numbers of waiting records again when a task is opened, and use an answer by its number alone."""
    init = WaitingRecords.__init__

    def from_one(records: WaitingRecords, store: Any, first_number: int = 1) -> None:
        init(records, store)

    patch.setattr(WaitingRecords, "__init__", from_one)
    patch.setattr(Answer, "answers", lambda answer, sequence, _: answer.sequence == sequence)


def forget_parked_records_at_a_start(patch: pytest.MonkeyPatch) -> None:
    """Set no alarm for the records that are parked when a task is opened."""
    init = StreamPark.init

    def without_alarm(park: Any, context: Any) -> None:
        init(park, context)
        park._alarm.ring_at(None)

    patch.setattr(StreamPark, "init", without_alarm)
