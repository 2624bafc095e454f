"""The restore thread: tasks that are restored take turns, and what it closes at the end of an instance."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import nullcontext
from unittest.mock import Mock, call

import pytest

from penstock.host.threads import task_threads
from penstock.host.threads import vocabulary as v
from penstock.host.threads.action_dispatcher import ActionDispatcher
from penstock.host.threads.task_threads import TaskThreads
from penstock.plan.subtopology import TaskId
from penstock_broker.common.clock import Clocks
from tests.support.waiting import until

SECONDS = 60.0


def test_copies_are_closed_though_the_restore_thread_takes_longer_than_the_end_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_threads, "_END_SECONDS", 0.0)
    is_asking, may_answer, closed = threading.Event(), threading.Event(), threading.Event()

    def purge(*_: object) -> None:
        is_asking.set()
        assert may_answer.wait(SECONDS)

    opener, standbys = Mock(purge=purge), Mock(close=closed.set)
    standbys.advance.return_value = None
    threads = TaskThreads("test", Mock(), opener, standbys, Mock(), Mock(), Mock(updating=nullcontext), Mock())
    threads.restore(v.Purge({}))
    assert is_asking.wait(SECONDS)
    threads.close()
    assert not closed.is_set()  # the thread may be using them
    may_answer.set()
    assert closed.wait(SECONDS)


def test_the_calls_of_a_task_end_when_it_is_closed_or_given_up() -> None:
    closed, held_up = TaskId(0, 0), TaskId(0, 1)
    opener, standbys, figures, calls = Mock(), Mock(), Mock(updating=nullcontext), Mock()
    standbys.advance.return_value = None
    threads = TaskThreads("test", Mock(), opener, standbys, Mock(), Mock(), figures, calls)
    dispatcher = ActionDispatcher(Mock(), Mock(), Mock(), threads, Mock(), Mock(), Clocks.of(None), Mock())
    dispatcher.do(v.Close(closed))
    dispatcher.do(v.GiveUp(frozenset([held_up]), 1))
    assert calls.closed.mock_calls == [call(closed), call(held_up)]
    threads.close()


def test_a_task_is_opened_after_its_answers_are_written() -> None:
    steps = Mock()
    steps.standbys.advance.return_value = None
    steps.opener.opening.side_effect = lambda task: iter(())
    threads = TaskThreads(
        "test", Mock(), steps.opener, steps.standbys, Mock(), steps.post, Mock(updating=nullcontext), steps.calls
    )
    task = TaskId(0, 0)
    threads.restore(v.Restore(task))
    assert until(lambda: call.opener.opening(task) in steps.mock_calls)
    assert [
        each for each in steps.mock_calls if each in (call.calls.await_written(task), call.opener.opening(task))
    ] == [
        call.calls.await_written(task),
        call.opener.opening(task),
    ]
    threads.close()


class _Opener:
    """Restores so many lots of each task; asks for others in the middle of some."""

    def __init__(self, lots: dict[TaskId, int]) -> None:
        self.left = lots
        self.steps: list[TaskId] = []
        self.closed: list[TaskId] = []
        self.ask_at: dict[tuple[TaskId, int], TaskId] = {}
        self.threads: TaskThreads | None = None

    def opening(self, task: TaskId) -> Generator[None, None, str]:
        try:
            while self.left[task]:
                yield
                self.steps.append(task)
                self.left[task] -= 1
                if (other := self.ask_at.pop((task, self.left[task]), None)) is not None:
                    assert self.threads is not None
                    self.threads.restore(v.Restore(other))
            return f"state of {task}"
        finally:
            self.closed.append(task)

    def remaining(self, task: TaskId) -> int:
        return self.left[task]


def test_tasks_with_less_to_restore_run_while_others_are_being_restored() -> None:
    large, small, nothing = (TaskId(0, number) for number in range(3))
    opener, answers = _Opener({large: 6, small: 2, nothing: 0}), list[object]()
    opener.ask_at = {(large, 5): small, (large, 4): nothing}
    figures = Mock(updating=nullcontext, restoring=nullcontext)
    standbys = Mock()
    standbys.advance.return_value = None
    threads = TaskThreads("test", Mock(), opener, standbys, Mock(), answers.append, figures, Mock())  # type: ignore[arg-type]  # what the thread uses of it
    opener.threads = threads
    threads.restore(v.Restore(large))
    assert until(lambda: len(answers) == 3)
    assert [answer.task for answer in answers if isinstance(answer, v.Restored)] == [small, nothing, large]
    assert opener.steps == [large, small, small, *5 * [large]]
    threads.close()


def test_the_end_closes_what_is_being_restored() -> None:
    task = TaskId(0, 0)
    opener = _Opener({task: 1 << 30})
    figures = Mock(updating=nullcontext, restoring=nullcontext)
    standbys = Mock()
    standbys.advance.return_value = None
    threads = TaskThreads("test", Mock(), opener, standbys, Mock(), Mock(), figures, Mock())  # type: ignore[arg-type]  # what the thread uses of it
    threads.restore(v.Restore(task))
    assert until(lambda: bool(opener.steps))
    threads.close()
    assert opener.closed == [task]
