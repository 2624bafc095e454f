"""Broadcasts on Spark: exactly once over crashes at every named point, and with another number of tasks.

Spark's part is played in this process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Consumed, Materialized, Produced, Repartitioned, Serdes, StreamsBuilder, Topology, savepoints
from penstock.errors import IncompatibleCheckpointError, StreamsError
from tests.host.spark.crashes import Crashes, run_to_end_over_kills
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord
from tests.host.test_broadcast import Judging, by_task, messages, naming

pytestmark = pytest.mark.one_broker

TEXT = Serdes.string()
READ = Consumed.with_(TEXT, TEXT)


@pytest.fixture
def names(spark_runner: SparkRunner, unique_name: Callable[[str], str]) -> tuple[str, str, str]:
    """A topic of control messages with one partition, one of data with two, and one to write to."""
    names = unique_name("control"), unique_name("data"), unique_name("out")
    spark_runner.create_topics(dict(zip(names, (1, 2, 1), strict=True)))
    return names


@pytest.mark.parametrize("seed", range(3))
def test_each_task_gets_each_message_once_whatever_fails_when(
    spark_runner: SparkRunner,
    application: str,
    names: tuple[str, str, str],
    crashes: Callable[..., Crashes],
    seed: int,
) -> None:
    control, data, target = names
    config = spark_runner.config(application, {"penstock.manifests.retained": 3})
    query = InlineQuery(naming(*names), config, spark_runner.admin)
    installed = crashes(seed, 0.15, 20)
    for part in range(4):
        spark_runner.write(control, messages(*range(part * 10, part * 10 + 10)))
        spark_runner.write(data, [InputRecord(b"d", b"d", 1_000 + part, part % 2)])
        run_to_end_over_kills(query)
    assert sum(installed.struck.values()) >= 3
    sent = [b"m%d" % number for number in range(40)]
    found = by_task(spark_runner, target)
    assert {key: [value for value in values if value != b"d"] for key, values in found.items()} == {
        b"0": sent,
        b"1": sent,
    }
    assert sum(values.count(b"d") for values in found.values()) == 4


def judging(control: str, data: str, target: str) -> Topology:
    builder = StreamsBuilder()
    rules = builder.stream(control, READ).broadcast(Repartitioned.as_("limits"))
    rules.to_table(materialized=Materialized.as_("limits"))
    amounts = builder.stream(data, READ)
    amounts.group_by_key().count(Materialized.as_("counts"))
    amounts.process(Judging, "limits").to(target, Produced.with_(TEXT, TEXT))
    return builder.build()


def test_more_tasks_start_with_the_rules_of_the_others(
    spark_runner: SparkRunner, application: str, names: tuple[str, str, str], tmp_path: Path
) -> None:
    control, data, target = names
    topology = judging(*names)
    config = spark_runner.config(application)
    spark_runner.write(control, [InputRecord(b"low", b"1", 1_000), InputRecord(b"high", b"9", 1_000)])
    spark_runner.write(data, [InputRecord(b"k%d" % n, b"5", 1_001, n % 2) for n in range(10)])
    InlineQuery(topology, config, spark_runner.admin).run_to_end()
    before = len(spark_runner.read(target))
    spark_runner.add_partitions(data, 5)
    with pytest.raises(IncompatibleCheckpointError, match="--rescale"):
        InlineQuery(topology, config, spark_runner.admin)
    savepoints.take(config, str(tmp_path / "saved"))
    more = spark_runner.config(application, {"penstock.checkpoint.dir": str(tmp_path / "more")})
    savepoints.restore(str(tmp_path / "saved"), more, savepoints.partitions_of_stores(topology, more))
    query = InlineQuery(topology, more, spark_runner.admin)
    spark_runner.write(data, [InputRecord(b"k", b"%d" % n, 2_000, n) for n in range(5)])
    query.run_to_end()
    judged = spark_runner.read(target)[before:]
    assert sorted(each.value or b"" for each in judged) == [b"%d:high=9,low=1" % n for n in range(5)]
    spark_runner.write(control, [InputRecord(b"low", b"2", 3_000)])
    query.run_to_end()
    copies = [entries for entries in spark_runner.store_by_task(more, "limits").values() if entries]
    assert [{key: value[8:] for key, value in each.items()} for each in copies] == [{b"high": b"9", b"low": b"2"}] * 5
    divided = [key for entries in spark_runner.store_by_task(more, "counts").values() for key in entries]
    assert sorted(key for key in divided if key != b"k") == [b"k%d" % n for n in range(10)]


def test_a_store_of_broadcasts_and_data_cannot_get_other_tasks(
    spark_runner: SparkRunner, application: str, names: tuple[str, str, str], tmp_path: Path
) -> None:
    control, data, _ = names
    builder = StreamsBuilder()
    both = builder.stream(control, READ).broadcast(Repartitioned.as_("b")).merge(builder.stream(data, READ))
    both.group_by_key().count(Materialized.as_("counts"))
    config = spark_runner.config(application)
    spark_runner.write(control, messages(1))
    InlineQuery(builder.build(), config, spark_runner.admin).run_to_end()
    savepoints.take(config, str(tmp_path / "saved"))
    other = spark_runner.config(f"{application}-other")
    with pytest.raises(
        StreamsError, match=r"Store counts is filled by KSTREAM-AGGREGATE-\d+ with records of a broadcast"
    ):
        savepoints.restore(str(tmp_path / "saved"), other, 3)
