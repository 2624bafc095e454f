"""When suppressed updates come out."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import BufferConfig, CalendarWindows, Grouped, Materialized, Serdes, StreamsBuilder, Suppressed
from penstock.errors import StreamsError
from penstock.record import Headers
from penstock.state.api import Changes
from penstock.task import execution
from penstock.testing import TestRecord, TopologyTestDriver
from penstock.windows import TimeWindows
from tests.oracle.interpreter.serdes import HeaderStringSerde
from tests.support.tables import UNCACHED, Row, updates
from tests.task.topologies import batch_of, task_of


def run(suppressed: Suppressed, rows: list[Row]) -> list[Row]:
    builder = StreamsBuilder()
    builder.table("in").suppress(suppressed).to_stream().to("out")
    return updates(builder, rows)


def test_an_update_waits_from_the_time_of_the_first_of_its_key() -> None:
    rows: list[Row] = [("a", "1", 0), ("a", "2", 4), ("b", "1", 5), ("a", "3", 9), ("b", "2", 10)]
    unbounded = BufferConfig.unbounded()
    assert run(Suppressed.until_time_limit(5, unbounded), rows) == [("a", "2", 4), ("b", "2", 10)]


def test_a_limit_of_zero_holds_nothing_back() -> None:
    rows: list[Row] = [("a", "1", 3), ("a", None, 4)]
    assert run(Suppressed.until_time_limit(0, BufferConfig.unbounded()), rows) == rows


def test_a_full_buffer_emits_its_oldest_update_early() -> None:
    rows: list[Row] = [("c", "1", 3), ("a", "1", 1), ("b", "1", 2)]
    assert run(Suppressed.until_time_limit(100, BufferConfig.max_records(2)), rows) == [("a", "1", 1)]


def test_a_full_buffer_shuts_down_if_it_must_not_emit_early() -> None:
    strict = BufferConfig.max_records(1).shut_down_when_full()
    with pytest.raises(StreamsError) as raised:
        run(Suppressed.until_time_limit(100, strict).with_name("mine"), [("a", "1", 0), ("b", "1", 1)])
    assert "mine buffer exceeded its max capacity. Currently [2/1] records and [" in str(raised.value.__cause__)


def test_windows_have_one_result_when_they_close_and_none_for_a_delete() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key(Grouped.with_(key_serde=Serdes.string(), value_serde=Serdes.string()))
    counts = grouped.windowed_by(TimeWindows.of_size_and_grace(10, 5)).aggregate(
        lambda: "", lambda key, value, total: None if value == "delete" else total + value
    )
    final = counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    final.to_stream(lambda key, value: key.key).to("out")
    rows: list[Row] = [("a", "1", 1), ("b", "1", 2), ("a", "2", 12), ("b", "delete", 3), ("a", "3", 9), ("a", "4", 15)]
    assert updates(builder, rows) == [("a", "13", 9)]


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_a_day_of_23_hours_closes_an_hour_earlier(execution: str) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key(Grouped.with_(key_serde=Serdes.string(), value_serde=Serdes.string()))
    days = grouped.windowed_by(CalendarWindows.days("Europe/Berlin", 0)).reduce(lambda one, other: one + other)
    final = days.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    final.to_stream(lambda key, value: str(key)).to("out")
    start, end = 1711839600000, 1711922400000  # 2024-03-31
    rows: list[Row] = [("a", "1", start), ("a", "2", end - 1), ("a", "3", end), ("a", "4", end + 1)]
    assert updates(builder, rows, {**UNCACHED, "penstock.execution": execution}) == [
        (f"[a@{start}/{end}]", "12", end - 1)
    ]


def test_the_serde_of_an_old_value_does_not_receive_the_headers_of_the_new_one() -> None:
    strings = {"key_serde": Serdes.string(), "value_serde": Serdes.string()}
    builder, config = StreamsBuilder(), {**UNCACHED, "dsl.store.format": "headers"}
    table = builder.table("in", Materialized.as_("table").with_value_serde(HeaderStringSerde()))
    held = table.suppress(Suppressed.until_time_limit(0, BufferConfig.unbounded()))
    grouped = held.group_by(lambda key, value: (key, value), Grouped.with_(**strings))
    totals = grouped.aggregate(
        lambda: "", lambda key, value, total: total, lambda key, value, total: value, Materialized.with_(**strings)
    )
    totals.to_stream().to("removed")
    with TopologyTestDriver(builder.build(config), {"application.id": "app", **config}) as driver:
        source = driver.create_input_topic("in", Serdes.string(), Serdes.string())
        for value, header in (("one", b"1"), ("two", b"2")):
            source.pipe_input(TestRecord("a", value, headers=(("h", header),)))
        *_, removed = driver.create_output_topic("removed", Serdes.string(), Serdes.string()).read_values_to_list()
    assert removed == "one<h=1"


@given(
    rows=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(0, 40)), max_size=40),
    limit=st.integers(0, 20),
    most=st.integers(1, 3),
)
def test_updates_wait_as_a_plain_model_says(rows: list[Row], limit: int, most: int) -> None:
    waiting: dict[str, tuple[int, Row]] = {}
    expected: list[Row] = []
    now = -1
    for row in rows:
        key, _, timestamp = row
        assert key is not None
        now = max(now, timestamp)
        waiting[key] = (waiting[key][0] if key in waiting else timestamp, row)
        while waiting:
            held = min(waiting, key=lambda key: (waiting[key][0], key))
            if waiting[held][0] > now - limit and len(waiting) <= most:
                break
            expected.append(waiting.pop(held)[1])
    assert run(Suppressed.until_time_limit(limit, BufferConfig.max_records(most)), rows) == expected


TURNS = st.lists(
    st.tuples(
        st.sampled_from([(), (("h", b"1"),), (("h", b"2"), ("n", None))]),
        st.lists(
            st.tuples(st.sampled_from("ab"), st.none() | st.sampled_from("xyz"), st.integers(0, 30)),
            min_size=1,
            max_size=5,
        ),
    ),
    max_size=6,
)


@given(TURNS, st.integers(0, 8), st.integers(1, 2), st.booleans())
def test_columns_give_the_headers_that_records_give(
    turns: list[tuple[Headers, list[Row]]], limit: int, most: int, uses_headers: bool
) -> None:
    def outcome(execution_mode: str) -> tuple[list[tuple[bytes | None, bytes | None, Headers]], Changes]:
        builder, config = StreamsBuilder(), {"dsl.store.format": "headers"}
        serde = HeaderStringSerde() if uses_headers else Serdes.string()
        table = builder.table("in", Materialized.as_("table").with_value_serde(serde))
        held = table.suppress(Suppressed.until_time_limit(limit, BufferConfig.max_records(most)))
        held.to_stream().to("out")  # the changes show old values
        topology = builder.build({"default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()})
        task = task_of(topology, execution=execution_mode, config=config)
        output: list[tuple[bytes | None, bytes | None, Headers]] = []
        offset = 0
        for headers, rows in turns:
            task.add_records("in", 0, batch_of(*rows, first_offset=offset, headers=headers))
            task.process()
            offset += len(rows)
            output += [(record.key, record.value, record.headers) for record in task.drain_in_order()]
        task.flush()
        return output, task.changes()

    with patch.object(execution, "FEWEST_ROWS", 0):
        assert outcome("auto") == outcome("record")
