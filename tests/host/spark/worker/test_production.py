"""Records that brokers refuse, on Spark: the handler of production errors decides; dead letters go out with the rest.

And dead letters of user functions, which are part of the output of their task: once, whatever falls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from penstock import StreamsBuilder, Topology
from penstock.client.api import NewTopic
from penstock.exception_handlers import ErrorHandlerContext, ProducerRecord, ProductionExceptionHandler, Response
from tests.host.spark.crashes import Crashes, run_to_end_over_kills
from tests.host.spark.inline import InlineQuery, failure_of
from tests.host.spark.support import SparkRunner, lines
from tests.host.spark.test_topologies import TEXT, TEXT_OUT


@pytest.fixture
def topics(spark_runner: SparkRunner, unique_name: Callable[[str], str]) -> tuple[str, str, str]:
    source, target, letters = unique_name("in"), unique_name("out"), unique_name("letters")
    spark_runner.create_topics({source: 1, letters: 1})
    small = {"retention.ms": "-1", "max.message.bytes": "2000"}
    spark_runner.admin.create_topics([NewTopic(target, 1, 1, small)])
    return source, target, letters


def copying(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(source, consumed=TEXT).map_values(str.upper).to(target, produced=TEXT_OUT)
    return builder.build()


class GoesOn(ProductionExceptionHandler):
    """Goes on without the record, and writes where it was made."""

    def __init__(self, letters: str) -> None:
        self._letters = letters

    def handle_error(self, context: ErrorHandlerContext, record: ProducerRecord, error: Exception) -> Response:
        size = len(record.value)
        text = f"{context.task_id} {context.processor_node_id} {record.topic} {size} {type(error).__name__}"
        return Response.resume([ProducerRecord(self._letters, None, text.encode(), context.timestamp)])


def test_a_refused_record_ends_the_query_with_its_topic_and_sink(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str, str]
) -> None:
    source, target, _ = topics
    spark_runner.write(source, lines(["a", "b" * 5_000]))
    query = InlineQuery(copying(source, target), spark_runner.config(application), spark_runner.admin)
    failure = failure_of(query.run_to_end)
    message = str(failure)
    assert f"Error encountered sending a record to topic {target} for task 0_0, sink KSTREAM-SINK-0000000002" in message
    assert "production.exception.handler" in message


def test_a_handler_may_continue_without_the_record(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str, str]
) -> None:
    source, target, letters = topics
    config = spark_runner.config(application, {"production.exception.handler": GoesOn(letters)})
    spark_runner.write(source, lines(["a", "b" * 5_000, "c"]))
    query = InlineQuery(copying(source, target), config, spark_runner.admin)
    query.run_to_end()
    spark_runner.write(source, lines(["d"]))
    query.run_to_end()
    assert [record.value for record in spark_runner.read(target)] == [b"A", b"C", b"D"]
    expected = f"0_0 KSTREAM-SINK-0000000002 {target} 5000 RecordTooLargeError"
    assert [record.value for record in spark_runner.read(letters)] == [expected.encode()]


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
