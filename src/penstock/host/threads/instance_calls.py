"""The calls of an instance: they follow its tasks, which may be in worker processes.

The calls are made in the process of the program. A task reports the records of each commit; its calls end when it is
closed, before another instance may open it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from penstock.host.calls.measuring import CallFigures
from penstock.host.calls.runner import CallRunner
from penstock.host.deployment.layout import Layout
from penstock.host.threads import vocabulary as v
from penstock.host.threads.membership import Post
from penstock.host.threads.vocabulary import GLOBAL_TASK
from penstock.plan.subtopology import TaskId

_PAUSED: Final = "the application is paused"
_CUT_OFF: Final = "other instances may have the tasks"

_WRITE_SECONDS: Final = 2.0
"""Longest wait for the answers of a task that is opened again; without them, its calls are made again."""


class InstanceCalls:
    """Starts and ends the calls of the tasks of an instance; from any thread.

    Args:
        layout: the tasks of the application.
        runner: makes the calls.
    """

    def __init__(self, layout: Layout, runner: CallRunner) -> None:
        self._layout = layout
        self._runner = runner
        self._lock = threading.Lock()
        self._reasons: set[str] = set()

    def answered(self, event: v.Event) -> None:
        """Make the calls that an answer about a task allows."""
        if isinstance(event, v.Started | v.CommitApplied):
            for node, entries in event.calls.added.items():
                self._runner.add(node, event.task.partition, entries)

    def closed(self, task: TaskId) -> None:
        """Cancel the calls of a task, which is about to be closed or given up."""
        if task != GLOBAL_TASK:
            for node in self._layout.answers(task):
                self._runner.drop(node, task.partition)

    def await_written(self, task: TaskId) -> None:
        """Wait until the answers of a closed task are in their topics, for a limited time.

        A task that is opened again then finds them, and their calls are not made again.
        """
        if task != GLOBAL_TASK:
            for node in self._layout.answers(task):
                self._runner.await_written(node, task.partition, _WRITE_SECONDS)

    def following(self, post: Post) -> Post:
        """Return a function that posts an event to the core, after the calls have followed it.

        The core may learn of the event late, because its thread waits for brokers.
        """

        def follow_and_post(event: v.Event) -> None:
            self.follow(event)
            post(event)

        return follow_and_post

    def follow(self, event: v.Event) -> None:
        """Start no calls while the application is paused, cut off from its group, or not a member of it.

        A member joins again after all its tasks are closed, so their calls have ended when it is assigned tasks.
        """
        match event:
            case v.PauseRequested():
                self._hold(_PAUSED)
            case v.ResumeRequested():
                self._release(_PAUSED)
            case v.SessionTimedOut() | v.MembershipLost() | v.MembershipRefused():
                self._hold(_CUT_OFF)
            case v.Reconnected() | v.Assigned():
                self._release(_CUT_OFF)
            case _:
                pass

    def _hold(self, reason: str) -> None:
        with self._lock:
            self._reasons.add(reason)
            self._runner.pause()

    def _release(self, reason: str) -> None:
        with self._lock:
            self._reasons.discard(reason)
            if not self._reasons:
                self._runner.resume()

    def take_measured(self) -> Mapping[str, CallFigures]:
        """Return the figures of each operator since the last call."""
        return self._runner.take_measured()

    def close(self) -> None:
        """End all calls, and write the answers that exist."""
        self._runner.close()
