"""Time on Spark: records are taken by their timestamps across the topics of a task, however much of each an epoch
reads."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import (
    BufferConfig,
    Consumed,
    EmitStrategy,
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    Processor,
    ProcessorContext,
    Produced,
    PunctuationType,
    Record,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)
from penstock.plan.partitioning import partition_for
from penstock.record import ConsumerRecord
from penstock.testing import TopologyTestDriver
from tests.host.spark.crashes import Crashes, KilledError, run_to_end_over_kills
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import InputRecord, SparkRunner

pytestmark = pytest.mark.one_broker

STRING = Serdes.string()
TEXT_OUT = Produced.with_(key_serde=STRING, value_serde=STRING)
DAY_MS = 86_400_000
PADDING = "." * 60  # so that an epoch has few records
PARTITIONS = 2
KEYS = [f"k{number}" for number in range(6)]

Event = tuple[str, int, str]
"""Topic, time in ms, key; the value of the record says the time, and no timestamp does."""


def told_time(record: ConsumerRecord, partition_time: int) -> int:
    """Return the time that a record tells: a custom timestamp extractor."""
    return int(record.value.split("@")[1])


def years_and_days(prefix: str) -> Topology:
    """Readings joined with the limit that held at their time, and with what was seen close by."""
    builder = StreamsBuilder()
    consumed = Consumed.with_(key_serde=STRING, value_serde=STRING, timestamp_extractor=told_time)
    limits = builder.table(f"{prefix}-years", consumed)
    readings = builder.stream(f"{prefix}-days", consumed)
    texts = Joined.with_(key_serde=STRING, value_serde=STRING, other_value_serde=STRING)
    known = readings.left_join(limits, lambda reading, limit: f"{reading} under {limit}", joined=texts)
    near = JoinWindows.of_time_difference_and_grace(DAY_MS // 24, 0)
    both = StreamJoined.with_(key_serde=STRING, value_serde=STRING, other_value_serde=STRING)
    pairs = known.join(limits.to_stream(), lambda one, other: f"{one} near {other}", near, stream_joined=both)
    known.merge(pairs).to(f"{prefix}-out", TEXT_OUT)
    return builder.build()


def two_years_against_two_days(prefix: str, seed: int) -> list[Event]:
    """Return a change of a limit every few days for two years, and readings in the last two days, by time."""
    chosen = random.Random(seed)
    times = sorted(chosen.sample(range(730 * DAY_MS), 120)) + sorted(
        728 * DAY_MS + chosen.randrange(2 * DAY_MS) for _ in range(60)
    )
    last_days = sorted(728 * DAY_MS + chosen.randrange(2 * DAY_MS) for _ in range(120))
    events = [(f"{prefix}-years", time, chosen.choice(KEYS)) for time in times]
    events += [(f"{prefix}-days", time, chosen.choice(KEYS)) for time in last_days]
    return sorted(events, key=lambda event: event[1])


def written(event: Event) -> InputRecord:
    _, time, key = event
    return InputRecord(key.encode(), f"{key}@{time}@{PADDING}".encode(), 1_000, partition_for(key.encode(), PARTITIONS))


def expected_by_key(
    topology: Topology, prefix: str, rows: list[tuple[str, InputRecord]]
) -> dict[str, list[tuple[str, int]]]:
    by_key: dict[str, list[tuple[str, int]]] = {}
    with TopologyTestDriver(topology, {"application.id": "expected"}) as driver:
        for topic, record in rows:
            driver.pipe_bytes(topic, record.key, record.value, record.timestamp, ())
        for each in driver.read_all_bytes():
            if each.topic == f"{prefix}-out":
                by_key.setdefault((each.key or b"").decode(), []).append((_text(each.value), each.timestamp))
    return by_key


def _text(value: bytes | None) -> str:
    assert value is not None
    return value.decode()


@pytest.fixture
def prefix(spark_runner: SparkRunner, unique_name: Callable[[str], str]) -> str:
    name = unique_name("time")
    spark_runner.create_topics({f"{name}-years": PARTITIONS, f"{name}-days": PARTITIONS, f"{name}-out": 1})
    return name


def output_by_key(runner: SparkRunner, prefix: str) -> dict[str, list[tuple[str, int]]]:
    by_key: dict[str, list[tuple[str, int]]] = {}
    for each in runner.read(f"{prefix}-out"):
        by_key.setdefault((each.key or b"").decode(), []).append((_text(each.value), each.timestamp))
    return by_key


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


class FileClock:
    """A clock in a file, so that what is pickled with it tells the same time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_text("1000000")

    def milliseconds(self) -> int:
        return int(self._path.read_text())

    def advance(self, milliseconds: int) -> None:
        self._path.write_text(str(self.milliseconds() + milliseconds))


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


