"""Aggregations by session."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import SessionWindows, StreamsBuilder
from tests.support.tables import STRINGS, UNCACHED, Row
from tests.support.windows import MUCH, ROWS, counts_of, expected_counts
from tests.task.topologies import output_of


@given(ROWS, st.booleans())
def test_sessions_are_what_no_gap_divides(rows: list[Row], cached: bool) -> None:
    def session(row: Row) -> list[tuple[int, int]]:
        start = end = row[2]
        times = sorted({time for key, _, time in rows if key == row[0]})
        for time in reversed(times):
            start = time if start - 3 <= time <= start else start
        for time in times:
            end = time if end <= time <= end + 3 else end
        return [(start, end)]

    windows = SessionWindows.of_inactivity_gap_and_grace(3, MUCH)
    found = counts_of(windows, rows, STRINGS if cached else UNCACHED)
    assert {key: count for key, count in found.items() if count is not None} == expected_counts(rows, session)


def counts(gap: int, grace: int) -> StreamsBuilder:
    builder = StreamsBuilder()
    windows = SessionWindows.of_inactivity_gap_and_grace(gap, grace)
    table = builder.stream("in").group_by_key().windowed_by(windows).count()
    table.to_stream(lambda key, count: str(key)).map_values(lambda count: count and str(count)).to("out")
    return builder


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_merged_sessions_are_deleted_before_their_union_is_written(execution: str) -> None:
    rows: list[Row] = [("a", "x", 10), ("a", "x", 16), ("a", "x", 13), ("a", "x", 13)]
    assert output_of(counts(3, 100).build(), rows, execution=execution) == [
        ("[a@10/10]", "1", 10),
        ("[a@16/16]", "1", 16),
        ("[a@10/10]", None, 10),
        ("[a@16/16]", None, 16),
        ("[a@10/16]", "3", 16),
        ("[a@10/16]", None, 16),
        ("[a@10/16]", "4", 16),
    ]


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_a_late_record_counts_if_its_merged_session_is_open(execution: str) -> None:
    rows: list[Row] = [("a", "x", 10), ("a", "x", 14), ("b", "x", 19), ("a", "x", 9), ("b", "x", 21), ("a", "x", 8)]
    output = output_of(counts(5, 1).build(), rows, execution=execution)
    assert [row for row in output if row[0] == "[a@9/14]"] == [("[a@9/14]", "3", 14)]
    assert not any("@8/" in (key or "") for key, *_ in output)
