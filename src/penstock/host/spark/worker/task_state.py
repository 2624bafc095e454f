"""The state of one task in one epoch.

It consists of the base at the manifest's head, and the next commit as segments. The base is a copy that any worker of
this machine may find or create: it is stamped with (checkpoint id, generation, epoch, position) and advanced to the
head of the manifest before a task reads it, in transactions that check the stamp from which they started. A stamp of a
later epoch or generation means that this worker is a zombie. A position is a digest of all changes before it, so a base
at a position in the log is right, whichever topology version made it; any other base is rebuilt from all live segments,
in one transaction.

Changes that exceed the memory inside the epoch are written as the first segments of the commit, without its checkpoint,
and kept in a database of this attempt alone; a base never contains uncommitted changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from penstock.errors import CorruptedBaseError, CorruptedSegmentError, TaskCorruptedError, TaskMigratedError
from penstock.host.crashpoints import crash_point
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.checkpoints.documents import damaged
from penstock.host.spark.checkpoints.task_segments import read_segment
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.messages import TaskControl
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.host.spark.worker.bases import Scratch, TaskBase, clean_bases
from penstock.host.spark.worker.restore_progress import TaskRestore
from penstock.plan.subtopology import TaskId
from penstock.state.api import Base, Changes
from penstock.state.memory import MemoryBase
from penstock.state.restoring import changes_of
from penstock.state.segment_log import Path as Route
from penstock.state.segment_log import SegmentLog, entries_from, log_from_json, log_to_json, maintenance_due, path
from penstock.state.segments import (
    EncodedSegment,
    Segment,
    SegmentHeader,
    SegmentInfo,
    decode,
    encode,
    encode_snapshot,
    merge,
)
from penstock.state.spilled import SpilledChanges
from penstock.task.stream_task import TaskCommit
from penstock.task.task_checkpoint import TaskCheckpoint

_MOST_RACES = 8


class EpochTaskState:
    """Base and checkpoint of a task at the beginning of an epoch.

    The constructor opens the base and advances it to the head. It raises TaskMigratedError, and TaskCorruptedError if a
    segment is missing.
    """

    def __init__(
        self, description: ApplicationDescription, checkpoint: Checkpoint, task: TaskId, control: TaskControl
    ) -> None:
        self._description = description
        self._files = checkpoint
        self._id = task
        self._task = str(task)
        self._spec = description.subtopologies[task.subtopology]
        self._control = control
        clean_bases(description, control.epoch)
        self._log: SegmentLog = log_from_json(dict(control.entry.segments))
        # A task without stores has no data to keep on this machine.
        content_bytes = self._log.content_bytes()
        self._opened = TaskBase(description, checkpoint, self._task, content_bytes) if self._spec.stores else None
        self._is_damaged = False
        self.base: Base = MemoryBase() if self._opened is None else self._opened.base
        self.checkpoint: TaskCheckpoint | None = None
        self._scratch = Scratch(description, self._task)
        self.spilled = SpilledChanges(self.base, self._scratch.open, self._write_part)
        self._parts: list[SegmentInfo] = []
        try:
            self._advance()
        except CorruptedBaseError as error:
            self.distrust(error)
            self._close_base()
            raise
        except CorruptedSegmentError as error:
            self._close_base()
            raise damaged(checkpoint.segment_name(self._task, error.segment), f"it {error.why}") from error
        except BaseException:
            self._close_base()
            raise

    def distrust(self, error: CorruptedBaseError) -> None:
        """Force the next attempt to rebuild the base, if `error` is about the base."""
        self._is_damaged = self._opened is not None and self._opened.is_at(error.path)

    def close(self) -> None:
        """Release the base, and drop spilled changes."""
        self.spilled.close()
        self._scratch.clear()
        self._close_base()

    def _close_base(self) -> None:
        if self._opened is not None:
            self._opened.close(self._is_damaged)

    def write_commit(self, commit: TaskCommit) -> TaskEntry:
        """Write a commit as segments, merge and snapshot if due; return the task's new entry.

        Nothing is written for a commit without content.
        """
        due_ms = commit.checkpoint.next_wall_clock_ms()
        unchanged = not commit.changes and not self._parts
        if unchanged and commit.checkpoint == (self.checkpoint or TaskCheckpoint()):
            before = self._control.entry
            return TaskEntry(before.head, before.segments, due_ms, calls_head=before.calls_head)
        crash_point("segment.before_write", self._control.epoch)
        rest = self._write_changes(commit.changes, commit.checkpoint.encode())
        log = self._log.append([*self._parts, *rest])
        log = self._maintain(log)
        crash_point("segment.after_write", self._control.epoch)
        assert log.head is not None
        head = log.head.hex()
        calls_head = head if self._changes_calls(commit) else self._control.entry.calls_head
        return TaskEntry(head, log_to_json(log), due_ms, calls_head=calls_head)

    def _changes_calls(self, commit: TaskCommit) -> bool:
        """Return whether a commit may change a store of waiting records of calls.

        Its parts that are written already may.
        """
        stores = {calls.store for calls in self._spec.answers_topics.values()}
        return bool(stores) and (bool(self._parts) or any(commit.changes.get(store) for store in stores))

    def _write_part(self, changes: Changes) -> None:
        """Write spilled changes, as a part of the commit that ends the epoch."""
        self._parts += self._write_changes(changes, None)

    def _write_changes(self, changes: Changes, checkpoint: bytes | None) -> list[SegmentInfo]:
        """Write the next changes of the epoch as segments; `checkpoint` ends the commit."""
        parent = self._parts[-1].last if self._parts else self._log.head
        header = SegmentHeader(parent, self._stores(), checkpoint)
        return self._write(encode(header, changes, max_bytes=self._description.config["penstock.segment.max.bytes"]))

    def _advance(self) -> None:
        """Advance the base to the head of the log, and read the checkpoint there."""
        if not self._log.deltas:
            if self._spec.stores and self._position() is not None:
                self.base.clear()  # of another task or checkpoint: this one has no state yet
            return
        newest = self._log.deltas[-1]
        read = self._advance_base() if self._spec.stores else None
        if read is None or read.id != newest.id:
            read = self._read(newest)
        if read.checkpoint is None:
            raise TaskCorruptedError(
                f"Segment {read.id.hex()} of task {self._task} should end a commit and has no checkpoint in it."
            )
        self.checkpoint = TaskCheckpoint.decode(read.checkpoint)

    def _advance_base(self) -> Segment | None:
        """Advance the base to the head of the log; return the last segment applied.

        None if the base is already there. A worker of another attempt may do the same at the same time and be first:
        then this one checks the base again.
        """
        for _ in range(_MOST_RACES):
            route = path(self._log, self._position())
            try:
                read = self._follow(route)
            except TaskMigratedError:
                continue
            if self._position() == self._log.head:  # as of the transaction in which the task will read
                return read
        raise TaskMigratedError(
            f"Other workers have changed the base of task {self._task} {_MOST_RACES} times while this one tried to: is "
            "another program with this application.id running? Run only one."
        )

    def _follow(self, route: Route) -> Segment | None:
        """Apply the segments of `route`; raises TaskMigratedError if another process moves the base meanwhile."""
        read: Segment | None = None
        if route.rebuild:
            self._rebuild(route)
        else:
            for info in route.segments:
                read = self._read(info)
                self.base.apply(read.changes, self._stamp(read.last))
        crash_point("base.after_apply", self._control.epoch)
        return read

    def _rebuild(self, route: Route) -> None:
        assert self._opened is not None
        # otherwise it is the first commit, for the empty base that its task has created
        is_restore = self._opened.is_new or route.segments != self._log.last_commit()
        with TaskRestore(self._description, self._files, self._id, self._control.epoch, is_restore) as progress:

            def commits() -> Iterator[Changes]:
                progress.begin(sum(info.entries for info in route.segments))
                return changes_of(route.segments, self._read_file, progress.restored)

            self.base.rebuild(commits, self._stamp(route.segments[-1].last))

    def _position(self) -> bytes | None:
        """Return the position of the base, None if it has no position.

        Raises TaskMigratedError for a zombie.
        """
        stamp = self.base.stamp()
        if stamp is None:
            return None
        checkpoint_id, generation, epoch, position = stamp.decode().split(":")
        if checkpoint_id != self._description.checkpoint_id:
            return bytes.fromhex(position)
        mine = self._description.generation
        if int(generation) > mine:  # of a newer driver, or of one that an older copy of the checkpoint does not know
            self._files.check_generation(mine)
        elif int(generation) == mine and int(epoch) > self._control.epoch - 1:
            raise TaskMigratedError(
                f"Another attempt has advanced the state of task {self._task} to epoch {epoch}, while this worker is "
                f"at epoch {self._control.epoch}: its work is discarded."
            )
        return bytes.fromhex(position)

    def _stamp(self, position: bytes) -> bytes:
        description = self._description
        return (
            f"{description.checkpoint_id}:{description.generation}:{self._control.epoch - 1}:{position.hex()}".encode()
        )

    def _maintain(self, log: SegmentLog) -> SegmentLog:
        """Merge and snapshot as the log requires with this commit."""
        live = sum(self.base.view(name).approximate_num_entries() for name in self._spec.stores)
        due = maintenance_due(log, live)
        for group in due.merges:
            read = [read_segment(self._files, self._task, info) for info in group]
            (merged,) = self._write([merge(read)])
            log = log.with_merged(group, merged)
        if due.snapshot is not None:
            step = due.snapshot
            entries = entries_from(self.base, self._spec.stores, step.start)
            written = encode_snapshot(
                step.position,
                step.cycle,
                step.start,
                self._stores(),
                entries,
                step.content_bytes,
                self._description.config["penstock.segment.max.bytes"],
            )
            log = log.with_snapshots(self._write(written))
        return log

    def _write(self, encoded: list[EncodedSegment]) -> list[SegmentInfo]:
        torn = partial(crash_point, "segment.torn_write", self._control.epoch)
        for info, data in encoded:
            self._files.write_segment(self._task, info.id.hex(), data, torn)
        return [info for info, _ in encoded]

    def _read(self, info: SegmentInfo) -> Segment:
        return decode(self._read_file(info), info.id)

    def _read_file(self, info: SegmentInfo) -> bytes:
        data = self._files.read_segment(self._task, info.id.hex())
        if data is None:
            why = f"is missing, and the manifest of epoch {self._control.epoch - 1} names it"
            raise CorruptedSegmentError(info.id.hex(), why)
        return data

    def _stores(self) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(self._spec.store_kinds.items()))
