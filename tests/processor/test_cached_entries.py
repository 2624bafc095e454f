"""Sessions and sliding windows of a batch with a cache: the results equal those of record by record processing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Materialized, Serdes, SessionWindows, SlidingWindows, StreamsBuilder
from penstock.plan.topology import Topology
from tests.support.tables import Row
from tests.task.topologies import STRING, batch_of, output_of, sent, task_of

WINDOWS = [SessionWindows.of_inactivity_gap_and_grace(3, 20), SlidingWindows.of_time_difference_and_grace(4, 20)]
KINDS = ["sessions", "sliding"]
ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy!"), st.integers(0, 60)), max_size=25)


def joined_values(windows: Any) -> Topology:
    """Return the texts of the values of each window; the value "!" deletes the result."""

    def added(key: str, value: str, total: str) -> str | None:
        return None if value == "!" else total + value

    builder = StreamsBuilder()
    grouped: Any = builder.stream("in").group_by_key().windowed_by(windows)
    functions = [str, added, *([lambda key, one, other: one + other] * isinstance(windows, SessionWindows))]
    table = grouped.aggregate(*functions, Materialized.with_(STRING, STRING))
    table.to_stream(lambda key, value: str(key)).to("out")
    return builder.build()


@pytest.mark.parametrize("windows", WINDOWS, ids=KINDS)
@given(rows=ROWS)
@settings(max_examples=30)
def test_a_batch_ends_as_its_records_one_by_one(windows: Any, rows: list[Row]) -> None:
    def results(execution: str) -> set[Row]:
        output = output_of(joined_values(windows), rows, execution=execution, cache_bytes=1_000_000)
        return {row for row in output if row[1] is not None}

    assert results("auto") == results("record")


@pytest.mark.parametrize("windows", WINDOWS, ids=KINDS)
def test_a_second_batch_continues_with_the_stored_entries(windows: Any) -> None:
    first, second = [("a", "x", 10), ("b", "x", 30)], [("a", "y", 12), ("b", "!", 31), ("a", "z", 15)]

    def results(execution: str) -> list[Any]:
        task = task_of(joined_values(windows), execution=execution, cache_bytes=1_000_000)
        for offset, rows in ((0, first), (2, second)):
            task.add_records("in", 0, batch_of(*rows, first_offset=offset))
            task.process()
            task.flush()
        return sorted(sent(task), key=str)

    assert results("auto") == results("record")


def test_the_merged_sessions_of_a_batch_are_stored_as_one() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().windowed_by(WINDOWS[0]).count(Materialized.as_("s"))
    task = task_of(builder.build(), cache_bytes=1_000_000)
    task.add_records("in", 0, batch_of(("a", "x", 10), ("a", "x", 12), ("a", "x", 14)))
    task.process()
    task.flush()
    ((_, count),) = task.changes()["s"].items()
    assert Serdes.long().deserialize("s", count) == 3
