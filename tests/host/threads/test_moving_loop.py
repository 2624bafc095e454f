"""The polling loop moves to the thread of the tasks while runs are short, and back."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from unittest.mock import Mock

import pytest

from penstock.host.threads import vocabulary as v
from penstock.host.threads.moving_loop import Loan, MovingLoop
from penstock.host.threads.processing import TaskRunner
from penstock.host.threads.processing_thread import ProcessingThread
from penstock.plan.subtopology import TaskId
from penstock.record import RecordBatch, TopicPartition
from penstock.task.idling import NO_WAIT
from tests.support.waiting import until

TASK, OTHER = TaskId(0, 0), TaskId(0, 1)
PARTITION = TopicPartition("in", 0)
LOGGED = ContextVar("logged", default="nothing")
SET_BY_FUNCTION = ContextVar("set_by_function", default="nothing")
SECONDS = 20.0


def run_of(records: int, task: TaskId = TASK) -> v.RunTask:
    batch = RecordBatch.of([(b"k", b"v", 0, offset, ()) for offset in range(records)])
    return v.RunTask(task, [(PARTITION, batch)], NO_WAIT, 0)


class Loop:
    """Runs a task for each number of records that a test gives, in a thread of tasks; notes the thread of each step."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[v.Event] = queue.SimpleQueue()
        self.has_ended = False
        self.is_waiting = False
        self.handled_by: list[tuple[str, str]] = []
        """The kind of each event, and the thread that handled it."""
        self.performed_by: set[str] = set()
        self.logged: set[str] = set()
        self.task = TASK
        """The task that gets the records."""
        self.fails_at: type[v.Event] | None = None
        self.hold: Callable[[TaskId], object] = lambda task: None
        """Called in each run."""
        self.tasks = ProcessingThread("tasks", Mock(spec=TaskRunner, do=self._do), self.events.put)
        self.lend = self.tasks.lend
        self.look_seconds = SECONDS
        """So no run on a busy machine is too long, unless a test is about such runs."""
        self._polling = threading.Thread(target=self._run, name="polling", daemon=True)
        self.error: BaseException | None = None

    def start(self) -> None:
        self._polling.start()

    def _run(self) -> None:
        LOGGED.set("the application")
        try:
            MovingLoop(self, self.lend, self.look_seconds).run()
        except BaseException as error:
            self.error = error

    def _do(self, action: v.TaskAction) -> v.Event:
        self.performed_by.add(threading.current_thread().name)
        if not isinstance(action, v.RunTask):
            return v.CommitPrepared(action.task, (), {})
        self.hold(action.task)
        return v.Ran(action.task, records=sum(len(batch) for _, batch in action.records))

    def next_event(self) -> v.Event | None:
        try:
            return self.events.get(timeout=0.01)
        except queue.Empty:
            return None

    def handle(self, event: v.Event) -> None:
        self.logged.add(LOGGED.get())
        self.handled_by.append((type(event).__name__, threading.current_thread().name))
        if self.fails_at is type(event):
            raise OSError("the loop fails")
        match event:
            case v.Arrived(_, batch):
                self.is_waiting = True
                self.tasks.do(run_of(len(batch), self.task))
            case v.Ran() | v.CommitPrepared() | v.Hangs():
                self.is_waiting = False
            case v.OutputLags():
                self.is_waiting = True
                self.tasks.do(v.Prepare(TASK, 0))
            case v.CloseRequested():
                self.has_ended = True
            case _:
                pass

    def process(self, records: int = 1) -> str:
        """Let records arrive, and return the thread that has handled the end of their run."""
        before = len(self.handled_by)
        self.events.put(v.Arrived(PARTITION, run_of(records).records[0][1]))
        return self.handler_of("Ran", before)

    def tell(self, event: v.Event) -> str:
        """Post an event, and return the thread that has handled it."""
        before = len(self.handled_by)
        self.events.put(event)
        return self.handler_of(type(event).__name__, before)

    def handler_of(self, kind: str, before: int) -> str:
        found: list[str] = []

        def is_handled() -> bool:
            found[:] = [thread for each, thread in self.handled_by[before:] if each == kind]
            return bool(found)

        assert until(is_handled)
        return found[0]

    def join(self) -> bool:
        self._polling.join(SECONDS)
        return not self._polling.is_alive()


@pytest.fixture
def loop() -> Iterator[Loop]:
    with running(Loop()) as loop:
        yield loop


@pytest.fixture
def looking() -> Iterator[Loop]:
    """Return a loop that soon finds a run too long."""
    loop = Loop()
    loop.look_seconds = 0.02
    with running(loop):
        yield loop


@contextmanager
def running(loop: Loop) -> Iterator[Loop]:
    loop.start()
    yield loop
    loop.events.put(v.CloseRequested())
    assert loop.join()
    loop.tasks.close()


def moved(loop: Loop) -> Loop:
    """Return `loop` when it has moved: after some short runs."""
    assert until(lambda: loop.process() == "tasks")
    return loop


def test_the_loop_moves_after_short_runs_and_tasks_stay_in_their_thread(loop: Loop) -> None:
    assert loop.process() == "polling"
    moved(loop)
    assert [loop.process() for _ in range(20)] == ["tasks"] * 20
    assert loop.performed_by == {"tasks"}


@pytest.mark.parametrize(
    "event", [v.CloseRequested(), v.TimePassed(), v.Assigned(frozenset()), v.OffsetsCommitted(), v.Failed(OSError())]
)
def test_the_polling_thread_handles_all_but_records_and_runs(loop: Loop, event: v.Event) -> None:
    assert moved(loop).tell(event) == "polling"


