"""Worker processes: the same output, stores and queries as in one thread, whatever becomes of the processes."""

from __future__ import annotations

import logging
import os
import pickle
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Materialized, Produced
from penstock.errors import InvalidStateStoreError, StreamsError, TopologyError
from penstock.host.api import StreamThreadExceptionResponse
from penstock.host.deployment.layout import Layout, layout_of
from penstock.host.supervision.turns import TopologyTurns, Turns
from penstock.host.threads import vocabulary as v
from penstock.host.threads.directories import StateDirectory
from penstock.host.threads.processing import TaskRunner
from penstock.host.threads.visibility import Visibility
from penstock.host.threads.workers.messages import encoded
from penstock.host.threads.workers.placing import place
from penstock.host.threads.workers.worker_process import WorkerDiedError
from penstock.host.threads.workers.worker_processes import WorkerProcesses, starter_of_workers
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import Topology, built_topology
from penstock.record import AggregationWithHeaders, FailedRecord, PartitionBatch, RecordBatch, TopicPartition
from penstock.serdes import Serdes
from penstock.state.api import Base
from penstock.windows import SessionWindows, TimeWindows
from penstock_broker.common.clock import MockClock
from tests.host.threads.inline import InlineInstance
from tests.host.threads.memory_broker import MemoryBroker
from tests.support.waiting import until

SECONDS = 120.0
PARTITIONS = 3
TOPICS = {"in": PARTITIONS, "names": 1, "out": 1, "joined": 1, "windows": 1}
_LONG = Produced.with_(Serdes.string(), Serdes.long())


def words_of(line: str) -> list[str]:
    """Return the words of a line; one such as die:PATH happens once."""
    found = []
    for word in line.split():
        what, _, path = word.partition(":")
        if what == "log":
            logging.getLogger("words").warning("a line")
        if what == "interval":
            what = str(sys.getswitchinterval())
        if path and not Path(path).exists():
            Path(path).touch()
            while what == "spin":
                pass
            if what == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            raise MemoryError if what == "memory" else ValueError(word)
        if what == "always":
            os.kill(os.getpid(), signal.SIGKILL)
        found.append(what)
    return found


def topology() -> Topology:
    """Return counts of words, also by window, and a join with a global table."""
    builder = StreamsBuilder()
    names = builder.global_table("names", materialized=Materialized.as_("names"))
    words = builder.stream("in").flat_map_values(words_of).select_key(lambda _, word: word)
    words.join(names, lambda word, name: f"{word}={name}", key_selector=lambda key, _: key).to("joined")
    by_word = words.group_by_key()
    by_word.count(Materialized.as_("counts")).to_stream().to("out", _LONG)
    windows = by_word.windowed_by(TimeWindows.of_size_and_grace(10, 1_000)).count(Materialized.as_("windows"))
    windows.to_stream().select_key(lambda key, _: f"{key.key}@{key.window.start}").to("windows", _LONG)
    return builder.build()


def sessions() -> Topology:
    """Return counts by session."""
    builder = StreamsBuilder()
    by_word = builder.stream("in").group_by(lambda _, word: word)
    by_word.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(10)).count(Materialized.as_("sessions"))
    return builder.build()


