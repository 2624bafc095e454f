"""Instances with calls are killed at each point between a call and the commit of its answer: each record has one
result, that of the first answer in the topic, and a call is made again only if its answer was not written. Instances
that park records are killed in commits: each record has one result, in the order of its key."""

from __future__ import annotations

import random
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from penstock.host.crashpoints import CALL_POINTS
from penstock.record import TopicPartition
from tests.crash.processes import stands_still
from tests.host.threads.program import BATCH_SIZE, CALLS_FILE, CAPACITY
from tests.host.threads.test_kills import PARTITIONS, Group
from tests.support.brokers import RunningBroker
from tests.support.call_answers import first_results
from tests.support.waiting import until

RECORDS = 200
WINDOW = 2 * CAPACITY
"""Most attempts of a process that are cut off by its death, or as its tasks leave it: those in flight, and those whose
answers are not written."""
SIZES = {"batches": BATCH_SIZE, "model": BATCH_SIZE, "reconciled batches": BATCH_SIZE}
"""The number of records in an attempt of a program, 1 for others."""
RECONCILED = frozenset(["reconciled", "reconciled batches"])
"""The programs that ask for a receipt before a call is made again."""
CALLING = ("calls", "reconciled", "batches", "model", "processor calls", "reconciled batches", "retried")
KILLS = list(product(CALLING, CALL_POINTS, (1, 2)))
"""Programs, points and numbers of worker processes."""
ON_EACH_BROKER = {
    ("calls", "call.answered", 1),
    ("calls", "call.written", 2),
    ("batches", "call.answered", 2),
    ("model", "call.written", 1),
    ("processor calls", "call.answered", 1),
    ("reconciled batches", "call.answered", 2),
    ("retried", "call.written", 1),
}
"""Kills that also happen on a real Kafka."""
IN_A_SAMPLE = {each for each in KILLS if each[0] in ("calls", "reconciled")} | ON_EACH_BROKER
MOVES_OF_A_KILL = 3
"""Tasks leave the first instance for the second, the one that dies, and the other one for its next life."""
MOVES_OF_A_STRIKE = 2
"""Tasks leave an instance, and leave the other one when it is back."""
COMMIT_POINTS = [
    "commit.offsets",
    *(
        pytest.param(point, marks=pytest.mark.long)
        for point in ("commit.prepared@2", "commit.committed@3", "commit.applied@4", "commit.ended@2")
    ),
]
"""Points between the use of answers, or of outcomes of parked records, and the next commit."""


class CallGroup(Group):
    """Topics, and two instances over them that pay for each record."""

    def __init__(
        self,
        broker: RunningBroker,
        directory: Path,
        unique_name: Callable[[str], str],
        points: Collection[str],
        program: str = "calls",
        **settings: Any,
    ) -> None:
        self.calls = directory / "calls"
        self.calls.touch()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(CALLS_FILE, str(self.calls))
            super().__init__(broker, directory, unique_name, settings, points, program)
        self.lines: list[str] = []
        self.of_keys: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
        """The lines of each partition and key, in order."""

    def write(self, draw: random.Random) -> None:
        for _ in range(RECORDS):
            line = f"r{len(self.lines)}"
            self.lines.append(line)
            key, partition = draw.randrange(20), draw.randrange(PARTITIONS)
            self.of_keys[partition, key].append(line)
            self.producer.send(self.source, f"k{key}".encode(), line.encode(), partition)
        self.producer.flush()

    def values(self, topic: str, partitions: int) -> list[tuple[int, bytes]]:
        """Return the partition and value of each committed record of a topic."""
        ends = self.admin.end_offsets([TopicPartition(topic, n) for n in range(partitions)], read_committed=True)
        return [
            (place.partition, value or b"")
            for place, end in ends.items()
            for batch in (self.fetcher.fetch(place, 0, end, read_committed=True) if end else ())
            for value in batch.values
        ]

    def results(self) -> list[str]:
        return [value.decode() for _, value in self.values(self.sink, 1)]

    def is_done(self) -> bool:
        return len(self.results()) >= len(self.lines)

    def assert_written_once(self) -> None:
        """Check that each record has one result, in the order of its key."""
        found = [each.split()[0] for each in self.results()]
        assert Counter(found) == Counter(self.lines), self.logs()
        places = {line: place for place, line in enumerate(found)}
        assert all(lines == sorted(lines, key=places.__getitem__) for lines in self.of_keys.values()), self.logs()

    def assert_paid_once(self, moves: int) -> None:
        """Check that each record has one result, that of its first answer, and how many calls were made again.

        moves: how often tasks may have left an instance, by its death or for another one.
        """
        self.assert_written_once()
        results = self.results()
        topic = f"{self.application}-pay-answers"
        assert {*results} <= {*first_results(self.values(topic, PARTITIONS), topic)}, self.logs()
        made = Counter(line.split()[0] for line in self.calls.read_text().splitlines())
        again = sum(made.values()) - len(made)
        assert len(made) == len(self.lines)
        most = 0 if self.program in RECONCILED else moves * WINDOW * SIZES.get(self.program, 1)
        assert again <= most, f"{again} calls made again, of at most {most}: {self.logs()}"

    def kill_at(self, draw: random.Random) -> None:
        """Write records until an instance has killed itself, and the other one and its next life have done all."""
        try:
            self.write(draw)
            assert until(lambda: any(each.poll() is not None for each in self.processes)), self.logs()
            self.write(draw)  # the other instance takes over
            assert until(self.is_done), self.logs()
            self.revive(draw)
            self.write(draw)
            assert until(self.is_done), self.logs()
        finally:
            codes = self.close()
        assert set(codes) <= {0, -signal.SIGKILL}, self.logs()


