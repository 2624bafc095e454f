"""A log that has lost records which were processed, and has grown beyond them again: on a real Kafka, since only its
leaders change."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher, ConfluentProducer
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.errors import LogTruncationError
from penstock.host.threads.host import ThreadsHost
from penstock.plan.topology import built_topology
from penstock.record import TopicPartition
from penstock.serdes import Serdes
from tests.host.spark.inline import InlineQuery, failure_of
from tests.host.threads.support import Listening
from tests.support.kafka import RealKafka, require_kafka

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.kafka, pytest.mark.xdist_group("truncation")]

SOURCE, SINK = TopicPartition("in", 0), TopicPartition("out", 0)


@pytest.fixture
def kafka() -> Iterator[RealKafka]:
    require_kafka()
    with RealKafka() as running:
        yield running


def config(kafka: RealKafka, directory: Path, reset: str) -> StreamsConfig:
    servers: dict[str, Any] = {"application.id": "app", "bootstrap.servers": kafka.bootstrap_servers}
    servers |= {"default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
    return StreamsConfig({**servers, "state.dir": str(directory), "auto.offset.reset": reset})


def write(settings: StreamsConfig, values: range) -> None:
    with closing(ConfluentProducer(settings)) as producer:
        for value in values:
            producer.send(SOURCE.topic, None, b"%d" % value, SOURCE.partition)


def run_to_end(settings: StreamsConfig) -> BaseException | None:
    """Copy what there is from one topic to the other; return the error that ended it."""
    builder = StreamsBuilder()
    builder.stream(SOURCE.topic).to(SINK.topic)
    host, listening = ThreadsHost(built_topology(builder.build(), "app"), settings, until_end=True), Listening()
    host.start(listening)
    assert listening.ended.wait(120)
    assert host.close(60_000)
    return listening.error


def written(settings: StreamsConfig) -> list[int]:
    with closing(ConfluentAdmin(settings)) as admin, closing(ConfluentFetcher(settings)) as fetcher:
        end = admin.end_offsets([SINK])[SINK]
        batches = fetcher.fetch(SINK, 0, end, read_committed=True)
        return [int(value or b"") for batch in batches for value in batch.values]


def test_records_that_took_the_place_of_lost_ones_are_processed_and_the_loss_is_named(
    kafka: RealKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = config(kafka, tmp_path, "earliest")
    with closing(ConfluentAdmin(settings)) as admin:
        admin.create_topics([NewTopic(SOURCE.topic, 1), NewTopic(SINK.topic, 1)])
    write(settings, range(10))
    assert run_to_end(settings) is None
    kafka.kill(1)
    shutil.rmtree(kafka.data(1) / str(SOURCE))  # the disk with its log is another one now
    kafka.resume(1)
    write(settings, range(100, 130))
    error = run_to_end(config(kafka, tmp_path, "none"))
    assert isinstance(error, LogTruncationError)
    assert "topic in, partition 0, was truncated: records up to offset 10 of leader epoch 0" in str(error)
    caplog.set_level(logging.WARNING)
    assert run_to_end(settings) is None
    assert [*range(10), *range(100, 130)] == written(settings)
    assert "reading continues at offset 0" in caplog.text
    assert run_to_end(config(kafka, tmp_path, "none")) is None


def test_spark_refuses_to_go_on_where_others_have_taken_the_place_of_records(kafka: RealKafka, tmp_path: Path) -> None:
    settings = config(kafka, tmp_path, "earliest")
    builder = StreamsBuilder()
    builder.stream(SOURCE.topic).to(SINK.topic)
    with closing(ConfluentAdmin(settings)) as admin:
        admin.create_topics([NewTopic(SOURCE.topic, 1), NewTopic(SINK.topic, 1)])
        write(settings, range(10))
        query = InlineQuery(builder.build(), settings, admin)
        query.run_to_end()
        kafka.kill(1)
        kafka.resume(1)
        write(settings, range(10, 20))
        query.run_to_end()
        assert written(settings) == [*range(20)]
        kafka.kill(1)
        shutil.rmtree(kafka.data(1) / str(SOURCE))  # the disk with its log is another one now
        kafka.resume(1)
        write(settings, range(100, 130))
        query.restart()
        error = failure_of(query.run_to_end)
        query.close()
    assert isinstance(error, LogTruncationError)
    assert "topic in, partition 0, was truncated: records up to offset 20 of leader epoch" in str(error)