class Workers:
    """Two processes, each action answered before the next (implements inline.Processing)."""

    def __init__(
        self,
        directory: Path,
        number: int = 2,
        turns: TopologyTurns | None = None,
        of: Callable[[], Topology] = topology,
        **settings: Any,
    ) -> None:
        self.config = config_in(directory, **settings)
        self.topology = of()
        self.layout = layout_in(self.config, lambda: self.topology)
        self.directory = StateDirectory(self.config)
        self.directory.acquire()
        self.path = directory / "app"
        self._answers: queue.SimpleQueue[v.Event] = queue.SimpleQueue()
        self.errors: list[BaseException] = []
        runner = TaskRunner(self.layout, {})
        start = starter_of_workers(self.layout, self.directory.run)
        self.processes = WorkerProcesses(self.layout, start, number, runner, self._answers.put, turns)

    def do(self, action: v.TaskAction) -> v.Event:
        """Return the answer to `action`."""
        self.processes.do(action)
        return self.answer()

    def answer(self) -> v.Event:
        """Return the next answer, or what is told without a question."""
        event = self._answers.get(timeout=SECONDS)
        if isinstance(event, v.Failed):
            self.errors.append(event.error)
        return event

    def open_base(self, task: TaskId) -> Base:
        return self.directory.open_base(task)

    def forget(self) -> None:
        """Lose the disk."""
        for path in self.path.iterdir():
            if path.is_dir() and path.name != "shared":  # which processes have open: it has nothing without the others
                shutil.rmtree(path)
        self.errors.clear()

    def close(self) -> None:
        self.processes.close()
        self.directory.release()


def config_in(directory: Path, **settings: Any) -> StreamsConfig:
    return StreamsConfig(
        {
            "application.id": "app",
            "bootstrap.servers": "nowhere:1",
            "state.dir": str(directory),
            "default.key.serde": Serdes.string(),
            "default.value.serde": Serdes.string(),
            "penstock.restart.backoff.ms": 0,
            "penstock.restart.max.attempts": 1,
            **settings,
        },
        environment={},
    )


def layout_in(config: StreamsConfig, of: Callable[[], Topology] = topology) -> Layout:
    return layout_of(built_topology(of(), "app"), config, TOPICS)


@pytest.fixture(scope="module", params=[False, True], ids=["own", "shared"])
def workers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    made = Workers(tmp_path_factory.mktemp("state"), **{"penstock.state.shared": request.param})
    yield made
    made.close()


@pytest.fixture
def play(workers: Workers) -> Iterator[Play]:
    made = Play(workers)
    yield made
    made.end()


class Play:
    """Topics and an instance over them, in worker processes or here."""

    def __init__(self, workers: Workers | None, **options: Any) -> None:
        self.broker = MemoryBroker(TOPICS)
        self.workers = workers
        self.clock = MockClock(1_000)
        config = config_in(Path("nowhere")) if workers is None else workers.config
        replaced = StreamThreadExceptionResponse.REPLACE_THREAD
        self.instance = InlineInstance(
            topology() if workers is None else workers.topology,
            config,
            self.broker,
            self.clock,
            response=replaced,
            processing=workers,
            **options,
        )

    def write(self, *lines: str, topic: str = "in") -> None:
        for number, line in enumerate(lines):
            key, _, value = line.partition("=") if topic == "names" else (None, None, line)
            row = (None if key is None else key.encode(), value.encode(), number, 0, ())
            self.broker.append([PartitionBatch(topic, number % TOPICS[topic], RecordBatch.of([row]))])

    def output(self) -> dict[str, list[tuple[bytes, bytes]]]:
        """Return what is in the topics of the output and in the changelogs, in order."""
        found = {}
        for topic, partitions in self.broker.topics().items():
            for at in (TopicPartition(topic, number) for number in range(partitions)):
                if self.broker.end(at):
                    batch = self.broker.read(at, 0, self.broker.end(at))
                    found[str(at)] = list(zip(batch.keys, batch.values, strict=True))
        return found

    def counts(self) -> dict[str, int]:
        """Return the last count of each word."""
        return {key.decode(): int.from_bytes(value) for key, value in self.output().get("out-0", [])}

    def end(self) -> None:
        self.instance.close()
        if self.workers is not None:
            self.workers.forget()


