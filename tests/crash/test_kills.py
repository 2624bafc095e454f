"""Processes of a word count on Spark are killed, and its broker, and nothing of it shows in what it leaves behind.

`make test-slow` goes through a sample, `make crash` (PENSTOCK_CRASH=all) through all lives of `kills.py`. Each run
draws a seed, which failures show; PENSTOCK_CRASH_SEED repeats it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.testing import TopologyTestDriver
from penstock_broker.process import BrokerProcess
from tests.crash import program
from tests.crash.application import Application, count
from tests.crash.kills import LIVES, Life, sample
from tests.crash.seed import ALL, SEED
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, OutputRecord
from tests.support.kafka import RealKafka, kafka_is_at_hand

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.timeout(7200 if ALL else 1200),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found and killed by way of /proc"),
]


def parameters(lives: tuple[Life, ...]) -> list[object]:
    """Return a parameter for each life, named without its chances; all but the first are long."""
    return [
        pytest.param(
            life,
            id=str(life) if ALL else life.name,
            marks=[*([pytest.mark.kafka] if life.broker == "kafka" else ()), *([pytest.mark.long] if number else ())],
        )
        for number, life in enumerate(lives)
    ]


class OnBroker(NamedTuple):
    """A runner on a broker, and what kills that broker and starts it again."""

    runner: SparkRunner
    restart: Callable[[], None]


Runner = Callable[[str], OnBroker]


@pytest.fixture(scope="module")
def runner_on(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """A function that gives a runner on a kind of broker; a sample takes the embedded one where there is no Kafka."""
    runners: dict[str, OnBroker] = {}

    def on_kafka() -> OnBroker:
        kafka: RealKafka = request.getfixturevalue("real_kafka")

        def restart() -> None:
            kafka.kill(1)
            kafka.resume(1)

        return OnBroker(SparkRunner(kafka.bootstrap_servers, tmp_path_factory.mktemp("crash-kafka")), restart)

    def on_embedded() -> OnBroker:
        broker: BrokerProcess = request.getfixturevalue("embedded_broker")

        def restart() -> None:
            broker.kill()
            broker.start()

        return OnBroker(SparkRunner(broker.bootstrap_servers, tmp_path_factory.mktemp("crash-embedded")), restart)

    def on(kind: str) -> OnBroker:
        if kind == "kafka" and not ALL and not kafka_is_at_hand():
            kind = "embedded"
        if kind not in runners:
            runners[kind] = on_kafka() if kind == "kafka" else on_embedded()
        return runners[kind]

    yield on
    for runner, _ in runners.values():
        runner.close()


Undisturbed = Callable[[Life], tuple[list[OutputRecord], dict[str, tuple[int, int]]]]


@pytest.fixture(scope="module")
def undisturbed(runner_on: Runner, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """A function that gives output and state of a life without its kills."""
    known: dict[tuple[str, str, int], tuple[list[OutputRecord], dict[str, tuple[int, int]]]] = {}

    def result(life: Life) -> tuple[list[OutputRecord], dict[str, tuple[int, int]]]:
        key = (life.broker, life.layout, life.epochs)
        if key not in known:
            quiet = Life(life.broker, life.layout, "undisturbed", (), life.epochs)
            directory = tmp_path_factory.mktemp("undisturbed")
            with Application(quiet, *runner_on(life.broker), str(quiet), directory, SEED) as application:
                application.live()
                known[key] = application.output(), application.state()
        return known[key]

    return result


def by_test_driver(records: list[InputRecord]) -> dict[str, tuple[int, int]]:
    """Return (count, timestamp in ms) by word of the same topology without Spark and without a broker."""
    with TopologyTestDriver(program.word_count("in", "out")) as driver:
        for record in records:
            driver.pipe_bytes("in", record.key, record.value, record.timestamp)
        store = driver.get_timestamped_key_value_store(program.STORE)
        assert store is not None
        return {key: (counted.value, counted.timestamp) for key, counted in store.all()}


def final_counts(records: list[OutputRecord]) -> Mapping[str, int]:
    return {record.key.decode(): number(record) for record in records if record.key is not None}


def number(record: OutputRecord) -> int:
    assert record.value is not None
    return int.from_bytes(record.value, "big")


def assert_strictly_growing(records: list[OutputRecord]) -> None:
    """Each word is in one partition, and each of its counts is larger than the one before: none is there twice."""
    last: dict[bytes | None, tuple[int, int]] = {}
    for record in records:
        partition, before = last.get(record.key, (record.partition, 0))
        assert record.partition == partition
        assert number(record) > before, f"{record.key!r} has {number(record)} after {before}"
        last[record.key] = (record.partition, number(record))


@pytest.mark.parametrize("life", parameters(LIVES if ALL else sample(SEED)))
def test_a_killed_application_continues_as_if_nothing_had_happened(
    life: Life, runner_on: Runner, undisturbed: Undisturbed, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    with Application(life, *runner_on(life.broker), unique_name("app"), tmp_path, SEED) as application:
        print(f"PENSTOCK_CRASH_SEED={SEED}: {life}: {', '.join(map(str, life.kills))}")
        application.live()
        print(*application.history, sep="\n")
        output, state = application.output(), application.state()
    expected = count(application.input)
    assert final_counts(output) == expected
    assert {word: counted for word, (counted, _) in state.items()} == expected
    assert state == by_test_driver(application.input)
    assert application.is_exactly_once()
    assert_strictly_growing(output)
    if ALL and not life.changes:  # else epochs are others
        assert (output, state) == undisturbed(life)
