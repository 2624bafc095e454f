"""Parked records on Spark: crashes at each point of an epoch, and keys re-partitioned to other tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from penstock import Backoff, Materialized, Park, Produced, StreamsBuilder, Topology, savepoints
from penstock.plan.partitioning import partition_for
from penstock.processor.parked_requests import ParkedAction, ParkedRequest, ParkedRequestSerde
from tests.host.spark.crashes import Crashes, answer_by_chance, is_killed, run_to_end_over_kills
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord
from tests.host.test_park import PARK, SETTINGS, STRING, TEXT, charging
from tests.host.test_time import FileClock

pytestmark = [pytest.mark.one_broker]

KEYS = "abcdef"


def rows(began: int, first: int, count: int, partitions: int) -> list[InputRecord]:
    """Return `count` records from the number `first` on, of the keys by turns, each in the partition of its key."""
    return [
        InputRecord(key, b"%s%d" % (key, number), began + number, partition_for(key, partitions))
        for number in range(first, first + count)
        for key in [KEYS[number % len(KEYS)].encode()]
    ]


def by_key(runner: SparkRunner, topic: str) -> dict[bytes | None, list[bytes | None]]:
    found: dict[bytes | None, list[bytes | None]] = {}
    for each in runner.read(topic):
        found.setdefault(each.key, []).append(each.value)
    return found


@pytest.mark.partitions(2, 2)
@pytest.mark.parametrize("seed", range(3))
def test_each_record_has_one_result_in_order_whatever_fails_when(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    tmp_path: Path,
    seed: int,
) -> None:
    clock, down = FileClock(tmp_path / "clock"), tmp_path / "down"
    down.write_text("a b c")
    config = spark_runner.config(application, SETTINGS)
    topology = charging(*topics, down, replace(PARK, attempts=10))
    query = InlineQuery(topology, config, spark_runner.admin, clock=clock)
    began = clock.milliseconds()
    installed = crashes(seed, 0.1, 20)
    for part in range(4):
        spark_runner.write(topics[0], rows(began, part * 12, 12, 2))
        run_to_end_over_kills(query)
        clock.advance(1_000 if part == 0 else 60_000)
        down.write_text(["a b", "b", ""][min(part, 2)])
        run_to_end_over_kills(query)
    assert sum(installed.struck.values()) >= 5
    expected = {
        key.encode(): [b"%s%d charged" % (key.encode(), number) for number in range(48) if KEYS[number % 6] == key]
        for key in KEYS
    }
    assert by_key(spark_runner, topics[1]) == expected


def charging_by_chance(source: str, target: str, calls: Path, seed: int) -> Topology:
    """Return a topology that charges by chance, and counts the answers of each key in a store."""
    builder = StreamsBuilder()
    park = Park(backoff=Backoff(1_000, limit=1_000), attempts=1_000)
    charged = builder.stream(source, TEXT).map_values(
        partial(answer_by_chance, calls, seed, 0.5), named="charge", on_error=park
    )
    charged.to(target, Produced.with_(STRING, STRING))
    charged.group_by_key().aggregate(
        str,
        lambda _key, answer, before: f"{before}{answer},",
        materialized=Materialized.as_("answers").with_key_serde(STRING).with_value_serde(STRING),
    )
    return builder.build()


@pytest.mark.partitions(2, 2)
@pytest.mark.parametrize("same_driver", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_an_epoch_that_runs_again_keeps_the_outcomes_of_its_first_run(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    tmp_path: Path,
    seed: int,
    same_driver: bool,
) -> None:
    clock = FileClock(tmp_path / "clock")
    config = spark_runner.config(application, SETTINGS)
    topology = charging_by_chance(*topics, tmp_path / "calls", seed)
    query = InlineQuery(topology, config, spark_runner.admin, clock=clock)
    installed = crashes(seed, 0.02, 10)
    spark_runner.write(topics[0], rows(clock.milliseconds(), 0, 12, 2))
    for _ in range(30):
        installed.at = "transaction.after"  # one sink partition has committed, the other has not
        while is_killed(query):
            if not same_driver:
                query.restart()
        clock.advance(1_000)
    found = by_key(spark_runner, topics[1])
    values = {key: [value.partition(b" ")[0] for value in values if value] for key, values in found.items()}
    assert values == {key.encode(): [b"%s%d" % (key.encode(), n) for n in (i, i + 6)] for i, key in enumerate(KEYS)}
    stored = spark_runner.store(config, "answers")
    assert {key: value[8:] for key, value in stored.items()} == {
        key: b"".join(b"%s," % value for value in values if value) for key, values in found.items()
    }


@pytest.mark.partitions(2, 1)
@pytest.mark.parametrize("seed", range(3))
def test_a_request_takes_effect_once_over_kills(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    unique_name: Callable[[str], str],
    tmp_path: Path,
    seed: int,
) -> None:
    clock, down, letters = FileClock(tmp_path / "clock"), tmp_path / "down", unique_name("dead-letters")
    spark_runner.create_topics({letters: 2})
    down.write_text("a b c")
    config = spark_runner.config(application, SETTINGS)
    park = replace(PARK, then=letters, backoff=Backoff(3_600_000, limit=3_600_000))
    topology = charging(*topics, down, park)
    query = InlineQuery(topology, config, spark_runner.admin, clock=clock)
    began = clock.milliseconds()
    spark_runner.write(topics[0], rows(began, 0, 12, 2))
    query.run_to_end()
    down.write_text("a")
    installed = crashes(seed, 0.2, 10)
    requested = f"{application}-charge-parked-requests"
    for action, key in ((ParkedAction.DROP, "a"), (ParkedAction.RETRY, "b"), (ParkedAction.RETRY, "c")):
        value = ParkedRequestSerde().serialize(requested, ParkedRequest(action, 100, (key.encode(),)))
        partition = partition_for(key.encode(), 2)
        spark_runner.write(requested, [InputRecord(None, value, began, partition)])
        run_to_end_over_kills(query)
    assert sum(installed.struck.values()) >= 3
    assert by_key(spark_runner, letters) == {b"a": [b"a0", b"a6"]}
    found = by_key(spark_runner, topics[1])
    assert [found[b"b"], found[b"c"]] == [[b"b1 charged", b"b7 charged"], [b"c2 charged", b"c8 charged"]]


@pytest.mark.partitions(3, 1)
@pytest.mark.parametrize("after", [1, 5])
def test_parked_records_are_re_partitioned_with_their_keys(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path, after: int
) -> None:
    clock, down = FileClock(tmp_path / "clock"), tmp_path / "down"
    down.write_text(" ".join(KEYS))
    config = spark_runner.config(application, SETTINGS)
    topology = charging(*topics, down, PARK)
    began = clock.milliseconds()
    spark_runner.write(topics[0], rows(began, 0, 30, 3))
    InlineQuery(topology, config, spark_runner.admin, clock=clock).run_to_end()
    savepoints.take(config, str(tmp_path / "saved"))
    spark_runner.admin.delete_topics([topics[0]])
    spark_runner.create_topics({topics[0]: after})
    other = spark_runner.config(application, {**SETTINGS, "penstock.checkpoint.dir": str(tmp_path / "other")})
    savepoints.restore(str(tmp_path / "saved"), other, after)
    parked = spark_runner.store_by_task(other, "charge-parked")
    assert sum(map(len, parked.values())) == 30
    for task, entries in parked.items():
        assert {partition_for(key[8:], after) for key in entries} <= {int(task.partition("_")[2])}
