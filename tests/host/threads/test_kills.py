"""Two instances of a count of words, exactly once, are killed by turns, sometimes with their disks, or at a crash
point, are stopped for longer than their session, lose a worker process, or close and come back: each word is counted
once, in order, whoever counts it, and the changelog has the last counts.

At least once, records may be processed twice, and none is lost: a program for which twice is as good as once ends with
the output of a run that nothing disturbs.

`make test-slow` kills at two of the crash points, drawn by the seed of `tests.crash`; `make crash` at all of them.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher, ConfluentProducer
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.host.crashpoints import THREADS_POINTS
from penstock.record import TopicPartition
from penstock.serdes import Serdes
from penstock.testing import TopologyTestDriver
from tests.crash.seed import ALL, SEED
from tests.host.threads.program import SHIFT, largest
from tests.support.brokers import RunningBroker
from tests.support.waiting import WAIT_SECONDS, until

ROOT = Path(__file__).parents[3]
PARTITIONS = 4
STRIKES = ("kill", "kill", "lose the disk", "stop", "close")
LINES = 150
SEEDS = range(1, 9) if ALL else [1 + SEED % 8]
MOST_ROUNDS = 50
LATE_POINTS = frozenset(["state.sealed"])
"""Points of the end of an instance."""
SAMPLED_POINTS = (
    "commit.prepared",
    "commit.offsets",
    "commit.committed",
    "commit.applied",
    "group.assigned",
    "state.read",
)
"""Points that every instance comes to soon."""


class Group:
    """Topics, and two instances over them that count words."""

    def __init__(
        self,
        broker: RunningBroker,
        directory: Path,
        unique_name: Callable[[str], str],
        settings: Mapping[str, Any],
        points: Collection[str] = (),
        program: str = "counts",
    ) -> None:
        """points: where an instance kills itself, once. program: see `tests.host.threads.program`."""
        self.program = program
        self.application, self.source, self.sink = unique_name("app"), unique_name("in"), unique_name("out")
        self.servers = broker.bootstrap_servers
        self.directory = directory
        self.settings = json.dumps(settings)
        self.orders = directory / "orders"
        self.orders.mkdir()
        self.ends = {0, -signal.SIGKILL} if points else {0}  # a point may be one of the end
        self.environment = {
            **os.environ,
            "PENSTOCK_CRASH_POINTS": " ".join(points),
            "PENSTOCK_CRASH_DIRECTORY": str(self.orders),
        }
        config = StreamsConfig({"application.id": self.application, "bootstrap.servers": self.servers})
        self.admin, self.producer = ConfluentAdmin(config), ConfluentProducer(config)
        self.fetcher = ConfluentFetcher(config)
        self.admin.create_topics([NewTopic(self.source, PARTITIONS), NewTopic(self.sink, 1)])
        self.written: Counter[str] = Counter()
        self.processes = [self.start(number) for number in range(2)]

    def state(self, number: int) -> Path:
        return self.directory / f"state-{number}"

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """Start an instance."""
        topics = self.source, self.sink
        names = self.servers, self.application, str(self.state(number)), *topics, self.settings, self.program
        with (self.directory / f"log-{number}").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.host.threads.program", *names],
                stdin=subprocess.PIPE,
                env=self.environment,
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )

    def write(self, draw: random.Random) -> None:
        for _ in range(LINES):
            line = f"w{draw.randrange(30)} every"
            self.producer.send(self.source, None, line.encode(), draw.randrange(PARTITIONS))
            self.written.update(line.split())
        self.producer.flush()

    def read(self, topic: str, partitions: int) -> dict[str, list[int]]:
        """Return the counts of each word in the order of a topic."""
        ends = self.admin.end_offsets([TopicPartition(topic, n) for n in range(partitions)], read_committed=True)
        counts: dict[str, list[int]] = {}
        for place, end in ends.items():
            for batch in self.fetcher.fetch(place, 0, end, read_committed=True) if end else ():
                for key, value in zip(batch.keys, batch.values, strict=True):
                    counts.setdefault(key.decode(), []).append(int.from_bytes(value))
        return counts

    def counts(self) -> dict[str, list[int]]:
        """Return the counts of each word in the order of the output."""
        return self.read(self.sink, 1)

    def assert_exact(self) -> None:
        """Check that each word was counted once, in order, and that the changelog has the last count."""
        assert self.counts() == {word: list(range(1, times + 1)) for word, times in self.written.items()}, self.logs()
        changelog = f"{self.application}-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog"
        last = {word: found[-1] for word, found in self.read(changelog, PARTITIONS).items()}
        assert last == self.written, self.logs()

    def is_done(self) -> bool:
        """Return whether everything has been processed."""
        return self.has_counted(sum(self.written.values()))

    def finish(self) -> None:
        """Wait until everything has been processed."""
        assert until(self.is_done), self.logs()

    def counted(self) -> int:
        return sum(map(len, self.counts().values()))

    def has_counted(self, words: int) -> bool:
        return self.counted() >= words

    def members(self) -> int:
        return len(self.admin.describe_group(self.application).members)

    def revive(self, draw: random.Random) -> None:
        """Start instances that have killed themselves again, some without their disks."""
        for number, process in enumerate(self.processes):
            if process.poll() is not None:
                assert process.returncode == -signal.SIGKILL, self.logs()
                if draw.random() < 0.3:
                    shutil.rmtree(self.state(number), ignore_errors=True)
                self.processes[number] = self.start(number)

    def close(self) -> list[int]:
        """End both instances; return their exit codes."""
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            assert process.stdin is not None
            process.stdin.close()
        return [process.wait(WAIT_SECONDS) for process in self.processes]

    def strike(self, number: int, how: str) -> None:
        """Let an instance be gone for some time."""
        process = self.processes[number]
        if how == "stop":
            # It still believes in its tasks when it goes on: others have them, and have processed all that is there.
            process.send_signal(signal.SIGSTOP)
            assert until(lambda: self.members() == 1), self.logs()
            assert until(self.is_done), self.logs()
            process.send_signal(signal.SIGCONT)
            return
        if how == "kill a worker":
            assert until(lambda: kill_a_child(process.pid)), self.logs()  # it may just have been started
            return
        if how in ("close", "be away"):
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(WAIT_SECONDS) in self.ends, self.logs()
            # Else it may be back before the other one has its tasks, which then has none to give up.
            assert how == "close" or until(lambda: self.members() == 1), self.logs()
        else:
            process.kill()
            process.wait()
        if how == "lose the disk":
            shutil.rmtree(self.state(number), ignore_errors=True)
        self.processes[number] = self.start(number)

    def logs(self) -> str:
        return "\n".join((self.directory / f"log-{number}").read_text() for number in range(2))


class LargestGroup(Group):
    """The same with instances that find the largest number of each word, at least once."""

    def __init__(
        self, broker: RunningBroker, directory: Path, unique_name: Callable[[str], str], points: Collection[str]
    ) -> None:
        settings = {"processing.guarantee": "at_least_once", "state.cleanup.delay.ms": 1_000}
        super().__init__(broker, directory, unique_name, settings, points, "largest")
        self.lines: list[str] = []

    def write(self, draw: random.Random) -> None:
        for _ in range(LINES):
            line = f"w{draw.randrange(30)} {(len(self.lines) + 1) * 7_919 % 1_000_003}"
            self.lines.append(line)
            self.producer.send(self.source, None, line.encode(), draw.randrange(PARTITIONS))
        self.producer.flush()

    def undisturbed(self) -> dict[str, int]:
        """Return the last value of each key of the output of the test driver."""
        builder = StreamsBuilder()
        largest(builder, "in", "out")
        config = {
            "application.id": "undisturbed",
            "default.key.serde": Serdes.string(),
            "default.value.serde": Serdes.string(),
        }
        with TopologyTestDriver(builder.build(), config) as driver:
            source = driver.create_input_topic("in", Serdes.string(), Serdes.string())
            for line in self.lines:
                source.pipe_input(None, line)
            return driver.create_output_topic("out", Serdes.string(), Serdes.long()).read_key_values_to_map()

    def last(self) -> dict[str, int]:
        return {key: values[-1] for key, values in self.counts().items()}

    def is_done(self) -> bool:
        return self.last() == self.undisturbed()

    def assert_nothing_is_lost(self) -> None:
        """Check that output and changelog end as those of an undisturbed run."""
        wanted = self.undisturbed()
        assert self.last() == wanted, self.logs()
        own = (topic for topic in self.admin.topics() if topic.startswith(f"{self.application}-"))
        [changelog] = (topic for topic in own if topic.endswith("-changelog"))
        last = {f"most {word}": found[-1] for word, found in self.read(changelog, PARTITIONS).items()}
        assert last == {key: number for key, number in wanted.items() if key.startswith("most")}, self.logs()


class BroadcastGroup(Group):
    """The same with instances whose tasks each write every line."""

    def __init__(
        self,
        broker: RunningBroker,
        directory: Path,
        unique_name: Callable[[str], str],
        points: Collection[str] = (),
        standbys: int = 0,
    ) -> None:
        settings = {"state.cleanup.delay.ms": 1_000, "num.standby.replicas": standbys}
        super().__init__(broker, directory, unique_name, settings, points, "everywhere")
        self.lines = 0

    def write(self, draw: random.Random) -> None:
        for _ in range(LINES):
            self.producer.send(self.source, None, b"%d" % self.lines, draw.randrange(PARTITIONS))
            self.lines += 1
        self.producer.flush()

    def is_done(self) -> bool:
        return self.has_counted(self.lines * PARTITIONS)

    def assert_exact(self) -> None:
        """Check that each task has taken each line once, and its state with it."""
        places = {task: [number // SHIFT for number in found] for task, found in self.counts().items()}
        assert places == {str(n): list(range(1, self.lines + 1)) for n in range(PARTITIONS)}, self.logs()
        lines = {task: sorted(number % SHIFT for number in found) for task, found in self.counts().items()}
        assert lines == {str(n): list(range(self.lines)) for n in range(PARTITIONS)}, self.logs()


class ExpiringGroup(Group):
    """The same with instances that count words in windows, write what is late, and forget old words."""

    def __init__(
        self, broker: RunningBroker, directory: Path, unique_name: Callable[[str], str], points: Collection[str] = ()
    ) -> None:
        settings = {"state.cleanup.delay.ms": 1_000, "num.stream.threads": 2, "num.standby.replicas": 1}
        super().__init__(broker, directory, unique_name, settings, points, "expiring")
        self.lines: list[tuple[str, str, int]] = []

    def write(self, draw: random.Random) -> None:
        for _ in range(LINES):
            number, word = len(self.lines), draw.randrange(30)
            time = 10_000 + 10 * number - draw.choice((0, 0, 0, 0, 50, 700, 2_000))
            self.send(f"w{word}", f"line {number}", time, word % PARTITIONS)
        self.producer.flush()

    def send(self, word: str, line: str, time: int, partition: int) -> None:
        self.lines.append((word, line, time))
        self.producer.send(self.source, word.encode(), line.encode(), partition, time)

    def finish(self) -> None:
        """Write a line to each task after which all others have expired, and wait until they are deleted."""
        for partition in range(PARTITIONS):
            self.send(f"end{partition}", f"end {partition}", 10_000_000, partition)
        self.producer.flush()
        super().finish()
        assert until(self.has_expired), self.logs()

    def texts(self) -> dict[str, list[str]]:
        """Return the values of each key in the order of the output."""
        place = TopicPartition(self.sink, 0)
        end = self.admin.end_offsets([place], read_committed=True)[place]
        found: dict[str, list[str]] = {}
        for batch in self.fetcher.fetch(place, 0, end, read_committed=True) if end else ():
            for key, value in zip(batch.keys, batch.values, strict=True):
                found.setdefault(key.decode(), []).append(value.decode())
        return found

    def counted(self) -> int:
        """Return how many lines have been written again."""
        found = self.texts()
        return sum(value != "None" for key, values in found.items() if key.startswith("last ") for value in values)

    def is_done(self) -> bool:
        return self.has_counted(len(self.lines))

    def has_expired(self) -> bool:
        """Return whether all words but the last ones have been deleted."""
        found = self.texts()
        last = {key: values[-1] for key, values in found.items() if key.startswith("last ")}
        return all((value == "None") != key.startswith("last end") for key, value in last.items())

    def assert_exact(self) -> None:
        """Check that each line was either counted once or written as late, and that each word has all its lines, with
        at most one delete after each."""
        found = self.texts()
        late = [line for key, values in found.items() if " " not in key for line in values]
        counts = {key: [int(value) for value in values] for key, values in found.items() if " from " in key}
        assert all(values == list(range(1, len(values) + 1)) for values in counts.values()), self.logs()
        assert len({*late}) == len(late) > 0, self.logs()
        assert len(late) + sum(values[-1] for values in counts.values()) == len(self.lines), self.logs()
        for word in {word for word, _, _ in self.lines}:
            values = found[f"last {word}"]
            own = [line for key, line, _ in self.lines if key == word]
            assert [value for value in values if value != "None"] == own, self.logs()
            assert ("None", "None") not in pairwise(values), self.logs()
        assert self.has_expired(), self.logs()


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found += map(int, path.read_text().split())
    return found


def kill_a_child(pid: int) -> bool:
    """Kill one of the processes that a process has started; return whether there was any."""
    for child in sorted(children(pid)):
        with suppress(ProcessLookupError):  # it has ended
            os.kill(child, signal.SIGKILL)
            return True
    return False


@pytest.mark.crash
@pytest.mark.one_broker
@pytest.mark.parametrize("seed", SEEDS)
def test_each_word_is_counted_once_though_instances_are_killed_and_stopped(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str], seed: int
) -> None:
    draw = random.Random(seed)
    threads = 1 + seed % 2
    settings = {
        "num.standby.replicas": seed % 4 // 2,
        "num.stream.threads": threads,
        "penstock.state.shared": seed % 8 >= 4,
    }
    group = Group(broker, tmp_path, unique_name, settings)
    strikes = STRIKES if threads == 1 else (*STRIKES, "kill a worker")
    try:
        for how in draw.sample(strikes, len(strikes)):
            before = group.counted()
            group.write(draw)
            some = before + draw.randrange(1, 2 * LINES)
            assert until(partial(group.has_counted, some)), group.logs()
            group.strike(draw.randrange(2), how)
        assert until(partial(group.has_counted, sum(group.written.values()))), group.logs()
    finally:
        codes = group.close()
    assert codes == [0, 0], group.logs()
    group.assert_exact()


@pytest.mark.crash
@pytest.mark.one_broker
@pytest.mark.timeout(1800)
def test_each_word_is_counted_once_though_instances_are_killed_at_each_point(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    draw = random.Random(SEED)
    of_this_guarantee = sorted(set(THREADS_POINTS) - {"commit.written"})
    points = of_this_guarantee if ALL else draw.sample(SAMPLED_POINTS, 2)
    group = Group(broker, tmp_path, unique_name, {"state.cleanup.delay.ms": 1_000}, points)
    kill_at_each(points, group, draw)
    group.assert_exact()


@pytest.mark.crash
@pytest.mark.one_broker
@pytest.mark.timeout(1800)
def test_at_least_once_nothing_is_lost_though_instances_are_killed_at_each_point(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    draw = random.Random(SEED)
    others = sorted(set(THREADS_POINTS if ALL else SAMPLED_POINTS) - {"commit.offsets", "commit.written"})
    points = ["commit.written", *(others if ALL else draw.sample(others, 1))]
    group = LargestGroup(broker, tmp_path, unique_name, points)
    kill_at_each(points, group, draw)
    group.assert_nothing_is_lost()


@pytest.mark.crash
@pytest.mark.one_broker
@pytest.mark.timeout(1800)
def test_a_broadcast_reaches_each_task_once_though_instances_are_killed_at_each_point(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    draw = random.Random(SEED)
    points = SAMPLED_POINTS if ALL else draw.sample(SAMPLED_POINTS, 2)
    group = BroadcastGroup(broker, tmp_path, unique_name, points)
    kill_at_each(points, group, draw)
    group.assert_exact()


@pytest.mark.crash
@pytest.mark.one_broker
def test_a_broadcast_reaches_each_task_once_though_standbys_take_over(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    draw = random.Random(SEED)
    group = BroadcastGroup(broker, tmp_path, unique_name, standbys=1)
    try:
        # one instance has all tasks while the other is away, and gives some back afterwards
        for number, how in ((0, "be away"), (1, "kill"), (0, "stop")):
            group.write(draw)
            assert until(group.is_done), group.logs()
            group.write(draw)
            group.strike(number, how)
        assert until(group.is_done), group.logs()
        assert until(lambda: group.members() == 2), group.logs()
        group.write(draw)
        assert until(group.is_done), group.logs()
    finally:
        codes = group.close()
    assert codes == [0, 0], group.logs()
    group.assert_exact()


@pytest.mark.crash
@pytest.mark.one_broker
def test_each_line_is_counted_or_late_and_expires_once_though_instances_and_workers_are_killed(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    draw = random.Random(SEED)
    group = ExpiringGroup(broker, tmp_path, unique_name)
    strikes = ("kill", "lose the disk", "kill a worker", "stop")
    try:
        for how in draw.sample(strikes, len(strikes)):
            before = group.counted()
            group.write(draw)
            assert until(partial(group.has_counted, before + draw.randrange(1, LINES))), group.logs()
            group.strike(draw.randrange(2), how)
        group.finish()
    finally:
        codes = group.close()
    assert codes == [0, 0], group.logs()
    group.assert_exact()


@pytest.mark.crash
@pytest.mark.one_broker
@pytest.mark.timeout(1800)
def test_each_line_is_counted_or_late_and_expires_once_though_instances_are_killed_at_each_point(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    draw = random.Random(SEED)
    points = SAMPLED_POINTS if ALL else draw.sample(SAMPLED_POINTS, 2)
    group = ExpiringGroup(broker, tmp_path, unique_name, points)
    kill_at_each(points, group, draw)
    group.assert_exact()


def kill_at_each(points: Collection[str], group: Group, draw: random.Random) -> None:
    """Write lines until instances have killed themselves at all points, and everything is processed."""
    late = LATE_POINTS.intersection(points)

    def struck() -> set[str]:
        return {path.name for path in group.orders.iterdir()}

    def has_gone_on(before: int) -> bool:
        group.revive(draw)
        return group.has_counted(before + 1)

    def has_gathered() -> bool:
        group.revive(draw)
        return group.members() == 2

    try:
        known: set[str] = set()
        for _ in range(MOST_ROUNDS):
            before = group.counted()
            group.write(draw)
            assert until(partial(has_gone_on, before)), group.logs()
            if struck() >= set(points) - late:
                break
            if struck() == known:  # nothing is restored, assigned or cleaned up unless something happens
                assert until(has_gathered), group.logs()  # else nobody ever has tasks to give up
                group.strike(draw.randrange(2), draw.choice(("lose the disk", "be away")))
            known = struck()
        assert struck() >= set(points) - late, group.logs()
        group.revive(draw)
        group.finish()
    finally:
        codes = group.close()
    assert set(codes) <= ({0, -signal.SIGKILL} if late else {0}), group.logs()
    assert struck() == set(points), group.logs()
