"""Instances with calls are killed at each point between a call and its use: each record has one result, that of the
first answer in the topic, and a call is made again only if its answer was not written."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable, Collection
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from penstock.host.crashpoints import CALL_POINTS
from penstock.record import TopicPartition
from tests.host.threads.program import CALLS_FILE, CAPACITY
from tests.host.threads.test_kills import PARTITIONS, Group
from tests.support.brokers import RunningBroker
from tests.support.call_answers import first_results
from tests.support.waiting import until

RECORDS = 200
MOST_AGAIN = PARTITIONS * CAPACITY * 4
"""Most calls that are made again after a kill, without a function that asks for their receipts."""
ON_EACH_BROKER = {("calls", "call.answered", 1), ("calls", "call.written", 2)}
"""Programs, points and numbers of worker processes of the kills that also happen on a real Kafka."""


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

    def write(self, draw: random.Random) -> None:
        for _ in range(RECORDS):
            line = f"r{len(self.lines)}"
            self.lines.append(line)
            self.producer.send(
                self.source, f"k{draw.randrange(20)}".encode(), line.encode(), draw.randrange(PARTITIONS)
            )
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

    def assert_paid_once(self, most_again: int) -> None:
        """Check that each record has one result, that of its first answer, and how many calls were made again."""
        results = self.results()
        assert Counter(each.split()[0] for each in results) == Counter(self.lines), self.logs()
        topic = f"{self.application}-pay-answers"
        assert {*results} <= {*first_results(self.values(topic, PARTITIONS), topic)}, self.logs()
        made = Counter(line.split()[0] for line in self.calls.read_text().splitlines())
        again = sum(made.values()) - len(made)
        assert len(made) == len(self.lines)
        assert again <= most_again, self.logs()


@pytest.mark.crash
@pytest.mark.parametrize(
    ("program", "point", "threads"),
    [
        pytest.param(*each, marks=() if each in ON_EACH_BROKER else pytest.mark.one_broker)
        for each in product(("calls", "reconciled"), CALL_POINTS, (1, 2))
    ],
)
def test_each_record_has_one_result_though_an_instance_is_killed(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str], point: str, program: str, threads: int
) -> None:
    draw = random.Random(7)
    settings = {"num.stream.threads": threads, "repartition.purge.interval.ms": 3_600_000}
    group = CallGroup(broker, tmp_path, unique_name, [f"{point}@{draw.randrange(5, 40)}"], program, **settings)
    try:
        group.write(draw)
        assert until(lambda: any(each.poll() is not None for each in group.processes)), group.logs()
        group.write(draw)  # the other instance takes over
        assert until(group.is_done), group.logs()
        group.revive(draw)
        group.write(draw)
        assert until(group.is_done), group.logs()
    finally:
        codes = group.close()
    assert set(codes) <= {0, -signal.SIGKILL}, group.logs()
    group.assert_paid_once(0 if program == "reconciled" else MOST_AGAIN)


@pytest.mark.crash
@pytest.mark.parametrize(
    "program",
    ["calls", *(pytest.param(each, marks=pytest.mark.one_broker) for each in ("processor calls", "reconciled"))],
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
    group.assert_paid_once(0 if program == "reconciled" else len(strikes) * MOST_AGAIN)
