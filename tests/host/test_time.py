"""Time on each host: records are taken by their timestamps across the topics of a task, results that are final leave
when they are, and processors are called by the clock."""

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
from tests.host.support import InputRecord, Program, Runner, wait_for

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


class FileClock:
    """A clock in a file, so that what is pickled with it tells the same time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._set(1_000_000)

    def milliseconds(self) -> int:
        return int(self._path.read_text())

    def advance(self, milliseconds: int) -> None:
        self._set(self.milliseconds() + milliseconds)

    def _set(self, milliseconds: int) -> None:
        new = self._path.with_suffix(".new")  # other threads read at any time
        new.write_text(str(milliseconds))
        new.replace(self._path)


def make_topics(runner: Runner, prefix: str) -> str:
    """Create the topics of these programs, and return their prefix."""
    runner.create_topics({f"{prefix}-years": PARTITIONS, f"{prefix}-days": PARTITIONS, f"{prefix}-out": 1})
    return prefix


def output_by_key(runner: Runner, prefix: str) -> dict[str, list[tuple[str, int]]]:
    by_key: dict[str, list[tuple[str, int]]] = {}
    for each in runner.read(f"{prefix}-out"):
        by_key.setdefault((each.key or b"").decode(), []).append((_text(each.value), each.timestamp))
    return by_key


@pytest.fixture
def prefix(runner: Runner, unique_name: Callable[[str], str]) -> str:
    return make_topics(runner, unique_name("time"))


def test_two_years_against_two_days_give_what_the_test_driver_gives(
    runner: Runner, start: Callable[..., Program], application: str, prefix: str
) -> None:
    rows = [(event[0], written(event)) for event in two_years_against_two_days(prefix, 2)]
    for topic, record in rows:
        runner.write(topic, [record])
    start(years_and_days(prefix), runner.config(application)).run_to_end()
    assert output_by_key(runner, prefix) == expected_by_key(years_and_days(prefix), prefix, rows)


def minutes_by_user(prefix: str) -> Topology:
    """Counts by minute and user, behind a change of the key."""
    builder = StreamsBuilder()
    moved = builder.stream(f"{prefix}-days", Consumed.with_(key_serde=STRING, value_serde=STRING)).group_by(
        lambda key, value: value, Grouped.with_(key_serde=STRING, value_serde=STRING)
    )
    counts = moved.windowed_by(TimeWindows.of_size_with_no_grace(MINUTE_MS)).count()
    counts.to_stream().map(lambda key, count: (key.key, str(count))).to(f"{prefix}-out", TEXT_OUT)
    return builder.build()


def test_history_of_several_partitions_is_in_its_windows_behind_a_repartition_topic(
    runner: Runner, start: Callable[..., Program], application: str, prefix: str
) -> None:
    rows = [InputRecord(b"k", f"user{n % 3}".encode(), 20_000 * n, n % PARTITIONS) for n in range(1, 400)]
    runner.write(f"{prefix}-days", rows)
    config = runner.config(application, {"statestore.cache.max.bytes": 0})
    start(minutes_by_user(prefix), config).run_to_end()
    output = output_by_key(runner, prefix)
    assert {user: len(counts) for user, counts in output.items()} == {f"user{n}": 133 for n in range(3)}
    for counts in output.values():
        assert [time for _, time in counts] == sorted(time for _, time in counts)


def test_history_of_partitions_with_other_rates_is_in_its_windows_though_no_epoch_reads_it_whole(
    runner: Runner, start: Callable[..., Program], application: str, prefix: str
) -> None:
    rows = [
        InputRecord(b"k", f"user{n % 3}".encode(), (1 + n) * MINUTE_MS * step, partition)
        for partition, step in enumerate((1, 7))
        for n in range(150)
    ]
    runner.write(f"{prefix}-days", rows)
    config = runner.config(application, {"penstock.batch.max.bytes": 2_000})
    start(minutes_by_user(prefix), config).run_to_end()
    counts = {
        (user, time): int(count) for user, found in output_by_key(runner, prefix).items() for count, time in found
    }
    assert sum(counts.values()) == len(rows)


def test_final_results_leave_when_their_windows_close_and_once(
    runner: Runner, start: Callable[..., Program], application: str, prefix: str
) -> None:
    program = start(closed_windows(prefix), runner.config(application, {"penstock.emit.interval.ms": 0}))

    def seen_after(*times: int) -> dict[str, list[str]]:
        runner.write(f"{prefix}-days", [InputRecord(b"k0", b"v", time) for time in times])
        program.run_to_end()
        program.restart()
        output = output_by_key(runner, prefix)
        return {name: [value for value, _ in rows] for name, rows in output.items()}

    assert seen_after(5, 6) == {}
    assert seen_after(25) == {"suppressed": ["0:2"], "final": ["0:2"]}
    assert seen_after(26) == {"suppressed": ["0:2"], "final": ["0:2"]}
    assert seen_after(35, 36) == {"suppressed": ["0:2", "20:2"], "final": ["0:2", "20:2"]}


def test_all_that_is_final_is_emitted_once_by_each_operator(
    runner: Runner, start: Callable[..., Program], application: str, prefix: str
) -> None:
    runner.write(f"{prefix}-days", [InputRecord(b"k", b"v", 1 + MINUTE_MS * n) for n in range(100)])
    program = start(minutes_by_operator(prefix), runner.config(application, {"penstock.emit.interval.ms": 0}))
    program.run_to_end()
    output = output_by_key(runner, prefix)
    expected = {"tumbling": 99, "sliding": 99, "sessions": 99, "joined": 99, "outer": 99, "again": 98}
    assert {name: len(rows) for name, rows in output.items()} == expected
    assert [time for _, time in output["joined"]] == [1 + MINUTE_MS * n for n in range(99)]


def test_punctuations_by_wall_clock_come_on_idle_input(
    runner: Runner, start: Callable[..., Program], application: str, prefix: str, tmp_path: Path
) -> None:
    clock = FileClock(tmp_path / "clock")
    program = start(ticking(prefix), runner.config(application), clock)

    def told() -> list[int]:
        program.run_to_end()
        return sorted(time for _, time in output_by_key(runner, prefix).get("k0", []))

    assert told() == []
    clock.advance(100)
    wait_for(lambda: told() == [1_000_100] * PARTITIONS)
    program.restart()
    program.run_to_end()
    clock.advance(250)
    wait_for(lambda: told() == [1_000_100] * PARTITIONS + [1_000_350] * PARTITIONS)
