"""A function that does not return keeps its own task, and no other: they are processed and committed, it is named with
its stack, and `close` ends."""

from __future__ import annotations

import logging
import threading
from typing import Any
from unittest.mock import Mock

import pytest

from penstock.host.threads import vocabulary as v
from penstock.host.threads.phases import Phase
from penstock.host.threads.processing import TaskRunner
from penstock.host.threads.processing_thread import ProcessingThread
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock.task.idling import NO_WAIT
from tests.host.threads.inline import InlineInstance
from tests.host.threads.test_instance import Play
from tests.support.waiting import until

HUNG, OTHER = TaskId(0, 0), TaskId(0, 1)
STUCK_MS = 5_000
SECONDS = 60.0


class Hanging:
    """An instance one of whose tasks answers nothing until it is released."""

    def __init__(self, play: Play, **options: Any) -> None:
        self.play = play
        self.instance: InlineInstance = play.instance(**options)
        self.instance.instance._tasks._worker_of = lambda task: int(task == HUNG)
        self.instance.run()
        self.answer = self.instance.runner.do
        self.held: list[Any] = []

    def hang(self, *also: type[Any]) -> None:
        """Answer no action of the task from now on. also: classes of actions that the others do not answer."""

        def hold(action: Any) -> v.Event:
            if action.task != HUNG and not isinstance(action, also):
                return self.answer(action)
            self.held.append(action)
            return v.TimePassed()

        self.instance.runner.do = hold  # type: ignore[method-assign]  # the function does not return yet

    def release(self) -> None:
        self.instance.runner.do = self.answer  # type: ignore[method-assign]  # it returns
        for action in self.held:
            self.instance.tell(self.answer(action))

    def wait(self, milliseconds: int) -> None:
        self.play.clock.advance(milliseconds)
        self.instance.tell(v.TimePassed())
        self.instance.run()

    def committed(self, partition: int) -> int:
        found = self.play.broker.committed.get(TopicPartition("in", partition))
        return found.offset if found else 0


@pytest.mark.parametrize("exactly_once", [False, True])
def test_the_others_are_committed_without_a_task_that_hangs_and_it_is_when_it_returns(exactly_once: bool) -> None:
    play = Play(partitions=2)
    hanging = Hanging(play, commit_interval_ms=100, exactly_once=exactly_once)
    hanging.hang()
    play.write("a", partition=0)
    play.write("b", partition=1)
    hanging.wait(200)
    assert play.counts() == {}, "the commit waits"
    assert hanging.instance.looked_for_hung == 0
    hanging.wait(STUCK_MS)
    assert hanging.instance.looked_for_hung == 1
    hanging.instance.tell(v.Hangs(frozenset([HUNG])))
    for _ in range(3):
        hanging.wait(200)
    assert play.counts() == {"b": 1}
    assert [hanging.committed(number) for number in range(2)] == [0, 1]
    play.write("b", partition=1)
    for _ in range(3):
        hanging.wait(200)
    assert play.counts() == {"b": 2}
    hanging.release()
    for _ in range(3):
        hanging.wait(200)
    assert sorted(play.output()) == [("a", 1), ("b", 1), ("b", 2)]
    assert [hanging.committed(number) for number in range(2)] == [1, 2]


def test_a_transaction_with_a_part_of_a_task_that_hangs_begins_again_without_it() -> None:
    play = Play(partitions=2)
    hanging = Hanging(play, commit_interval_ms=1_000, exactly_once=True)
    play.write("x", partition=0)
    hanging.instance.run()  # it is in the transaction
    hanging.hang()
    play.write("a", partition=0)
    play.write("b", partition=1)
    hanging.wait(STUCK_MS)
    hanging.instance.tell(v.Hangs(frozenset([HUNG])))
    for _ in range(3):
        hanging.wait(1_000)
    assert play.counts() == {"b": 1}
    assert [hanging.committed(number) for number in range(2)] == [0, 1]
    hanging.release()
    for _ in range(4):
        hanging.wait(1_000)
    assert sorted(play.output()) == [("a", 1), ("b", 1), ("x", 1)]
    assert [hanging.committed(number) for number in range(2)] == [2, 1]


def test_a_flush_that_returns_late_is_of_no_later_commit() -> None:
    play = Play(partitions=2)
    hanging = Hanging(play, commit_interval_ms=1_000, exactly_once=True)
    play.write("a", partition=0)
    play.write("b", partition=1)
    hanging.instance.run()
    hanging.hang()
    hanging.wait(1_000)  # a commit begins, and a function hangs in it
    hanging.wait(STUCK_MS)
    hanging.instance.tell(v.Hangs(frozenset([HUNG])))
    hanging.instance.run()
    hanging.hang(v.Prepare)
    hanging.wait(1_000)  # the next commit begins without it
    assert hanging.instance.instance.phase is Phase.PREPARING
    late, close, *others = hanging.held
    hanging.hang()
    for action in late, *others:
        hanging.instance.tell(hanging.answer(action))
    hanging.instance.run()
    assert [hanging.committed(number) for number in range(2)] == [0, 1]
    hanging.held = [close]
    hanging.release()
    for _ in range(4):
        hanging.wait(1_000)
    assert sorted(play.output()) == [("a", 1), ("b", 1)]
    assert [hanging.committed(number) for number in range(2)] == [1, 1]


def test_an_instance_ends_though_a_task_hangs() -> None:
    play = Play(partitions=2)
    hanging = Hanging(play, commit_interval_ms=1_000, exactly_once=True)
    hanging.hang()
    play.write("a", partition=0)
    play.write("b", partition=1)
    hanging.wait(STUCK_MS)
    hanging.instance.tell(v.Hangs(frozenset([HUNG])))
    for _ in range(3):
        hanging.wait(1_000)
    play.write("b", partition=1)
    hanging.instance.run()
    hanging.instance.tell(v.CloseRequested())
    hanging.instance.run()
    assert hanging.instance.instance.phase is Phase.ENDED
    assert hanging.committed(1) == 2


def test_a_thread_that_hangs_is_left_to_its_task_and_named_with_its_stack(caplog: pytest.LogCaptureFixture) -> None:
    returns, begun, answers = threading.Event(), threading.Event(), list[Any]()

    def stuck_in_here(action: Any) -> v.Event:
        if action.task == HUNG:
            begun.set()
            returns.wait(SECONDS)
        return v.Ran(action.task)

    runner = Mock(spec=TaskRunner, do=stuck_in_here)
    threads = ProcessingThread("test", runner, answers.append)
    threads.do(v.RunTask(HUNG, (), NO_WAIT, 0))
    threads.do(v.RunTask(OTHER, (), NO_WAIT, 0))
    assert begun.wait(SECONDS)
    with caplog.at_level(logging.WARNING):
        threads.look_for_hung(60_000)
        assert answers == []
        threads.look_for_hung(0)
    assert "A function of task 0_0 has not returned for 0 ms" in caplog.text
    assert "in stuck_in_here" in caplog.text
    assert until(lambda: len(answers) == 2)
    assert v.Hangs(frozenset([HUNG])) in answers
    assert v.Ran(OTHER) in answers
    assert threads.worker_of(HUNG) != threads.worker_of(OTHER)
    threads.do(v.RunTask(OTHER, (), NO_WAIT, 0))
    assert until(lambda: len(answers) == 3)
    returns.set()
    assert until(lambda: v.Ran(HUNG) in answers)
    threads.close()