def marked(kill: tuple[str, str, int]) -> Any:
    """Return a kill as a parameter."""
    marks = [] if kill in ON_EACH_BROKER else [pytest.mark.one_broker]
    return pytest.param(*kill, marks=marks if kill in IN_A_SAMPLE else [*marks, pytest.mark.long])


@pytest.mark.crash
@pytest.mark.parametrize(("program", "point", "threads"), [marked(each) for each in KILLS])
def test_each_record_has_one_result_though_an_instance_is_killed(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str], point: str, program: str, threads: int
) -> None:
    draw = random.Random(7)
    settings = {"num.stream.threads": threads, "repartition.purge.interval.ms": 3_600_000}
    which = draw.randrange(5, 40 // SIZES.get(program, 1))
    group = CallGroup(broker, tmp_path, unique_name, [f"{point}@{which}"], program, **settings)
    group.kill_at(draw)
    group.assert_paid_once(MOVES_OF_A_KILL)


@pytest.mark.crash
@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.one_broker)])
@pytest.mark.parametrize("point", COMMIT_POINTS)
@pytest.mark.parametrize(
    "program",
    [
        "processor calls",
        *(
            pytest.param(each, marks=[pytest.mark.one_broker, pytest.mark.long])
            for each in CALLING
            if each != "processor calls"
        ),
    ],
)
def test_each_answer_is_used_once_though_an_instance_is_killed_in_a_commit(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str], program: str, point: str, threads: int
) -> None:
    draw = random.Random(19)
    settings = {"num.stream.threads": threads, "repartition.purge.interval.ms": 3_600_000}
    group = CallGroup(broker, tmp_path, unique_name, [point], program, **settings)
    group.kill_at(draw)
    group.assert_paid_once(MOVES_OF_A_KILL)


@pytest.mark.crash
@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.one_broker)])
@pytest.mark.parametrize("point", COMMIT_POINTS)
def test_each_parked_record_has_one_result_though_an_instance_is_killed(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str], point: str, threads: int
) -> None:
    draw = random.Random(13)
    group = CallGroup(broker, tmp_path, unique_name, [point], "parked", **{"num.stream.threads": threads})
    group.kill_at(draw)
    group.assert_written_once()


@pytest.mark.crash
@pytest.mark.parametrize(
    ("program", "threads"),
    [
        ("reconciled", 1),
        pytest.param("reconciled", 2, marks=pytest.mark.one_broker),
        pytest.param("reconciled batches", 1, marks=pytest.mark.one_broker),
    ],
)
def test_a_call_that_an_instance_was_about_to_make_is_not_made_after_a_standstill(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str], program: str, threads: int
) -> None:
    draw = random.Random(17)
    settings = {"num.stream.threads": threads, "repartition.purge.interval.ms": 3_600_000}
    point = f"call.made@{draw.randrange(5, 40 // SIZES.get(program, 1))}:stop"
    group = CallGroup(broker, tmp_path, unique_name, [point], program, **settings)
    try:
        group.write(draw)
        assert until(lambda: any(stands_still(each.pid) for each in group.processes)), group.logs()
        assert until(lambda: group.members() == 1), group.logs()
        assert until(group.is_done), group.logs()  # the other instance makes that call
        for each in group.processes:
            each.send_signal(signal.SIGCONT)
        assert until(lambda: group.members() == 2), group.logs()
        group.write(draw)
        assert until(group.is_done), group.logs()
    finally:
        codes = group.close()
    assert codes == [0, 0], group.logs()
    group.assert_paid_once(1)


@pytest.mark.crash
@pytest.mark.parametrize(
    "program",
    [
        "calls",
        *(
            pytest.param(each, marks=pytest.mark.one_broker)
            for each in ("processor calls", "failing calls", "reconciled")
        ),
        *(pytest.param(each, marks=(pytest.mark.one_broker, pytest.mark.long)) for each in SIZES),
    ],
)
def test_each_record_has_one_result_though_instances_come_and_go(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str], program: str
) -> None:
    draw = random.Random(11)
    group = CallGroup(broker, tmp_path, unique_name, (), program, **{"repartition.purge.interval.ms": 3_600_000})
    strikes = ("kill", "lose the disk", "stop", "close")
    try:
        for how in strikes:
            group.write(draw)
            before = len(group.lines) - RECORDS
            assert until(lambda some=before + 20: len(group.results()) > some), group.logs()
            group.strike(draw.randrange(2), how)
        assert until(group.is_done), group.logs()
    finally:
        codes = group.close()
    assert codes == [0, 0], group.logs()
    group.assert_paid_once(1 + MOVES_OF_A_STRIKE * len(strikes))
