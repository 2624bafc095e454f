"""The polling thread: when it asks the consumer, and when it waits for answers."""

from __future__ import annotations

import queue
import threading
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from penstock.host.supervision.turns import TopologyTurns, Turns
from penstock.host.threads import vocabulary as v
from penstock.host.threads.action_dispatcher import ActionDispatcher
from penstock.host.threads.figures import InstanceFigures
from penstock.host.threads.input_consumer import InputConsumer
from penstock.host.threads.phases import Phase
from penstock.host.threads.polling import Polling
from penstock.host.threads.task_manager import Room
from penstock.plan.subtopology import TaskId
from penstock.record import RecordBatch, TopicPartition
from penstock.task.idling import NO_WAIT
from penstock_broker.common.clock import Clocks, SystemClock
from tests.support.waiting import until

TASK = TaskId(0, 0)
PARTITION = TopicPartition("in", 0)
LONG_MS = 600_000  # no wait of a test ends by time
_WORKERS = SimpleNamespace(follow=lambda event: None)


def polling_of(
    core: Any,
    consumer: Any,
    membership: Any,
    workers: Any,
    figures: InstanceFigures,
    *,
    poll_ms: int = LONG_MS,
    awaitable: frozenset[TopicPartition] = frozenset(),
    turns: TopologyTurns | None = None,
) -> Polling:
    """Return a loop without output that tells no application."""
    events, clocks, nothing = queue.SimpleQueue[v.Event](), Clocks.of(None), cast(Any, None)
    inputs = InputConsumer(core, consumer, figures, events.put, awaitable)
    dispatcher = ActionDispatcher(inputs, nothing, membership, workers, nothing, figures, clocks, events.put)
    processing = cast(Any, SimpleNamespace(turns=turns, lend=lambda loan: False))
    return Polling(core, inputs, dispatcher, clocks, poll_ms, figures, events, processing)


class _Core:
    """Follows a partition, and runs its task for each batch that arrives; ends behind the second run."""

    phase = Phase.RUNNING

    def __init__(self) -> None:
        self.in_flight = False
        self.seen: list[v.Event] = []

    def wants_records(self) -> bool:
        return not self.in_flight

    def room(self) -> Room | None:
        return None if self.in_flight else Room(100, 10_000)

    def lags(self, ends: Any) -> dict[TopicPartition, int]:
        return {}

    def waiting(self) -> dict[TaskId, Any]:
        return {}

    def next_due_ms(self) -> int | None:
        return None

    def handle(self, event: v.Event, now: int, ahead_ms: int = 0) -> list[v.Action]:
        self.seen.append(event)
        match event:
            case v.Assigned():
                return [v.Follow({PARTITION: 0})]
            case v.Arrived(partition, batch):
                self.in_flight = True
                return [v.RunTask(TASK, [(partition, batch)], NO_WAIT, now)]
            case v.Ran():
                self.in_flight = False
                runs = sum(isinstance(each, v.Ran) for each in self.seen)
                return [v.End(None)] if runs == 2 else []
            case _:
                return []


class _Consumer:
    """Has a record at each poll."""

    def __init__(self, core: _Core) -> None:
        self._core = core
        self.polled_in_flight = False

    def poll(self, timeout_ms: int, most: int, most_bytes: int) -> list[tuple[TopicPartition, RecordBatch]]:
        self.polled_in_flight |= self._core.in_flight
        return [(PARTITION, RecordBatch([b"k"], [b"v"], np.zeros(1, np.int64), np.zeros(1, np.int64)))]

    def incremental_assign(self, positions: Any) -> None:
        pass

    def known_ends(self, partitions: Any) -> dict[TopicPartition, int]:
        return {}

    def reached_ends(self) -> dict[TopicPartition, int]:
        return {}


def test_records_stay_with_the_consumer_until_they_can_be_processed_and_answers_end_the_wait() -> None:
    core = _Core()
    consumer = _Consumer(core)

    def answer(action: v.RunTask) -> None:
        threading.Timer(0.02, polling.post, [v.Ran(TASK, records=1)]).start()

    figures = InstanceFigures(2, LONG_MS, lambda topic: False, SystemClock().milliseconds)
    membership = SimpleNamespace(start=lambda: polling.post(v.Assigned(frozenset([TASK]))))
    workers = SimpleNamespace(do=answer, follow=lambda event: None)
    polling = polling_of(core, consumer, membership, workers, figures)
    polling.run()
    assert sum(isinstance(event, v.Arrived) for event in core.seen) == 2
    assert not consumer.polled_in_flight


