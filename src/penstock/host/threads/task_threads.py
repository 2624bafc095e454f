"""The threads that perform an instance's actions on tasks: processing and the restore thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from typing import Final

from penstock.host.commits.purging import RecordPurge
from penstock.host.threads import vocabulary as v
from penstock.host.threads.changelog_reader import RestoreStoppedError
from penstock.host.threads.figures import InstanceFigures
from penstock.host.threads.instance_calls import InstanceCalls
from penstock.host.threads.membership import Post
from penstock.host.threads.processing import Processing
from penstock.host.threads.queued import QueuedThread
from penstock.host.threads.restoring import StateOpener
from penstock.host.threads.standbys import Standbys
from penstock.plan.subtopology import TaskId

_END_SECONDS: Final = 10.0
"""Longest wait for the restore thread to end; a client call takes no longer."""


class _Last:
    """The last item of the restore thread: it closes the standby copies."""


class TaskThreads:
    """The processing of tasks and the restore thread.

    Args:
        name: of the application.
        processing: runs the tasks.
        opener: opens the state of tasks, in the restore thread.
        standbys: the standby copies, used by the restore thread.
        purge: deletes processed records of repartition topics.
        post: receives the answers of the restore thread.
        figures: measures the restore thread.
        calls: the calls of the tasks.
    """

    def __init__(
        self,
        name: str,
        processing: Processing,
        opener: StateOpener,
        standbys: Standbys,
        purge: RecordPurge,
        post: Post,
        figures: InstanceFigures,
        calls: InstanceCalls,
    ) -> None:
        self._processing = processing
        self._opener = opener
        self._standbys = standbys
        self._purge = purge
        self._post = post
        self._figures = figures
        self._calls = calls
        self._openings: dict[TaskId, Generator[None, None, v.OpenedState]] = {}
        self._not_begun: deque[TaskId] = deque()
        self._restoring: QueuedThread[v.RestoreAction | _Last] = QueuedThread(
            f"penstock-{name}-restore", self._restore, self._advance
        )

    def worker_of(self, task: TaskId) -> int:
        """Return the number of the worker that runs an open task."""
        return self._processing.worker_of(task)

    def do(self, action: v.TaskAction) -> None:
        """Queue `action` for a thread or a worker process. The calls of a task end before it is closed."""
        if isinstance(action, v.Close):
            self._calls.closed(action.task)
        self._processing.do(action)

    def end_calls(self, tasks: Iterable[TaskId]) -> None:
        """End the calls of tasks that are given up, also of one that a function holds up."""
        for task in tasks:
            self._calls.closed(task)

    def look_for_hung(self, limit_ms: int) -> None:
        """Report the tasks that are blocked because a function has not returned for `limit_ms`."""
        self._processing.look_for_hung(limit_ms)

    def end_hung(self, limit_ms: int) -> None:
        """End the worker processes that have been busy with one action for `limit_ms`."""
        self._processing.end_hung(limit_ms)

    def restore(self, action: v.RestoreAction) -> None:
        """Queue `action` for the restore thread."""
        self._restoring.put(action)

    def cancel_restore(self, task: TaskId) -> None:
        """Cancel the restore of `task` in the restore thread."""
        self._opener.cancel(task)

    def close(self) -> None:
        """End the restore thread.

        It closes the copies even if it takes longer than the wait, because they are open in this process.
        """
        self._restoring.put(_Last())
        self._restoring.close(_END_SECONDS)

    def _restore(self, action: v.RestoreAction | _Last) -> None:
        try:
            match action:
                case _Last():
                    for opening in self._openings.values():
                        opening.close()
                    self._standbys.close()
                case v.Purge(positions):
                    self._opener.purge(self._purge, positions)
                case v.ResetPosition(partition):
                    self._post(v.PositionReset(partition, self._opener.reset(partition)))
                case v.FindUnread(ends):
                    self._post(self._opener.find_unread(ends))
                case v.StandBy() | v.StandDown():
                    self._follow(action)
                case v.Restore(task):
                    self._calls.await_written(task)
                    self._openings[task] = self._opener.opening(task)
                    self._not_begun.append(task)
        except Exception as error:
            self._post(v.Failed(error))

    def _follow(self, action: v.StandBy | v.StandDown) -> None:
        try:
            if isinstance(action, v.StandBy):
                self._standbys.add(action.task)
            else:
                self._standbys.remove(action.task)
        except Exception as error:
            self._lose_standbys(error)

    def _advance(self) -> float | None:
        """Advance one restore by a step, or the standbys without restores.

        New restores take their first step first, which determines the remaining offsets. Then the restore with the
        least remaining offsets goes on, so that its task runs while others are restored.
        """
        if not self._openings:
            return self._advance_standbys()
        if self._not_begun:
            self._open_on(self._not_begun.popleft())
        else:
            self._open_on(min(self._openings, key=self._opener.remaining))
        return 0

    def _open_on(self, task: TaskId) -> None:
        """Advance the restore of a task by a step, and post the final answer."""
        answer: v.Restored | v.Closed | v.Failed
        try:
            with self._figures.restoring():
                next(self._openings[task])
            return
        except StopIteration as end:
            answer = v.Restored(task, end.value)
        except RestoreStoppedError:
            answer = v.Closed(task)
        except Exception as error:
            answer = v.Failed(error, task)
        del self._openings[task]
        self._post(answer)

    def _advance_standbys(self) -> float | None:
        try:
            with self._figures.updating():
                return self._standbys.advance()
        except Exception as error:
            self._lose_standbys(error)
            return None

    def _lose_standbys(self, error: Exception) -> None:
        self._standbys.close()
        self._post(v.StandbysFailed(error))
