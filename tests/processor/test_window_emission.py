"""The final results of windows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import time
from typing import Any

import pytest

from penstock import (
    CalendarWindows,
    EmitStrategy,
    KTable,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
)
from penstock.state.memory import MemoryBase
from penstock.testing import TestRecord, TopologyTestDriver
from tests.support.tables import STRINGS, UNCACHED, Row, updates
from tests.task.topologies import batch_of, sent, task_of


def final(windows: Any, aggregate: Callable[[Any], KTable] = lambda stream: stream.count()) -> StreamsBuilder:
    builder = StreamsBuilder()
    stream = builder.stream("in").group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.on_window_close())
    aggregate(stream).to_stream(lambda key, value: str(key)).to("out")
    return builder


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (TimeWindows.of_size_with_no_grace(10), [("[a@10/20]", 2, 15), ("[b@20/30]", 1, 21)]),
        (SessionWindows.of_inactivity_gap_with_no_grace(5), [("[a@11/15]", 2, 15), ("[b@21/21]", 1, 21)]),
        (
            SlidingWindows.of_time_difference_with_no_grace(8),
            [("[a@3/11]", 1, 11), ("[a@7/15]", 2, 15), ("[a@12/20]", 1, 15), ("[b@13/21]", 1, 21)],
        ),
    ],
    ids=["tumbling", "session", "sliding"],
)
def test_each_window_has_one_final_result_in_the_order_of_time(windows: Any, expected: list[Any]) -> None:
    rows: list[Row] = [("a", "x", 11), ("a", "x", 15), ("b", "x", 21), ("c", "x", 35)]
    config = {**UNCACHED, "penstock.emit.interval.ms": 0}
    assert updates(final(windows), rows, config, Serdes.long()) == expected


def test_final_results_wait_for_the_interval_of_wall_clock_time() -> None:
    builder, serde = final(TimeWindows.of_size_with_no_grace(10)), Serdes.string()
    config = {"application.id": "app", **STRINGS, "penstock.emit.interval.ms": 1000}
    with TopologyTestDriver(builder.build(), config, 5000) as driver:
        source = driver.create_input_topic("in", serde, serde)
        output = driver.create_output_topic("out", serde, Serdes.long())

        def emitted(time: int) -> list[str]:
            source.pipe_input(TestRecord("a", "x", timestamp=time))
            return [record.key for record in output.read_records_to_list()]

        assert emitted(3) == []  # the first look, which finds nothing closed
        driver.advance_wall_clock_time(999)
        assert emitted(12) == []
        driver.advance_wall_clock_time(1)
        assert emitted(13) == ["[a@0/10]"]
        driver.advance_wall_clock_time(1000)
        assert emitted(14) == []  # no further window is closed
        driver.advance_wall_clock_time(1000)
        assert emitted(35) == ["[a@10/20]"]


def test_final_results_carry_the_headers_of_the_record_that_closed_the_window() -> None:
    builder, serde = final(TimeWindows.of_size_with_no_grace(10)), Serdes.string()
    config = {"application.id": "app", **STRINGS, "penstock.emit.interval.ms": 0}
    with TopologyTestDriver(builder.build(), config) as driver:
        source = driver.create_input_topic("in", serde, serde)
        source.pipe_input(TestRecord("a", "x", headers=(("h", b"1"),), timestamp=1))
        source.pipe_input(TestRecord("b", "x", headers=(("h", b"2"),), timestamp=10))
        (record,) = driver.create_output_topic("out", serde, Serdes.long()).read_records_to_list()
    assert (record.key, record.headers) == ("[a@0/10]", (("h", b"2"),))


HOUR_MS = 3_600_000
LAST_DAY_OF_WINTER = 1711753200000
"""Midnight of 2024-03-30 in Berlin; the next day has 23 hours."""


@pytest.mark.parametrize("config", [STRINGS, UNCACHED], ids=["cached", "uncached"])
@pytest.mark.parametrize("grace_hours", [0, 2])
def test_a_day_of_23_hours_is_final_after_23_hours_and_the_grace_period(
    config: dict[str, Any], grace_hours: int
) -> None:
    builder, serde = final(CalendarWindows.days("Europe/Berlin", grace_hours * HOUR_MS)), Serdes.string()
    settings = {"application.id": "app", **config, "penstock.emit.interval.ms": 0}
    with TopologyTestDriver(builder.build(), settings) as driver:
        source = driver.create_input_topic("in", serde, serde)
        output = driver.create_output_topic("out", serde, Serdes.long())

        def emitted(hours: int, earlier: int = 0) -> list[str]:
            source.pipe_input("a", "x", LAST_DAY_OF_WINTER + hours * HOUR_MS - earlier)
            return [f"{record.key} {record.value}" for record in output.read_records_to_list()]

        assert emitted(1) == []
        assert emitted(24 + grace_hours, 1) == []
        assert emitted(24 + grace_hours) == [f"[a@1711753200000/1711839600000] {2 if grace_hours == 0 else 1}"]
        assert emitted(24 + 22) == []
        assert emitted(24 + 23 + grace_hours, 1) == []
        (day,) = emitted(24 + 23 + grace_hours)
        assert day.startswith("[a@1711839600000/1711922400000]")


def test_a_window_is_emitted_once_whatever_the_size_of_the_next_ones() -> None:
    days = CalendarWindows.days("Europe/Berlin", 0)
    rows: list[Row] = [("a", "x", LAST_DAY_OF_WINTER + 6 * HOUR_MS * number) for number in range(20)]
    config = {**UNCACHED, "penstock.emit.interval.ms": 0}
    found = [(key, count) for key, count, _ in updates(final(days), rows, config, Serdes.long())]
    assert found == [
        ("[a@1711753200000/1711839600000]", 4),
        ("[a@1711839600000/1711922400000]", 4),
        ("[a@1711922400000/1712008800000]", 4),
        ("[a@1712008800000/1712095200000]", 4),
    ]


def test_no_result_is_lost_or_doubled_when_days_begin_at_another_time() -> None:
    base, checkpoint, emitted = MemoryBase(), None, []
    midnight = LAST_DAY_OF_WINTER + 2 * 24 * HOUR_MS - HOUR_MS  # of 2024-04-01
    for start_of_day, hours in ((time(), (-12, 10)), (time(6), (12, 36)), (time(), (60,)), (time(18), (72, 96))):
        days = CalendarWindows.days("Europe/Berlin", 0, start_of_day=start_of_day)
        task = task_of(
            final(days).build(),
            base=base,
            checkpoint=checkpoint,
            config={"penstock.emit.interval.ms": 0, "default.key.serde": Serdes.string()},
        )
        task.add_records("in", 0, batch_of(*(("a", "x", midnight + hour * HOUR_MS) for hour in hours)))
        task.process()
        emitted += [key for _, key, _, _ in sent(task)]
        commit = task.prepare_commit()
        task.committed(commit.changes, b"1")
        checkpoint = commit.checkpoint
    begun = [round((int((key or "")[3:16]) - midnight) / HOUR_MS) for key in emitted]
    assert begun == [-23, 0, 6, 30, 48, 66]
