"""Calls that failed in an earlier run are made again. Spark's part is played in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.host.spark.driver.replaying import EpochReplay
from penstock.host.spark.protocol.epoch_offset import EpochOffset
from penstock.host.spark.worker import sink
from penstock.record import TopicPartition
from tests.host.calling_service import Service, asking
from tests.host.spark.crashes import KilledError
from tests.host.spark.inline import InlineQuery, failure_of
from tests.host.spark.support import SparkRunner
from tests.host.spark.test_calls import rows, run_to_last_answer
from tests.host.support import wait_for

pytestmark = [pytest.mark.one_broker, pytest.mark.partitions(1, 1), pytest.mark.usefixtures("service")]


def fail(query: InlineQuery) -> None:
    """Run until a failed answer ends the query."""

    def run() -> None:
        for _ in range(10_000):
            query.epoch()

    assert "The service is down" in str(failure_of(run).__cause__)


def test_a_replay_ignores_the_failures_that_its_epoch_ignored(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], service: Service, tmp_path: Path
) -> None:
    config = spark_runner.config(application)
    query = InlineQuery(asking(*topics), config, spark_runner.admin)
    spark_runner.write(topics[0], rows(0, 1, 1))
    service.declined.add("a0")
    fail(query)
    service.declined.clear()
    query.restart()
    run_to_last_answer(query, spark_runner, topics[1], 1)
    query.close()
    for epoch in range(1, query.epochs + 1):
        replay = EpochReplay(asking(*topics).build(application), config, tmp_path / str(epoch), epoch)
        assert replay.run().differences == ()


def test_an_epoch_with_output_keeps_its_offset(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query = InlineQuery(asking(*topics), spark_runner.config(application), spark_runner.admin)
    spark_runner.write(topics[0], rows(0, 1, 1))
    query.epoch()
    query.epoch()
    answers = TopicPartition(f"{application}-ask-answers", 0)
    wait_for(lambda: spark_runner.admin.end_offsets([answers])[answers] == 1)
    with monkeypatch.context() as patched:
        patched.setattr(sink.EpochSink, "commit", killed)
        with pytest.raises(KilledError):
            query.epoch()
    query.restart()
    planned = query.description.planned
    assert isinstance(planned, EpochOffset)
    assert planned.call_again_before == {answers.topic: [0]}
    query.run_to_end()
    assert [each.value for each in spark_runner.read(topics[1])] == [b"a0 1"]
    query.close()


def killed(*_: object) -> None:
    raise KilledError