@pytest.mark.usefixtures("marked_log")
def test_lines_of_the_log_say_of_which_task_they_are(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    play.write("a", "log")
    play.instance.run()
    (line,) = (line for line in caplog.records if line.name == "words")
    marks = vars(line)
    assert (marks["penstock_application"], marks["penstock_task"], line.getMessage()) == ("app", "1_1", "a line")


WORDS = st.lists(st.lists(st.sampled_from("abcd"), max_size=4).map(" ".join), max_size=6)


@settings(max_examples=3)
@given(WORDS, WORDS, st.sampled_from([0, 1_000_000]), st.booleans())
def test_output_and_changelogs_are_those_of_one_thread(
    workers: Workers, first: list[str], second: list[str], commit_interval_ms: int, exactly_once: bool
) -> None:
    outputs = []
    for where in (None, workers):
        play = Play(where, commit_interval_ms=commit_interval_ms, exactly_once=exactly_once, records_at_once=2)
        play.write("a=A", "b=B", topic="names")
        for lines in (first, second):
            play.write(*lines)
            play.instance.run()
        play.end()
        outputs.append(play.output())
    assert outputs[0] == outputs[1]


def test_the_output_does_not_depend_on_the_load_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = []
    for run_nanoseconds in (0, 10_000_000_000):
        with monkeypatch.context() as patched:
            patched.setattr(time, "perf_counter_ns", count(0, run_nanoseconds).__next__)
            play = Play(None, records_at_once=8)
            play.write(*["a b c", "d a", "b b", "c d"] * 12)
            play.instance.run()
            play.end()
        outputs.append(play.output())
    assert outputs[0] == outputs[1]


def test_stores_are_read_in_workers(play: Play, workers: Workers) -> None:
    play.write("a=A", topic="names")
    play.write("a b", "a", "c a")
    play.instance.run()
    for visible in Visibility:
        stores = workers.processes.readable("counts", visible)
        assert [each.task.partition for each in stores] == [0, 1, 2]
        read: list[Any] = [each.store for each in stores]
        assert {key: value.value for store in read for key, value in store.all()} == {"a": 3, "b": 1, "c": 1}
        assert sum(store.approximate_num_entries() for store in read) == 3
        windows: list[Any] = [each.store for each in workers.processes.readable("windows", visible)]
        assert sum(len(list(store.fetch("a", 0, 1_000))) for store in windows) == 1
    (names,) = workers.processes.readable("names", Visibility.COMMITTED)
    assert {key: value.value for key, value in names.store.all()} == {"a": "A"}  # type: ignore[attr-defined]  # a store
    places = workers.processes.workers()
    assert set(places) == set(workers.layout.groups)
    assert {text.partition("(pid ")[2] for text in places.values()} <= {f"{pid})" for pid in workers.processes.pids()}
    assert [workers.processes.entries(name) for name in ("counts", "windows", "names", "none")] == [3, 3, 1, None]


def test_uncommitted_writes_of_workers_are_seen_where_they_are_asked_for(workers: Workers) -> None:
    play = Play(workers, commit_interval_ms=30_000)
    play.instance.run()
    play.write("a b", "a")
    play.instance.run()
    seen: dict[Visibility, dict[str, int]] = {}
    read: dict[Visibility, int] = {}
    for visible in Visibility:
        stores: list[Any] = workers.processes.readable("counts", visible)
        seen[visible] = {key: value.value for each in stores for key, value in each.store.all()}
        read[visible] = sum(sum(each.positions.values()) for each in stores)
    play.end()
    assert seen == {Visibility.WRITTEN: {"a": 2, "b": 1}, Visibility.FLUSHED: {}, Visibility.COMMITTED: {}}
    assert read == {Visibility.WRITTEN: 3, Visibility.FLUSHED: 0, Visibility.COMMITTED: 0}


def test_sessions_of_workers_have_headers_at_each_level(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"dsl.store.format": "headers"}
    workers = Workers(tmp_path, 1, of=sessions, **settings)
    try:
        play = Play(workers)
        play.write("a")
        play.instance.run()
        for visible in Visibility:
            stores: list[Any] = [each.store for each in workers.processes.readable("sessions", visible)]
            assert [value for each in stores for _, value in each.fetch("a")] == [AggregationWithHeaders(1, ())]
        play.end()
    finally:
        workers.close()


def test_workers_switch_between_threads_often(play: Play) -> None:
    play.write("interval")
    play.instance.run()
    assert play.counts() == {"0.0005": 1}
    assert sys.getswitchinterval() != 0.0005  # this process is not Penstock's


def test_a_store_of_a_task_that_was_closed_cannot_be_read(workers: Workers) -> None:
    play = Play(workers)
    play.write("a")
    play.instance.run()
    store: Any = workers.processes.readable("counts", Visibility.WRITTEN)[0].store
    play.end()
    assert workers.processes.readable("counts", Visibility.WRITTEN) == []
    with pytest.raises(InvalidStateStoreError, match="migrated"):
        store.get("a")


@pytest.mark.parametrize(("how", "told"), [("die", "killed by SIGKILL"), ("memory", "ran out of memory")])
def test_a_worker_that_dies_is_replaced_and_its_tasks_go_on(
    play: Play, workers: Workers, tmp_path: Path, how: str, told: str
) -> None:
    play.write("a b", "c", "a")
    play.instance.run()
    play.write("a", f"{how}:{tmp_path / 'once'}", "b")
    play.instance.run()
    assert play.counts() == {"a": 3, "b": 2, "c": 1, how: 1}
    assert len(workers.errors) == 1
    assert told in str(workers.errors[0])
    assert "task 1_1" in str(workers.errors[0])


def test_a_worker_that_dies_leaves_its_turn_to_others(tmp_path: Path) -> None:
    turns = Turns(lambda: 0)  # of one place; no turn ends by time
    other = turns.join(1)
    had_turn: list[bool] = []

    class Observed(Workers):
        def answer(self) -> v.Event:
            event = super().answer()
            if isinstance(event, v.Failed):
                thread = threading.Thread(target=self._take_turn, daemon=True)
                thread.start()
                thread.join(SECONDS)
                had_turn.append(not thread.is_alive())
            return event

        def _take_turn(self) -> None:
            with other.of_runner().taken():
                pass
            other.rest()

    workers = Observed(tmp_path / "state", turns=turns.join(1))
    try:
        play = Play(workers)
        play.write("a b", f"die:{tmp_path / 'once'}", "b")
        play.instance.run()
        assert play.counts() == {"a": 1, "b": 2, "die": 1}
        assert had_turn == [True]
        play.end()
    finally:
        workers.close()


def test_a_worker_whose_function_does_not_return_is_ended_and_its_tasks_go_on(
    play: Play, workers: Workers, tmp_path: Path
) -> None:
    spinning = tmp_path / "once"
    play.write("a b", "c", "a")
    play.instance.run()

    def end_hung() -> None:
        if until(spinning.exists):
            workers.processes.end_hung(3_600_000)
            workers.processes.end_hung(0)

    ending = threading.Thread(target=end_hung)
    ending.start()
    play.write("a", f"spin:{spinning}", "b")
    play.instance.run()
    ending.join()
    assert play.counts() == {"a": 3, "b": 2, "c": 1, "spin": 1}
    (error,) = workers.errors
    assert "was killed after max.poll.interval.ms=0 without progress while it ran task 1_1" in str(error)


def test_a_worker_that_dies_with_nothing_to_do_is_replaced(play: Play, workers: Workers) -> None:
    play.write("a", "b", "c")
    play.instance.run()
    os.kill(workers.processes.pids()[0], signal.SIGKILL)
    play.instance.tell(workers.answer())
    play.write("a", "b")
    play.instance.run()
    assert play.counts() == {"a": 2, "b": 2, "c": 1}
    assert "no task" in str(workers.errors[0])


def test_deaths_of_workers_with_the_same_task_are_counted(workers: Workers) -> None:
    play = Play(workers)
    play.write("always")
    with pytest.raises(WorkerDiedError, match="while it ran task 1_0") as raised:
        play.instance.run()
    assert (raised.value.task, raised.value.deaths) == (TaskId(1, 0), 2)
    workers.forget()


def test_an_error_of_a_function_comes_with_its_cause_and_the_line(play: Play, workers: Workers, tmp_path: Path) -> None:
    play.write(f"error:{tmp_path / 'once'}")
    play.instance.run()
    assert play.counts() == {"error": 1}
    (error,) = workers.errors
    assert isinstance(error, StreamsError)
    assert isinstance(error.__cause__, ValueError)
    assert any("raise MemoryError if" in note for note in error.__cause__.__notes__)


def test_an_interrupt_is_for_the_program_alone(tmp_path: Path) -> None:
    workers = Workers(tmp_path)  # those of the other tests may have been killed, and are replaced where they are needed
    try:
        play = Play(workers)
        for pid in workers.processes.pids():
            os.kill(pid, signal.SIGINT)
        play.write("a")
        play.instance.run()
        assert play.counts() == {"a": 1}
        play.end()
    finally:
        workers.close()


def test_a_program_that_cannot_be_sent_is_refused_by_the_name_of_what_is_at_fault(tmp_path: Path) -> None:
    lock = threading.Lock()

    def locking(value: str) -> str:
        with lock:
            return value

    def of() -> Topology:
        builder = StreamsBuilder()
        builder.stream("in").map_values(locking).to("out")
        return builder.build()

    config = config_in(tmp_path)
    layout = layout_in(config, of)
    with pytest.raises(StreamsError, match=r"cannot be sent to worker processes: function .*locking.*`lock`"):
        starter_of_workers(layout, "")


PARENT = """
import sys
from pathlib import Path
from tests.host.threads.test_workers import Play, Workers
workers = Workers(Path(sys.argv[1]), 1)
print(*workers.processes.pids(), flush=True)
play = Play(workers)
play.write(f"spin:{sys.argv[2]}")
play.instance.run()
"""


def test_a_worker_whose_function_does_not_return_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    spinning = tmp_path / "spinning"
    command = [sys.executable, "-c", PARENT, str(tmp_path), str(spinning)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = parent.stdout.readline().split()
        assert until(spinning.exists)
        parent.kill()
    assert until(lambda: not is_running(*pids))


def is_running(pid: str) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the second is what reading says of a process that ends meanwhile
        return False


def test_errors_cross_with_class_text_causes_and_notes() -> None:
    class OddError(Exception):
        def __init__(self, one: str, other: str) -> None:
            super().__init__(f"{one} {other}")

    try:
        try:
            raise OddError("one", "other")
        except OddError as odd:
            odd.add_note("a note")
            raise TopologyError("wrong") from odd
    except TopologyError as error:
        error.failed_record = FailedRecord("map", "in", 0, 3, "'k'", "'v'")
        came: BaseException = pickle.loads(encoded(error))
    assert isinstance(came, TopologyError)
    assert came.failed_record == FailedRecord("map", "in", 0, 3, "'k'", "'v'")
    assert str(came) == "Invalid topology: wrong"
    assert came.__cause__ is not None
    assert str(came.__cause__) == "one other"
    assert came.__cause__.__notes__[0] == "a note"


def test_tasks_are_spread_and_stay_where_they_were() -> None:
    running: dict[TaskId, int] = {}
    for task in [TaskId(subtopology, number) for subtopology in range(2) for number in range(4)]:
        running[task] = place(task, running, None, range(2))
    for subtopology in range(2):
        assert sorted(at for task, at in running.items() if task.subtopology == subtopology) == [0, 0, 1, 1]
    assert all(running[TaskId(0, number)] != running[TaskId(1, number)] for number in range(4))
    before = dict(running)
    again: dict[TaskId, int] = {}
    for task in sorted(before, reverse=True):
        again[task] = place(task, again, before[task], range(2))
    assert again == before
    alone = {TaskId(0, 0): 1}
    assert place(TaskId(0, 1), alone, 1, range(2)) == 0
