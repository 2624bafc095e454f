"""Time on Spark: records are taken by their timestamps across the topics of a task, however much of each an epoch
reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import (
    Consumed,
    Joined,
    Processor,
    ProcessorContext,
    Record,
    Repartitioned,
    StreamsBuilder,
    Topology,
)
from tests.host.spark.crashes import Crashes, KilledError, run_to_end_over_kills
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord
from tests.host.test_time import (
    DAY_MS,
    MINUTE_MS,
    PARTITIONS,
    STRING,
    TEXT_OUT,
    FileClock,
    Ticking,
    closed_windows,
    expected_by_key,
    make_topics,
    minutes_by_operator,
    output_by_key,
    ticking,
    told_time,
    two_years_against_two_days,
    written,
    years_and_days,
)

pytestmark = pytest.mark.one_broker


@pytest.fixture
def prefix(spark_runner: SparkRunner, unique_name: Callable[[str], str]) -> str:
    return make_topics(spark_runner, unique_name("time"))


@pytest.mark.parametrize(("seed", "held_bytes"), [(0, 1), (1, 1_000_000)])
def test_two_years_against_two_days_give_what_the_test_driver_gives(
    spark_runner: SparkRunner,
    application: str,
    prefix: str,
    crashes: Callable[..., Crashes],
    seed: int,
    held_bytes: int,
) -> None:
    events = two_years_against_two_days(prefix, seed)
    rows = [(event[0], written(event)) for event in events]
    for topic, record in rows:
        spark_runner.write(topic, [record])
    config = spark_runner.config(application, {"penstock.batch.max.bytes": 1024, "penstock.held.max.bytes": held_bytes})
    query = InlineQuery(years_and_days(prefix), config, spark_runner.admin)
    crashes(seed, 0.01, 3)
    run_to_end_over_kills(query)
    assert query.epochs > 8
    found = output_by_key(spark_runner, prefix)
    assert found == expected_by_key(years_and_days(prefix), prefix, rows)


def in_one_order(prefix: str) -> Topology:
    """Both topics to one, as they are: the output shows in which order records were taken."""
    builder = StreamsBuilder()
    consumed = Consumed.with_(key_serde=STRING, value_serde=STRING, timestamp_extractor=told_time)
    builder.stream([f"{prefix}-years", f"{prefix}-days"], consumed).to(f"{prefix}-out", TEXT_OUT)
    return builder.build()


def order(runner: SparkRunner, prefix: str) -> list[int]:
    """Return the times of the records of the key k0 in the output."""
    return [time for _, time in output_by_key(runner, prefix)["k0"]]


def broker_time(prefix: str) -> Topology:
    """As `years_and_days`, by the timestamps that the brokers know, and the readings behind a change of their key."""
    builder = StreamsBuilder()
    consumed = Consumed.with_(key_serde=STRING, value_serde=STRING)
    limits = builder.table(f"{prefix}-years", consumed)
    readings = builder.stream(f"{prefix}-days", consumed).select_key(lambda key, _: key)
    texts = Joined.with_(key_serde=STRING, value_serde=STRING, other_value_serde=STRING)
    known = readings.left_join(limits, lambda reading, limit: f"{reading} under {limit}", joined=texts)
    known.to(f"{prefix}-out", TEXT_OUT)
    return builder.build()


@pytest.mark.parametrize("values", [{}, {"penstock.max.skew.ms": 0}, {"partition.pause.threshold.ms": DAY_MS}])
def test_years_and_days_by_the_time_of_the_brokers_give_what_the_test_driver_gives(
    spark_runner: SparkRunner, application: str, prefix: str, values: dict[str, int]
) -> None:
    events = two_years_against_two_days(prefix, 5)
    rows = [(event[0], written(event)._replace(timestamp=event[1])) for event in events]
    for topic, record in rows:
        spark_runner.write(topic, [record])
    config = spark_runner.config(application, {"penstock.batch.max.bytes": 1024, **values})
    query = InlineQuery(broker_time(prefix), config, spark_runner.admin)
    years_before_days = 0
    while query.epoch():
        offsets = spark_runner.manifest(config).offsets
        if not any(offsets[f"{prefix}-days"]):
            years_before_days = sum(offsets[f"{prefix}-years"])
    assert (years_before_days > 100) == ("penstock.max.skew.ms" not in values)
    assert output_by_key(spark_runner, prefix) == expected_by_key(broker_time(prefix), prefix, rows)


def test_a_long_topic_beside_a_short_one_takes_few_epochs(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    for topic, count, size in ((f"{prefix}-days", 600, 8_000), (f"{prefix}-years", 120, 8)):
        spark_runner.write(
            topic, [InputRecord(b"k", bytes(size), 1 + time, time % PARTITIONS) for time in range(count)]
        )
    config = spark_runner.config(application, {"penstock.batch.max.bytes": 600_000})
    query = InlineQuery(broker_time(prefix), config, spark_runner.admin)
    query.run_to_end()
    assert query.epochs < 20
    assert len(output_by_key(spark_runner, prefix)["k"]) == 600


def test_a_task_waits_for_an_empty_partition_by_planned_time(
    spark_runner: SparkRunner, application: str, prefix: str, tmp_path: Path
) -> None:
    clock = FileClock(tmp_path / "clock")
    config = spark_runner.config(application, {"max.task.idle.ms": 500})
    query = InlineQuery(in_one_order(prefix), config, spark_runner.admin, clock=clock)
    spark_runner.write(f"{prefix}-years", [written(("", 5, "k0")), written(("", 9, "k0"))])
    query.run_to_end()
    assert spark_runner.read(f"{prefix}-out") == []
    clock.advance(499)
    spark_runner.write(f"{prefix}-days", [written(("", 7, "k0"))])
    query.run_to_end()
    assert order(spark_runner, prefix) == [5, 7]
    clock.advance(499)
    assert not query.epoch()
    clock.advance(1)
    assert query.epoch()
    assert not query.epoch()
    assert order(spark_runner, prefix) == [5, 7, 9]


def test_a_run_to_the_end_waits_for_nothing_that_may_still_come(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    config = spark_runner.config(application, {"max.task.idle.ms": 3_600_000})
    query = InlineQuery(in_one_order(prefix), config, spark_runner.admin)
    spark_runner.write(f"{prefix}-years", [written(("", 5, "k0"))])
    query.run_to_end()
    assert spark_runner.read(f"{prefix}-out") == []
    query.restart(until_end=True)
    query.run_to_end()
    assert order(spark_runner, prefix) == [5]


def test_final_results_that_are_due_leave_with_their_epoch_and_none_comes_without_a_record(
    spark_runner: SparkRunner, application: str, prefix: str, tmp_path: Path
) -> None:
    clock = FileClock(tmp_path / "clock")
    config = spark_runner.config(application)
    query = InlineQuery(closed_windows(prefix), config, spark_runner.admin, clock=clock)

    def seen_after(*times: int) -> dict[str, list[str]]:
        spark_runner.write(f"{prefix}-days", [InputRecord(b"k0", b"v", time) for time in times])
        query.run_to_end()
        query.restart()
        output = output_by_key(spark_runner, prefix)
        return {name: [value for value, _ in rows] for name, rows in output.items()}

    assert seen_after(5, 6) == {}
    clock.advance(999)
    assert seen_after(25) == {"suppressed": ["0:2"], "final": ["0:2"]}
    clock.advance(60_000)
    assert seen_after() == {"suppressed": ["0:2"], "final": ["0:2"]}
    assert seen_after(26) == {"suppressed": ["0:2"], "final": ["0:2"]}
    assert seen_after(35, 36) == {"suppressed": ["0:2", "20:2"], "final": ["0:2", "20:2"]}


@pytest.mark.parametrize("cache_bytes", [0, 1_000_000])
def test_a_run_to_the_end_emits_all_that_is_final_and_once(
    spark_runner: SparkRunner, application: str, prefix: str, cache_bytes: int
) -> None:
    spark_runner.write(f"{prefix}-days", [InputRecord(b"k", b"v", 1 + MINUTE_MS * n) for n in range(100)])
    config = spark_runner.config(application, {"statestore.cache.max.bytes": cache_bytes})
    query = InlineQuery(minutes_by_operator(prefix), config, spark_runner.admin)
    for _ in range(2):
        query.restart(until_end=True)
        query.run_to_end()
        output = output_by_key(spark_runner, prefix)
        assert {name: len(rows) for name, rows in output.items()} == {
            "tumbling": 99,
            "sliding": 99,
            "sessions": 99,
            "joined": 99,
            "outer": 99,
            "again": 98,
        }
        times = [time for _, time in output["joined"]]
        assert times == [1 + MINUTE_MS * n for n in range(99)]


def test_an_epoch_that_is_run_again_emits_the_same_final_results(
    spark_runner: SparkRunner, application: str, prefix: str, crashes: Callable[..., Crashes]
) -> None:
    rows = [InputRecord(b"k", b"v" * 50, 1 + MINUTE_MS * n) for n in range(100)]
    spark_runner.write(f"{prefix}-days", rows)
    config = spark_runner.config(application, {"penstock.batch.max.bytes": 1024})
    query = InlineQuery(minutes_by_operator(prefix), config, spark_runner.admin)
    crashes(3, 0.02, 6)
    run_to_end_over_kills(query)
    assert query.epochs > 4
    output = output_by_key(spark_runner, prefix)
    assert {len(found) for name, found in output.items() if name != "again"} == {99}


class TickingFromNow(Ticking):
    """Also does so immediately: `init` runs at another time in each epoch."""

    def start_ms(self, context: ProcessorContext) -> int | None:
        return context.current_system_time_ms()


def test_a_schedule_that_begins_now_keeps_its_interval(
    spark_runner: SparkRunner, application: str, prefix: str, tmp_path: Path
) -> None:
    clock = FileClock(tmp_path / "clock")
    topology = ticking(prefix, TickingFromNow)
    query = InlineQuery(topology, spark_runner.config(application), spark_runner.admin, clock=clock)
    for _ in range(5):
        spark_runner.write(f"{prefix}-days", [InputRecord(b"k0", b"v", 1)])
        query.run_to_end()
        clock.advance(30)
    told = [time for _, time in output_by_key(spark_runner, prefix)["k0"] if time != 1]
    assert sorted(told) == [1_000_000] * PARTITIONS + [1_000_120] * PARTITIONS


TEN_YEARS_MS = 10 * 365 * DAY_MS


def test_punctuations_begin_again_after_a_leap_of_the_wall_clock(
    spark_runner: SparkRunner, application: str, prefix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FileClock(tmp_path / "clock")
    query = InlineQuery(ticking(prefix), spark_runner.config(application), spark_runner.admin, clock=clock)

    def told_after(step_ms: int) -> list[int]:
        clock.advance(step_ms)
        query.run_to_end()
        query.restart()
        return sorted({time for _, time in output_by_key(spark_runner, prefix).get("k0", [])})

    assert told_after(0) == []
    leaped = 1_000_000 + TEN_YEARS_MS
    assert told_after(TEN_YEARS_MS) == [leaped]
    assert told_after(-TEN_YEARS_MS) == [leaped]
    assert told_after(99) == [leaped]
    assert told_after(1) == [1_000_100, leaped]
    assert told_after(100) == [1_000_100, 1_000_200, leaped]
    warnings = [record.getMessage() for record in caplog.records if "has jumped" in record.getMessage()]
    assert len(warnings) == 1
    assert "1970-01-01T00:16:40.000+00:00" in warnings[0]
    assert "1979-12-30T00:16:40.000+00:00" in warnings[0]


def test_the_clock_of_epochs_stands_still_while_the_machine_is_a_little_behind(
    spark_runner: SparkRunner, application: str, prefix: str, tmp_path: Path
) -> None:
    clock = FileClock(tmp_path / "clock")
    config = spark_runner.config(application, {"penstock.clock.max.hold.back.ms": 1_000})
    query = InlineQuery(ticking(prefix), config, spark_runner.admin, clock=clock)
    query.run_to_end()
    for step_ms, planned_ms in ((100, 1_000_100), (-1_000, 1_000_100), (-1, 999_099)):
        clock.advance(step_ms)
        spark_runner.write(f"{prefix}-days", [InputRecord(b"k0", b"v", 1)])
        assert query.epoch()
        assert spark_runner.manifest(config).planned_ms == planned_ms


def test_an_epoch_that_is_run_again_keeps_its_time_when_the_clock_has_leaped(
    spark_runner: SparkRunner, application: str, prefix: str, tmp_path: Path, crashes: Callable[..., Crashes]
) -> None:
    clock = FileClock(tmp_path / "clock")
    config = spark_runner.config(application)
    query = InlineQuery(ticking(prefix), config, spark_runner.admin, clock=clock)
    query.run_to_end()
    clock.advance(TEN_YEARS_MS)
    crashes(at="task.before_process")
    with pytest.raises(KilledError):
        query.epoch()
    clock.advance(-TEN_YEARS_MS)
    query.restart()
    assert query.epoch()
    assert spark_runner.manifest(config).planned_ms == 1_000_000 + TEN_YEARS_MS
    query.run_to_end()
    clock.advance(100)
    query.run_to_end()
    told = {time for _, time in output_by_key(spark_runner, prefix)["k0"]}
    assert told == {1_000_000 + TEN_YEARS_MS, 1_000_100}


def test_a_task_waits_for_its_idle_time_from_a_clock_that_went_back(
    spark_runner: SparkRunner, application: str, prefix: str, tmp_path: Path
) -> None:
    clock = FileClock(tmp_path / "clock")
    clock.advance(TEN_YEARS_MS)
    config = spark_runner.config(application, {"max.task.idle.ms": 500})
    query = InlineQuery(in_one_order(prefix), config, spark_runner.admin, clock=clock)
    spark_runner.write(f"{prefix}-years", [written(("", 5, "k0"))])
    query.run_to_end()
    clock.advance(-TEN_YEARS_MS)
    query.run_to_end()
    clock.advance(499)
    query.run_to_end()
    assert spark_runner.read(f"{prefix}-out") == []
    clock.advance(1)
    query.run_to_end()
    assert order(spark_runner, prefix) == [5]


class Told(Processor):
    """Forwards the stream time and the offset of each record as its value."""

    def process(self, record: Record) -> None:
        metadata = self.context.record_metadata
        assert metadata is not None
        told = f"{record.value} at {self.context.current_stream_time_ms()} from {metadata.offset}"
        self.context.forward(record.with_value(told))


def test_each_sub_topology_has_its_own_stream_time_and_a_repartition_its_own_offsets(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    builder = StreamsBuilder()
    texts = Consumed.with_(key_serde=STRING, value_serde=STRING)
    years, days = (builder.stream(f"{prefix}-{topic}", texts) for topic in ("years", "days"))
    years.process(Told).to(f"{prefix}-out", TEXT_OUT)
    kept = days.filter(lambda key, value: value != "no")
    kept.repartition(Repartitioned.with_(STRING, STRING)).process(Told).to(f"{prefix}-out", TEXT_OUT)
    topology = builder.build()
    rows = [
        (f"{prefix}-years", InputRecord(b"y", b"a", 500, 0)),
        *((f"{prefix}-days", InputRecord(b"d", value, 5, 0)) for value in (b"no", b"b")),
    ]
    for topic, row in rows:
        spark_runner.write(topic, [row])
    InlineQuery(topology, spark_runner.config(application), spark_runner.admin).run_to_end()
    assert output_by_key(spark_runner, prefix) == {"y": [("a at 500 from 0", 500)], "d": [("b at 5 from 0", 5)]}
    assert expected_by_key(topology, prefix, rows)["d"] == [("b at 500 from 0", 5)]
