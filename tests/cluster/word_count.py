"""A word count that runs exactly once on Spark while something happens to its brokers: it writes input, waits while the
application runs, and checks what the application has written. Every wait has a bound."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from penstock import KafkaStreams
from penstock.host.api import State
from tests.crash import program
from tests.host.spark.support import SparkRunner
from tests.host.support import lines, wait_for

LINES, LINE_WORDS, WORDS = 240, 20, 50
"""Lines of one call of `write`, words of a line, and how many words there are."""

_EPOCH_BYTES = 2_000  # so that one `write` is enough for many epochs
_WAIT_SECONDS = 240.0


class WordCount:
    """A word count and its topics; a context manager that starts and closes it.

    Args:
        runner: writes and reads topics of the cluster, and has the session.
        name: application.id, and what the topics begin with.
        target_replicas: brokers that hold the output; all of them if empty.
        values: further configuration.

    Attributes:
        target: the output topic; it has one partition.
        streams: the application.
    """

    def __init__(
        self, runner: SparkRunner, name: str, target_replicas: Sequence[int] = (), values: dict[str, Any] | None = None
    ) -> None:
        self.target, self._source = f"{name}-out", f"{name}-in"
        self._runner = runner
        self._draw = random.Random(name)
        self._expected = Counter[str]()
        self._written = 0
        runner.create_topics({self._source: 2})
        create_topic(runner.bootstrap_servers, self.target, target_replicas or (1, 2, 3))
        topology = program.word_count(self._source, self.target)
        config = runner.config(name, {"penstock.batch.max.bytes": _EPOCH_BYTES, **(values or {})})
        self.streams = KafkaStreams(topology, config, spark=runner.session)

    def __enter__(self) -> WordCount:
        self.streams.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.streams.close(60_000)

    def write(self) -> None:
        """Write input for many epochs."""
        texts = [" ".join(f"w{self._draw.randrange(WORDS)}" for _ in range(LINE_WORDS)) for _ in range(LINES)]
        self._runner.write(self._source, lines(texts, 2))
        self._expected.update(word for text in texts for word in text.split())
        self._written += len(texts)

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait for a condition while the application runs."""

        def is_met() -> bool:
            assert self.streams.state() in (State.RUNNING, State.REBALANCING)
            return bool(condition())

        wait_for(is_met, _WAIT_SECONDS)

    def wait_for_epochs(self, number: int = 3) -> None:
        """Wait until more epochs are committed."""
        goal = self._epoch() + number
        self.wait_for(lambda: self._epoch() >= goal)

    def _epoch(self) -> int:
        return int(self.streams.statistics()["epoch"])

    def assert_exact(self) -> None:
        """Wait until all input is read, and check that a reader of committed records sees every count of every word
        once, in order."""
        self.wait_for(lambda: self.streams.statistics()["records_in"] == self._written)
        counts: dict[str, list[int]] = {}
        for record in self._runner.read(self.target):
            counts.setdefault((record.key or b"").decode(), []).append(int.from_bytes(record.value or b"", "big"))
        assert counts == {word: list(range(1, number + 1)) for word, number in self._expected.items()}


def create_topic(bootstrap_servers: str, name: str, replicas: Sequence[int]) -> None:
    """Create a topic of one partition on these brokers, which keeps its records, and wait until they all know it."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    topic = NewTopic(name, 1, replica_assignment=[list(replicas)], config={"retention.ms": "-1"})
    admin.create_topics([topic])[name].result(_WAIT_SECONDS)
    for server in bootstrap_servers.split(","):
        one = AdminClient({"bootstrap.servers": server, "log_level": 0})  # asks the broker that it is connected to
        wait_for(lambda one=one: name in one.list_topics(timeout=_WAIT_SECONDS).topics, _WAIT_SECONDS)