def closed_windows(prefix: str) -> Topology:
    """Counts of windows of ten ms when they are closed, by the emit strategy and by suppression."""
    builder = StreamsBuilder()
    grouped = builder.stream(f"{prefix}-days", Consumed.with_(key_serde=STRING, value_serde=STRING)).group_by_key(
        Grouped.with_(key_serde=STRING, value_serde=STRING)
    )
    windows = TimeWindows.of_size_with_no_grace(10)
    closing = grouped.windowed_by(windows).emit_strategy(EmitStrategy.on_window_close())
    final = closing.count(Materialized.as_("final").with_retention(DAY_MS))
    suppressed = (
        grouped.windowed_by(windows)
        .count(Materialized.as_("counts"))
        .suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    )
    for name, table in (("final", final), ("suppressed", suppressed)):
        told = table.to_stream().map(lambda window, count, name=name: (name, f"{window.window.start}:{count}"))
        told.to(f"{prefix}-out", TEXT_OUT)
    return builder.build()


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


MINUTE_MS = 60_000


def minutes_by_operator(prefix: str) -> Topology:
    """Each way of emitting only what is final, one after the other too: windows, sessions, and joins."""
    builder = StreamsBuilder()
    consumed = Consumed.with_(key_serde=STRING, value_serde=STRING)
    stream, other = builder.stream(f"{prefix}-days", consumed), builder.stream(f"{prefix}-years", consumed)
    grouped = stream.group_by_key(Grouped.with_(key_serde=STRING, value_serde=STRING))
    final = EmitStrategy.on_window_close()
    kept = Materialized.with_(key_serde=STRING, value_serde=Serdes.long()).with_retention(DAY_MS)
    windows = JoinWindows.of_time_difference_with_no_grace(MINUTE_MS // 2)
    both = StreamJoined.with_(key_serde=STRING, value_serde=STRING, other_value_serde=STRING)
    tables = {
        "tumbling": grouped.windowed_by(TimeWindows.of_size_with_no_grace(MINUTE_MS)),
        "sliding": grouped.windowed_by(SlidingWindows.of_time_difference_with_no_grace(MINUTE_MS // 2)),
        "sessions": grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(MINUTE_MS // 2)),
    }
    results = {
        name: windowed.emit_strategy(final).count(kept).to_stream().map(lambda key, count: (key.key, str(count)))
        for name, windowed in tables.items()
    }
    results["joined"] = stream.left_join(other, lambda one, two: f"{one}+{two}", windows, stream_joined=both)
    results["outer"] = other.outer_join(stream, lambda one, two: f"{one}+{two}", windows, stream_joined=both)
    again = results["joined"].group_by_key(Grouped.with_(key_serde=STRING, value_serde=STRING))
    counted = again.windowed_by(TimeWindows.of_size_with_no_grace(MINUTE_MS)).emit_strategy(final).count(kept)
    results["again"] = counted.to_stream().map(lambda key, count: (key.key, str(count)))
    for name, result in results.items():
        result.map(lambda key, value, name=name: (name, value)).to(f"{prefix}-out", TEXT_OUT)
    return builder.build()


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


class Ticking(Processor):
    """Says the time by its wall clock every 100 ms."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(100, PunctuationType.WALL_CLOCK_TIME, self.tick, self.start_ms(context))

    def start_ms(self, context: ProcessorContext) -> int | None:
        return None

    def tick(self, now: int) -> None:
        self.context.forward(Record("k0", str(now), now))

    def process(self, record: Record) -> None:
        self.context.forward(record)


def ticking(prefix: str, processor: type[Ticking] = Ticking) -> Topology:
    builder = StreamsBuilder()
    source = builder.stream(f"{prefix}-days", Consumed.with_(key_serde=STRING, value_serde=STRING))
    source.process(processor).to(f"{prefix}-out", TEXT_OUT)
    return builder.build()


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


def test_punctuations_by_wall_clock_come_on_idle_input_by_planned_time(
    spark_runner: SparkRunner, application: str, prefix: str, tmp_path: Path
) -> None:
    clock = FileClock(tmp_path / "clock")
    builder = StreamsBuilder()
    source = builder.stream(f"{prefix}-days", Consumed.with_(key_serde=STRING, value_serde=STRING))
    source.process(Ticking).to(f"{prefix}-out", TEXT_OUT)
    query = InlineQuery(builder.build(), spark_runner.config(application), spark_runner.admin, clock=clock)
    query.run_to_end()
    clock.advance(99)
    assert not query.epoch()
    clock.advance(1)
    query.run_to_end()
    query.restart()
    clock.advance(250)
    query.run_to_end()
    told = [time for _, time in output_by_key(spark_runner, prefix)["k0"]]
    assert sorted(told) == [1_000_100] * PARTITIONS + [1_000_350] * PARTITIONS
