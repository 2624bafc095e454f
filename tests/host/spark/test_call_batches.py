"""Calls of functions on columns on Spark: each answer is used once. Spark's part is played in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import Calls, StreamsBuilder, Topology, vectorized
from tests.host.calling_service import TEXT, TEXTS, calling
from tests.host.spark.crashes import Crashes
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.spark.test_calls import check_each_answer_is_used_once
from tests.host.support import InputRecord
from tests.host.test_call_batches import METHODS

pytestmark = [pytest.mark.one_broker]

BATCHES: list[list[str]] = []
"""The batches of the calls, in the process of the test."""


@vectorized
async def ask(texts: list[str]) -> list[str]:
    BATCHES.append(texts)
    return [f"{text} {len(BATCHES)}" for text in texts]


def asking(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(source, TEXT).map_values(ask, named="ask", calls=Calls(batch_size=4)).to(target, TEXTS)
    return builder.build()


@pytest.mark.partitions(2, 2)
@pytest.mark.parametrize("seed", range(2))
def test_each_answer_of_a_batch_is_used_once_whatever_fails_when(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    seed: int,
) -> None:
    BATCHES.clear()
    query = InlineQuery(asking(*topics), spark_runner.config(application), spark_runner.admin)
    installed = crashes(seed, 0.1, 20)
    check_each_answer_is_used_once(spark_runner, query, application, topics)
    assert installed.struck
    assert max(map(len, BATCHES)) > 1
    query.close()


@pytest.mark.partitions(1, 1)
@pytest.mark.parametrize("method", METHODS)
def test_each_method_makes_calls_in_batches(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], method: str
) -> None:
    operator, result = METHODS[method]
    query = InlineQuery(calling(*topics, operator), spark_runner.config(application), spark_runner.admin)
    spark_runner.write(topics[0], [InputRecord(text[:1], text, 1_000) for text in (b"a1", b"b1")])
    query.restart(until_end=True)
    query.run_to_end()
    found = [((each.key or b"").decode(), (each.value or b"").decode()) for each in spark_runner.read(topics[1])]
    assert sorted(found) == result
    query.close()
