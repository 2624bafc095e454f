"""Runs all tasks in one thread of this process, as long as their functions return.

A task whose function does not return keeps that thread to itself, and a new thread runs the other tasks.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from itertools import count

from penstock.host.supervision.turns import TopologyTurns
from penstock.host.threads import vocabulary as v
from penstock.host.threads.moving_loop import Loan
from penstock.host.threads.processing import LAST_SECONDS, TaskRunner
from penstock.host.threads.queued import QueuedThread
from penstock.host.threads.readable_store import ReadableStore
from penstock.host.threads.visibility import Visibility
from penstock.plan.subtopology import TaskId
from penstock.task.taps import TappedRecord
from penstock_broker.common.clock import elapsed_milliseconds

_log = logging.getLogger(__name__)


class ProcessingThread:
    """One thread that runs all tasks except hung ones, which get their own (implements Processing).

    Args:
        name: of the thread.
        runner: the open tasks.
        answer: receives the answers, in the thread.
        turns: the turns of runs; None without turns.
    """

    def __init__(
        self, name: str, runner: TaskRunner, answer: Callable[[v.Event], None], turns: TopologyTurns | None = None
    ) -> None:
        self._runner = runner
        self.turns = turns
        self._name = name
        self._answer = answer
        self._numbers = count(1)
        self._shared = self._started(0)
        self._own: dict[TaskId, tuple[int, _Thread]] = {}
        """The threads of hung tasks, with their numbers; changed by the polling thread."""

    def _started(self, number: int) -> _Thread:
        name = f"{self._name}-{number}" if number else self._name
        return _Thread(name, self._runner, self._answer, self.turns, number)

    @property
    def worker_count(self) -> int:
        """1."""
        return 1

    def worker_of(self, task: TaskId) -> int:
        """Return the number of the thread that runs `task`."""
        own = self._own.get(task)
        return 0 if own is None else own[0]

    def workers(self) -> dict[TaskId, str]:
        """Return the thread name for each open task."""
        own = dict(self._own)
        return {
            task: f"thread {own[task][1].name if task in own else self._shared.name}"
            for task in self._runner.open_tasks()
        }

    def do(self, action: v.TaskAction) -> None:
        """Queue `action` in the thread of its task."""
        own = self._own.get(action.task)
        if own is None:
            self._shared.put(action)
            return
        own[1].put(action)
        if isinstance(action, v.Close):
            del self._own[action.task]
            own[1].end(0)

    def lend(self, loan: Loan) -> bool:
        """Give the polling loop to the thread of the tasks, unless it waits for turns."""
        if self.turns is None:
            self._shared.put(loan)
        return self.turns is None

    def look_for_hung(self, limit_ms: int) -> None:
        """Dedicate the thread to a task busy with one action for `limit_ms`, and report it.

        The task is also logged, and a new thread runs the others.
        """
        threads = [self._shared, *(thread for _, thread in self._own.values())]
        for thread in threads:
            task = thread.hung(limit_ms)
            if task is None:
                continue
            if thread is self._shared:
                number = next(self._numbers)
                self._own[task], self._shared = (number, thread), self._started(number)
                for action in thread.take_back():
                    self.do(action)
            self._answer(v.Hangs(frozenset([task])))

    def end_hung(self, limit_ms: int) -> None:
        """Do nothing: Python cannot end a thread."""

    def open_tasks(self) -> list[TaskId]:
        """Return the open tasks of the topology."""
        return self._runner.open_tasks()

    def readable(self, store_name: str, visible: Visibility) -> list[ReadableStore]:
        """Return the stores of that name of all open tasks."""
        return self._runner.readable(store_name, visible)

    def entries(self, store_name: str) -> int | None:
        """Return the approximate entry count of all open stores of that name."""
        return self._runner.entries(store_name)

    def tapped(self, node: str, limit: int) -> list[TappedRecord]:
        """Return the last records at a node, and keep such records from now on."""
        return self._runner.tapped(node, limit)

    def untap(self, node: str) -> None:
        """Stop keeping the records of a node."""
        self._runner.untap(node)

    def close(self) -> None:
        """End the threads.

        A user's function that does not return keeps its thread, and the program does not wait for it.
        """
        if self.turns is not None:
            self.turns.leave()
        for _, thread in self._own.values():
            thread.end(0)
        self._shared.end(LAST_SECONDS)


class _Thread:
    """Performs actions on tasks one after the other.

    Args:
        name: of the thread.
        runner: the open tasks.
        answer: receives the answers, in the thread.
        turns: the turns of runs; None without turns.
        number: identifies the thread among those of the instance.
    """

    def __init__(
        self,
        name: str,
        runner: TaskRunner,
        answer: Callable[[v.Event], None],
        turns: TopologyTurns | None,
        number: int,
    ) -> None:
        self.name = name
        self._runner = runner
        self._answer = answer
        self._turn = None if turns is None else turns.of_runner(number)
        self._doing: tuple[v.TaskAction, int] | None = None
        self._named: v.TaskAction | None = None
        self._thread: QueuedThread[v.TaskAction | Loan] = QueuedThread(name, self._do)

    def put(self, action: v.TaskAction | Loan) -> None:
        """Queue `action` after all earlier actions."""
        self._thread.put(action)

    def take_back(self) -> list[v.TaskAction]:
        """Return the queued actions that have not begun."""
        return [item for item in self._thread.take_back() if not isinstance(item, Loan)]

    def end(self, seconds: float) -> None:
        """End after all queued actions; wait up to `seconds` for it."""
        self._thread.close(seconds)

    def hung(self, limit_ms: int) -> TaskId | None:
        """Return the task that has been busy with one action for `limit_ms`, and log it.

        Returns None without such a task, and if it was returned before.
        """
        doing = self._doing
        if doing is None or doing[0] is self._named or elapsed_milliseconds() - doing[1] < limit_ms:
            return None
        self._named = action = doing[0]
        frame = sys._current_frames().get(self._thread.ident or 0)
        _log.warning(
            "A function of task %s has not returned for %d ms (penstock.task.stuck.ms). The other tasks go on without "
            "it, and it is committed when it returns. It is here:\n%s",
            action.task,
            limit_ms,
            "".join(traceback.format_stack(frame)) if frame is not None else "",
        )
        return action.task

    def _do(self, item: v.TaskAction | Loan) -> None:
        if isinstance(item, Loan):
            item.run(self._next, self._perform)
        else:
            self._perform(item)

    def _next(self) -> v.TaskAction | None:
        """Return the next queued action, None without one."""
        item = self._thread.take_next()
        assert not isinstance(item, Loan), "A borrowed loop is not lent."
        return item

    def _perform(self, action: v.TaskAction) -> None:
        if self._turn is None or not isinstance(action, v.RunTask):
            self._answer(self._done(action))
            return
        with self._turn.taken():
            event = self._done(action)
        self._answer(event)

    def _done(self, action: v.TaskAction) -> v.Event:
        self._doing = action, elapsed_milliseconds()
        try:
            return self._runner.do(action)
        finally:
            self._doing = None