def test_the_loop_moves_again_when_records_arrive_again(loop: Loop) -> None:
    moved(loop).tell(v.TimePassed())
    assert loop.process() == "polling", "an idle loop stays where it is"
    assert loop.process() == "tasks"


def test_a_commit_and_a_long_run_overlap_with_the_loop(loop: Loop) -> None:
    moved(loop)
    before = len(loop.handled_by)
    assert loop.tell(v.OutputLags()) == "polling"
    assert loop.handler_of("CommitPrepared", before) == "polling"
    moved(loop)
    assert [loop.process(10_000), loop.process()] == ["polling", "polling"]
    assert loop.performed_by == {"tasks"}


def test_the_polling_thread_takes_the_loop_back_from_a_run_that_does_not_return(looking: Loop) -> None:
    moved(looking)
    returns = threading.Event()
    looking.hold = lambda task: returns.wait(SECONDS)
    before = len(looking.handled_by)
    looking.events.put(v.Arrived(PARTITION, run_of(1).records[0][1]))
    assert looking.handler_of("Arrived", before) == "tasks"
    assert looking.tell(v.TimePassed()) == "polling", "while the run goes on"
    returns.set()
    assert looking.handler_of("Ran", before) == "polling"
    moved(looking)


def test_a_function_that_hangs_keeps_its_thread_and_the_loop_moves_to_the_next_one(looking: Loop) -> None:
    moved(looking)
    returns = threading.Event()
    looking.hold = lambda task: task == OTHER or returns.wait(SECONDS)
    looking.events.put(v.Arrived(PARTITION, run_of(1).records[0][1]))
    assert looking.tell(v.TimePassed()) == "polling"
    before = len(looking.handled_by)
    looking.tasks.look_for_hung(0)
    assert looking.handler_of("Hangs", before) == "polling"
    looking.task = OTHER
    assert until(lambda: looking.process() == "tasks-1")
    before = len(looking.handled_by)
    returns.set()
    assert looking.handler_of("Ran", before) != "tasks"
    assert until(lambda: looking.process() == "tasks-1")


def test_an_error_of_the_loop_ends_it_in_the_polling_thread(loop: Loop) -> None:
    moved(loop)
    loop.fails_at = v.Arrived
    loop.events.put(v.Arrived(PARTITION, run_of(1).records[0][1]))
    assert loop.join()
    assert isinstance(loop.error, OSError)


def test_log_records_of_the_loop_name_the_application_in_each_thread(loop: Loop) -> None:
    moved(loop)
    assert loop.logged == {"the application"}


def test_context_variables_of_a_function_last_from_run_to_run_in_each_thread_of_the_loop(loop: Loop) -> None:
    seen: list[str] = []

    def see(task: TaskId) -> None:
        seen.append(SET_BY_FUNCTION.get())
        if len(seen) == 1:
            SET_BY_FUNCTION.set("by the first run")

    loop.hold = see
    moved(loop)
    assert [loop.process() for _ in range(3)] == ["tasks"] * 3
    loop.tell(v.TimePassed())
    assert loop.process() == "polling"
    assert set(seen[1:]) == {"by the first run"}


class Exclusive(Loop):
    """Gets records again and again, in runs of any duration, and fails if two threads have the loop at once."""

    def __init__(self, seed: int, runs: int) -> None:
        super().__init__()
        self.look_seconds = 0.002
        self.hold = lambda task: threading.Event().wait(self._random.choice([0, 0, 0, 0, 0, 0, 0.001, 0.002, 0.004]))
        self._random = random.Random(seed)
        self._left = runs
        self._has = threading.Lock()

    def next_event(self) -> v.Event | None:
        with self._alone():
            return super().next_event()

    def handle(self, event: v.Event) -> None:
        with self._alone():
            super().handle(event)
            if not self.is_waiting and isinstance(event, v.Ran | v.CommitPrepared):
                self.go_on()

    def go_on(self) -> None:
        """Let other records arrive, or begin a commit; close after the last run."""
        others: list[v.Event] = [v.OutputLags()] if self._random.random() < 0.02 else []
        if not others:
            self._left -= 1
            number = 200 if self._random.random() < 0.01 else 1
            others = [v.Arrived(PARTITION, run_of(number).records[0][1]) if self._left >= 0 else v.CloseRequested()]
        if self._random.random() < 0.02:
            others.append(v.TimePassed())
        for event in others:
            self.events.put(event)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        assert self._has.acquire(blocking=False), "another thread has the loop"
        try:
            yield
        finally:
            self._has.release()


def test_one_thread_has_the_loop_however_long_runs_take() -> None:
    loop = Exclusive(seed=1, runs=500)
    loop.go_on()
    loop.start()
    assert loop.join()
    loop.tasks.close()
    assert loop.error is None
    runs = [thread for kind, thread in loop.handled_by if kind == "Ran"]
    assert len(runs) == 500
    assert set(runs) == {"polling", "tasks"}


def test_the_loop_stays_if_tasks_run_in_other_processes() -> None:
    loop = Loop()
    asked: list[Loan] = []

    def refuse(loan: Loan) -> bool:
        asked.append(loan)
        return False

    loop.lend = refuse  # as worker processes
    loop.start()
    assert [loop.process() for _ in range(30)] == ["polling"] * 30
    assert asked
    loop.events.put(v.CloseRequested())
    assert loop.join()
    loop.tasks.close()
