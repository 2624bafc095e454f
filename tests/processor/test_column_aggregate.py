"""Ready aggregations by column give what they give record by record: output, stores and changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    Consumed,
    KGroupedStream,
    Materialized,
    Produced,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
    aggregations,
)
from penstock.aggregations import Aggregation
from penstock.aggregations.totals import MeanAggregation, Sum
from penstock.errors import StreamsError
from penstock.task import execution
from tests.task.topologies import batch_of, sent, task_of

TEXT = Serdes.string()
JSON = Serdes.json()


def number(text: str) -> int | float | None:
    """Return the number in a text; None for a minus sign."""
    return None if text == "-" else float(text) if "." in text else int(text)


AGGREGATIONS: dict[str, Callable[[], Aggregation[Any, Any]]] = {
    "count": lambda: aggregations.count(number),
    "sum": lambda: aggregations.sum(number),
    "mean": lambda: aggregations.mean(number),
    "min": lambda: aggregations.min(number),
    "max": lambda: aggregations.max(number),
    "first": lambda: aggregations.first(number),
    "last": lambda: aggregations.last(number),
    "collect": lambda: aggregations.collect(number, limit=4),
    "top": lambda: aggregations.top(2),
    "approx_distinct": lambda: aggregations.approx_distinct(number),
    "quantiles": lambda: aggregations.quantiles([0.5, 1], number),
    "combined": lambda: aggregations.combined(
        total=aggregations.sum(number), most=aggregations.max(number), number=aggregations.count()
    ),
}
GROUPS: dict[str, Callable[[KGroupedStream], Any]] = {
    "keys": lambda grouped: grouped,
    "tumbling": lambda grouped: grouped.windowed_by(TimeWindows.of_size_and_grace(10, 5)),
    "hopping": lambda grouped: grouped.windowed_by(TimeWindows.of_size_and_grace(10, 5).advance_by(4)),
    "sliding": lambda grouped: grouped.windowed_by(SlidingWindows.of_time_difference_and_grace(5, 5)),
    "sessions": lambda grouped: grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(5, 5)),
}
VALUES = st.sampled_from(["1", "2", "7", "2.5", "0.1", "100000", "-", None])
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), VALUES, st.integers(0, 40)), max_size=20)
WHOLE = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(-5, 500).map(str), st.integers(0, 40)), min_size=1, max_size=40
)


def topology(aggregation: Aggregation[Any, Any], group: str) -> Topology:
    builder = StreamsBuilder()
    grouped = GROUPS[group](builder.stream("in", Consumed.with_(TEXT, TEXT)).group_by_key())
    table = grouped.aggregate(aggregation, materialized=Materialized.as_("states").with_value_serde(JSON))
    table.to_stream(lambda key, value: str(key)).to("out", Produced.with_(TEXT, JSON))
    return builder.build()


@contextmanager
def columns_from_the_first_row() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "FEWEST_ROWS", 0)
        yield


def outcome(built: Topology, mode: str, rows: list[Any], cache_bytes: int, size: int = 7) -> Any:
    task = task_of(built, execution=mode, cache_bytes=cache_bytes)
    output = []
    for start in range(0, len(rows), size):
        task.add_records("in", 0, batch_of(*rows[start : start + size], first_offset=start))
        task.process()
        output += sent(task)
    task.flush()
    return output + sent(task), task.changes()


@pytest.mark.parametrize("group", GROUPS)
@given(st.sampled_from(list(AGGREGATIONS)), st.one_of(ROWS, WHOLE), st.sampled_from([0, 10_000_000]))
def test_both_executions_give_the_same(group: str, name: str, rows: list[Any], cache_bytes: int) -> None:
    built = topology(AGGREGATIONS[name](), group)
    with columns_from_the_first_row():
        by_column = outcome(built, "auto", rows, cache_bytes)
    assert by_column == outcome(built, "record", rows, cache_bytes)


@pytest.mark.parametrize("group", ["keys", "tumbling", "hopping"])
@pytest.mark.parametrize("kind", [Sum, MeanAggregation])
def test_numbers_are_added_by_column(group: str, kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    columns: list[int] = []
    added_column = kind.added_column

    def counting(self: Any, state: Any, parts: Any) -> Any:
        columns.append(len(parts))
        return added_column(self, state, parts)

    monkeypatch.setattr(kind, "added_column", counting)
    rows = [("a", str(n), 20) for n in range(60)]
    built = topology(kind(of=number), group)
    outcome(built, "auto", rows, 10_000_000, size=60)
    assert set(columns) == {60}
    columns.clear()
    outcome(built, "auto", rows, 0, size=60)  # every update is a result
    assert columns == []


@pytest.mark.parametrize("mode", ["auto", "record"])
@pytest.mark.parametrize("group", ["keys", "tumbling"])
def test_a_function_runs_once_for_each_row_up_to_a_failure(group: str, mode: str) -> None:
    calls: list[str] = []

    def of(value: str) -> int | None:
        calls.append(value)
        return number(value)  # type: ignore[return-value]  # whole numbers only

    built = topology(aggregations.sum(of), group)
    with columns_from_the_first_row():
        task = task_of(built, execution=mode, cache_bytes=10_000_000)
        rows = [(key, value, 1) for key, value in [("a", "1"), ("b", "-"), (None, "5"), ("a", "x"), ("a", "2")]]
        task.add_records("in", 0, batch_of(*rows, first_offset=40))
        with pytest.raises(StreamsError, match="offset=43") as caught:
            task.process()
    assert isinstance(caught.value.__cause__, ValueError)
    assert "return None if text" in "".join(caught.value.__notes__)
    assert calls == ["1", "-", "x"]


@pytest.mark.parametrize("mode", ["auto", "record"])
@pytest.mark.parametrize("group", ["keys", "tumbling"])
def test_a_part_of_the_wrong_type_fails_with_its_row(group: str, mode: str) -> None:
    built = topology(aggregations.sum(lambda value: value if value == "x" else 1), group)
    with columns_from_the_first_row():
        task = task_of(built, execution=mode, cache_bytes=10_000_000)
        task.add_records("in", 0, batch_of(("a", "1", 1), ("a", "x", 1), ("a", "2", 1), first_offset=7))
        with pytest.raises(StreamsError, match="offset=8") as caught:
            task.process()
    assert "Expected an int or a float to add, got str 'x'" in str(caught.value.__cause__)
