"""Dead letters of user functions on Spark are part of the output of their task: once, whatever falls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from penstock import StreamsBuilder
from tests.host.spark.crashes import Crashes, run_to_end_over_kills
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import lines
from tests.host.test_topologies import TEXT, TEXT_OUT


@pytest.fixture
def topics(spark_runner: SparkRunner, unique_name: Callable[[str], str]) -> tuple[str, str, str]:
    names = unique_name("in"), unique_name("out"), unique_name("letters")
    spark_runner.create_topics(dict.fromkeys(names, 1))
    return names


@pytest.mark.parametrize("seed", range(3))
def test_dead_letters_are_part_of_the_transaction(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str, str],
    crashes: Callable[..., Crashes],
    seed: int,
) -> None:
    source, target, letters = topics
    values = {
        "processing.exception.handler": "LogAndContinueProcessingExceptionHandler",
        "errors.dead.letter.queue.topic.name": letters,
    }
    builder = StreamsBuilder()
    numbers = builder.stream(source, consumed=TEXT).map_values(lambda value: str(12 // int(value)))
    numbers.to(target, produced=TEXT_OUT)
    query = InlineQuery(builder.build(), spark_runner.config(application, values), spark_runner.admin)
    crashes(seed, 0.08, 12)
    for _ in range(5):
        spark_runner.write(source, lines(["1", "0", "3"]))
        run_to_end_over_kills(query)
    written = Counter(record.value for record in spark_runner.read(target))
    dead = Counter(record.value for record in spark_runner.read(letters))
    assert set(written) == {b"12", b"4"}
    assert set(dead) == {b"0"}
    assert (written, dead) == ({b"12": 5, b"4": 5}, {b"0": 5})