class _Following:
    """Follows a partition, again from an earlier offset when it is reset, until it is closed."""

    phase = Phase.RUNNING

    def __init__(self) -> None:
        self.seen: list[v.Event] = []

    def wants_records(self) -> bool:
        return True

    def room(self) -> Room:
        return Room(100, 10_000)

    def lags(self, ends: Any) -> dict[TopicPartition, int]:
        return {}

    def waiting(self) -> dict[TaskId, Any]:
        return {}

    def next_due_ms(self) -> int | None:
        return None

    def handle(self, event: v.Event, now: int, ahead_ms: int = 0) -> list[v.Action]:
        self.seen.append(event)
        match event:
            case v.Assigned():
                return [v.Follow({PARTITION: 0})]
            case v.PositionReset(partition, position):
                return [v.Unfollow(frozenset([partition])), v.Follow({partition: position})]
            case v.CloseRequested():
                return [v.End(None)]
            case _:
                return []


def ends_told(awaitable: bool, *polls: tuple[list[int], int | None] | v.PositionReset) -> list[int]:
    """Return the ends that the core learns of. polls: for each, the offsets of the records that arrive, and the end
    that is reached behind them; or what another thread tells in between."""
    core, left = _Following(), list(polls)
    reached: dict[TopicPartition, int] = {}

    def poll(timeout_ms: int, most: int, most_bytes: int) -> list[tuple[TopicPartition, RecordBatch]]:
        match left.pop(0) if left else None:
            case None:
                polling.post(v.CloseRequested())
            case v.PositionReset() as event:
                polling.post(event)
            case offsets, end:
                reached.update({} if end is None else {PARTITION: end})
                records = [(b"k", b"v", 0, offset, ()) for offset in offsets]
                return [(PARTITION, RecordBatch.of(records))] if records else []
        return []

    def reached_ends() -> dict[TopicPartition, int]:
        found = dict(reached)
        reached.clear()
        return found

    def ignore(partitions: Any) -> dict[TopicPartition, int]:
        return {}

    consumer = SimpleNamespace(
        poll=poll,
        reached_ends=reached_ends,
        known_ends=ignore,
        incremental_assign=ignore,
        incremental_unassign=ignore,
    )
    membership = SimpleNamespace(start=lambda: polling.post(v.Assigned(frozenset([TASK]))))
    figures = InstanceFigures(2, LONG_MS, lambda topic: False, SystemClock().milliseconds)
    wanted = frozenset([PARTITION]) if awaitable else frozenset()
    polling = polling_of(core, consumer, membership, _WORKERS, figures, poll_ms=0, awaitable=wanted)
    polling.run()
    return [end for event in core.seen if isinstance(event, v.EndsReached) for end in event.ends.values()]


def test_the_core_learns_only_of_ends_that_the_last_record_does_not_show() -> None:
    assert ends_told(False, ([3, 4], 5), ([5], None), ([], 6)) == []
    assert ends_told(False, ([], 5)) == [5], "no record has come yet"
    assert ends_told(False, ([3, 4], 6), ([], 9)) == [6, 9], "control records are behind the last one"
    assert ends_told(False, ([7], 8), v.PositionReset(PARTITION, 2), ([], 5)) == [5], "it was put back"


def test_the_core_learns_of_each_end_of_a_partition_that_tasks_wait_for() -> None:
    assert ends_told(True, ([3, 4], 5), ([5], 6)) == [5, 6]


class _Committing:
    """Ends behind the commit of its task."""

    phase = Phase.PREPARING

    def wants_records(self) -> bool:
        return False

    def room(self) -> None:
        return None

    def next_due_ms(self) -> int | None:
        return None

    def handle(self, event: v.Event, now: int, ahead_ms: int = 0) -> list[v.Action]:
        return [v.End(None)] if isinstance(event, v.CommitPrepared) else [v.Prepare(TASK, now)]


def test_what_a_commit_flushes_counts_as_time_of_its_topology() -> None:
    of_all = Turns(lambda: 0)
    committing, other, holding = of_all.join(1), of_all.join(1), of_all.join(1)
    figures = InstanceFigures(2, LONG_MS, lambda topic: False, SystemClock().milliseconds)
    membership = SimpleNamespace(start=lambda: polling.post(v.Assigned(frozenset([TASK]))))
    workers = SimpleNamespace(
        do=lambda action: polling.post(v.CommitPrepared(TASK, (), {}, nanoseconds=1)),
        worker_of=lambda task: 0,
        follow=lambda event: None,
    )
    polling = polling_of(_Committing(), None, membership, workers, figures, turns=committing)
    polling.run()
    order: list[str] = []

    def run(name: str, turns: TopologyTurns) -> None:
        with turns.of_runner().taken():
            order.append(name)
        turns.rest()

    runs = [("committing", committing), ("other", other)]
    threads = [threading.Thread(target=run, args=each, daemon=True) for each in runs]
    with holding.of_runner().taken():
        for number, thread in enumerate(threads, 1):
            thread.start()
            assert until(lambda number=number: of_all.waiting() == number)  # type: ignore[misc]  # bound in the loop
    holding.rest()
    for thread in threads:
        thread.join(60)
    assert order == ["other", "committing"]
