"""The final results of windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import EmitStrategy, KTable, Serdes, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows
from penstock.testing import TestRecord, TopologyTestDriver
from tests.support.tables import STRINGS, UNCACHED, Row, updates


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
