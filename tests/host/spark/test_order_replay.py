"""What Spark did is done again in this process, in the order that it logged, with the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import StreamsError
from penstock.host.inline.order_replay import OrderReplay
from penstock.plan.subtopology import TaskId
from penstock.record import RecordBatch, TopicPartition
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, OutputRecord, lines
from tests.host.test_broadcast import by_task, messages, naming
from tests.host.test_topologies import random_lines, word_count

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def as_batch(records: list[OutputRecord], first: int, count: int) -> RecordBatch:
    rows = records[first : first + count]
    return RecordBatch(
        [row.key for row in rows],
        [row.value for row in rows],
        np.array([row.timestamp for row in rows], np.int64),
        np.arange(first, first + len(rows), dtype=np.int64),
    )


@pytest.mark.parametrize("cache_bytes", [0, 3_000, 1_000_000])
@pytest.mark.one_broker
def test_a_replay_gives_the_bytes_that_spark_gave(
    spark_runner: SparkRunner,
    application: str,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    cache_bytes: int,
) -> None:
    source, target = unique_name("in"), unique_name("out")
    spark_runner.create_topics({source: 3, target: 2})
    config = spark_runner.config(
        application, {"penstock.trace.order": str(tmp_path), "statestore.cache.max.bytes": cache_bytes}
    )
    topology = word_count(source, target)
    for part in range(2):  # timestamps that go back, so that lanes interleave
        shuffled = [
            r._replace(timestamp=1_000 + (37 * n) % 101) for n, r in enumerate(lines(random_lines(part, 150), 3))
        ]
        written: list[InputRecord] = shuffled
        spark_runner.write(source, written)
        spark_runner.run(topology, config)
    inputs: dict[int, list[OutputRecord]] = {}
    for record in spark_runner.read(source):
        inputs.setdefault(record.partition, []).append(record)

    replay = OrderReplay(
        topology.build(application),
        config,
        tmp_path,
        lambda partition, first, count: as_batch(inputs[partition.partition], first, count),
        {target: 2},
    )
    replay.run()

    outputs: dict[int, list[OutputRecord]] = {}
    for record in spark_runner.read(target):
        outputs.setdefault(record.partition, []).append(record)
    assert sorted(partition for _, partition in replay.output) == sorted(outputs)
    for partition, records in outputs.items():
        again = RecordBatch.concat(replay.output[TopicPartition(target, partition)])
        assert sorted(zip(again.keys, again.values, again.timestamps.tolist(), strict=True)) == sorted(
            (record.key, record.value, record.timestamp) for record in records
        )
    for task, content in spark_runner.store_by_task(config, "counts").items():
        subtopology, partition = task.split("_")
        assert dict(replay.store_entries(TaskId(int(subtopology), int(partition)), "counts")) == content


@pytest.mark.one_broker
def test_a_replay_gives_each_task_its_copy_of_a_broadcast(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    control, data, target = unique_name("control"), unique_name("data"), unique_name("out")
    spark_runner.create_topics({control: 1, data: 3, target: 1})
    config = spark_runner.config(application, {"penstock.trace.order": str(tmp_path)})
    topology = naming(control, data, target)
    spark_runner.write(control, messages(*range(40)))
    spark_runner.write(data, [InputRecord(b"d", b"d%d" % n, 1_000 + n, n % 3) for n in range(40)])
    spark_runner.run(topology, config)
    inputs = {topic: spark_runner.read(topic) for topic in (control, data)}

    def read(partition: TopicPartition, first: int, count: int) -> RecordBatch:
        records = [each for each in inputs[partition.topic] if each.partition == partition.partition]
        return as_batch(records, first, count)

    replay = OrderReplay(topology.build(application), config, tmp_path, read, {target: 1})
    replay.run()
    again = RecordBatch.concat(replay.output[TopicPartition(target, 0)])
    found = by_task(spark_runner, target)
    assert sorted(zip(again.keys, again.values, strict=True)) == sorted(
        (task, value) for task, values in found.items() for value in values
    )
    assert len(again) == 3 * 40 + 40


def test_a_directory_without_a_trace_is_refused(tmp_path: Path) -> None:
    topology = word_count("in", "out").build("app")
    with pytest.raises(StreamsError, match="has no order trace"):
        OrderReplay(topology, {}, tmp_path / "none", lambda *_: as_batch([], 0, 0), {})  # type: ignore[arg-type]  # refused before it is read
