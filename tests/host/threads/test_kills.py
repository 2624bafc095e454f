"""Two instances of a count of words, exactly once, are killed by turns, sometimes with their disks, are stopped for
longer than their session, or close and come back: each word is counted once, in order, whoever counts it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher, ConfluentProducer
from penstock.config import StreamsConfig
from penstock.record import TopicPartition
from tests.support.brokers import RunningBroker
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
PARTITIONS = 4
STRIKES = ("kill", "kill", "lose the disk", "stop", "close")
LINES = 150
SEEDS = range(1, 9 if os.environ.get("PENSTOCK_CRASH") == "all" else 3)


class Group:
    """Topics, and two instances over them."""

    def __init__(
        self, broker: RunningBroker, directory: Path, unique_name: Callable[[str], str], standbys: int
    ) -> None:
        self.application, self.source, self.sink = unique_name("app"), unique_name("in"), unique_name("out")
        self.servers = broker.bootstrap_servers
        self.directory = directory
        self.standbys = str(standbys)
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
        names = self.servers, self.application, str(self.state(number)), self.source, self.sink, self.standbys
        with (self.directory / f"log-{number}").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.host.threads.program", *names],
                stdin=subprocess.PIPE,
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

    def counts(self) -> dict[str, list[int]]:
        """Return the counts of each word in the order of the output."""
        place = TopicPartition(self.sink, 0)
        end = self.admin.end_offsets([place], read_committed=True)[place]
        counts: dict[str, list[int]] = {}
        for batch in self.fetcher.fetch(place, 0, end, read_committed=True) if end else ():
            for key, value in zip(batch.keys, batch.values, strict=True):
                counts.setdefault(key.decode(), []).append(int.from_bytes(value))
        return counts

    def counted(self) -> int:
        return sum(map(len, self.counts().values()))

    def has_counted(self, words: int) -> bool:
        return self.counted() >= words

    def members(self) -> int:
        return len(self.admin.describe_group(self.application).members)

    def strike(self, number: int, how: str) -> None:
        """Let an instance be gone for some time."""
        process = self.processes[number]
        if how == "stop":
            # It still believes in its tasks when it goes on: others have them, and have processed all that is there.
            process.send_signal(signal.SIGSTOP)
            assert until(lambda: self.members() == 1), self.logs()
            assert until(partial(self.has_counted, sum(self.written.values()))), self.logs()
            process.send_signal(signal.SIGCONT)
            return
        if how == "close":
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(120) == 0, self.logs()
        else:
            process.kill()
            process.wait()
        if how == "lose the disk":
            shutil.rmtree(self.state(number), ignore_errors=True)
        self.processes[number] = self.start(number)

    def logs(self) -> str:
        return "\n".join((self.directory / f"log-{number}").read_text() for number in range(2))


@pytest.mark.crash
@pytest.mark.one_broker
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_each_word_is_counted_once_though_instances_are_killed_and_stopped(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str], seed: int
) -> None:
    draw = random.Random(seed)
    group = Group(broker, tmp_path, unique_name, standbys=seed % 2)
    try:
        for how in draw.sample(STRIKES, len(STRIKES)):
            before = group.counted()
            group.write(draw)
            some = before + draw.randrange(1, 2 * LINES)
            assert until(partial(group.has_counted, some)), group.logs()
            group.strike(draw.randrange(2), how)
        assert until(partial(group.has_counted, sum(group.written.values()))), group.logs()
    finally:
        for process in group.processes:
            process.send_signal(signal.SIGCONT)
            assert process.stdin is not None
            process.stdin.close()
        codes = [process.wait(120) for process in group.processes]
    assert codes == [0, 0], group.logs()
    assert group.counts() == {word: list(range(1, times + 1)) for word, times in group.written.items()}
