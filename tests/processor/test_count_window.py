"""Windows of n records: a model in plain Python, in both executions, deleted windows, and another n."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import KStream, Materialized, Serdes, StreamsBuilder, Topology, aggregations
from penstock.processor.count_window import CountWindowFunction, FullWindows, aggregate_of
from penstock.state.memory import MemoryBase
from penstock.task import execution
from penstock.windows import CountWindow
from tests.support.tables import Row
from tests.task.topologies import batch_of, output_of, sent, task_of

EXECUTIONS = pytest.mark.parametrize("execution", ["auto", "record"])
ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from(["x", "yy", "", None]), st.integers(0, 30)),
    max_size=30,
)


@pytest.fixture(scope="module", autouse=True)
def columns_of_any_size() -> Iterator[None]:
    """Few rows run column by column, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "FEWEST_ROWS", 0)
        yield


def size_of(text: str) -> int | None:
    return len(text) or None


def results(stream: KStream, n: int) -> list[KStream]:
    """Return the number of records, the joined texts, the longest text and the mean size of windows of `n` records."""
    windows = stream.group_by_key().count_windows(n)
    texts = Materialized.with_(value_serde=Serdes.json())
    size = aggregations.mean(size_of)
    return [
        windows.count(Materialized.as_("number")),
        windows.aggregate(list, lambda key, value, known: [*known, value], texts),
        windows.reduce(lambda known, value: known + value),
        windows.aggregate(size, materialized=Materialized.as_("size")),
    ]


def topology(n: int) -> Topology:
    """Write the results of all aggregations to `out`, as texts."""
    builder = StreamsBuilder()
    for stream in results(builder.stream("in"), n):
        stream.map_values(repr).to("out")
    return builder.build()


class Running:
    """A task that can commit and continue as another one, also with another n."""

    def __init__(self, n: int, execution: str) -> None:
        self._execution = execution
        self._base = MemoryBase()
        self._offset = 0
        self.results: dict[str | None, list[str | None]] = {}
        self.change(n)

    def change(self, n: int) -> None:
        """Continue with windows of `n` records on the state of the last commit."""
        self._task = task_of(topology(n), base=self._base, execution=self._execution, cache_bytes=1_000_000)

    def take(self, rows: Sequence[Row]) -> None:
        """Process `rows` as one batch, and commit."""
        self._task.add_records("in", 0, batch_of(*rows, first_offset=self._offset))
        self._task.process()
        self._offset += len(rows)
        for _, key, value, _ in sent(self._task):
            self.results.setdefault(key, []).append(value)
        self._task.committed(self._task.prepare_commit().changes, b"1")


def model(rows: Sequence[Row], n: int) -> dict[str, list[list[str]]]:
    """Return the full windows of each key."""
    of_keys: dict[str, list[list[str]]] = {}
    for key, value, _ in rows:
        if key is None or value is None:
            continue
        windows = of_keys.setdefault(key, [[]])
        if len(windows[-1]) == n:
            windows.append([])
        windows[-1].append(value)
    return {key: [window for window in windows if len(window) == n] for key, windows in of_keys.items()}


def expected(windows: list[list[str]]) -> list[str]:
    found: list[Any] = []
    for window in windows:
        sizes = [len(text) for text in window if text]
        mean = [sum(sizes) / len(sizes)] if sizes else []
        found += [len(window), window, "".join(window), *mean]
    return sorted(map(repr, found))


@EXECUTIONS
@given(ROWS, st.integers(1, 4), st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_each_full_window_has_one_result(execution: str, rows: list[Row], n: int, sizes: list[int]) -> None:
    running = Running(n, execution)
    start = part = 0
    while start < len(rows):
        size = sizes[part % len(sizes)]
        running.take(rows[start : start + size])
        running.change(n)  # another task, on the state of the commit
        start, part = start + size, part + 1
    found = {key: sorted(map(str, values)) for key, values in running.results.items()}
    assert found == {key: expected(full) for key, full in model(rows, n).items() if full}


@given(ROWS, st.integers(1, 4))
def test_both_executions_leave_the_same_output_and_stores(rows: list[Row], n: int) -> None:
    tasks = [task_of(topology(n), execution=name) for name in ("auto", "record")]
    for each in tasks:
        each.add_records("in", 0, batch_of(*rows))
        each.process()
    by_column, by_record = tasks
    assert sent(by_column) == sent(by_record)
    assert by_column.prepare_commit().changes == by_record.prepare_commit().changes


def test_the_result_has_the_largest_timestamp_of_the_key() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count_windows(2).reduce(lambda one, other: one + other).to("out")
    rows = [("a", "x", 9), ("b", "x", 1), ("a", "y", 5), ("b", "y", 2)]
    assert output_of(builder.build(), rows) == [("a", "xy", 9), ("b", "xy", 2)]


@EXECUTIONS
def test_a_smaller_n_closes_open_windows_with_their_next_record(execution: str) -> None:
    running = Running(4, execution)
    running.take([("a", "1", 0), ("a", "2", 1), ("a", "3", 2), ("b", "1", 3)])
    running.change(2)
    running.take([("a", "4", 4), ("a", "5", 5), ("b", "2", 6)])
    assert running.results == {
        "a": ["4", "['1', '2', '3', '4']", "'1234'", "1.0"],
        "b": ["2", "['1', '2']", "'12'", "1.0"],
    }


@EXECUTIONS
def test_a_larger_n_keeps_open_windows_open(execution: str) -> None:
    running = Running(2, execution)
    running.take([("a", "1", 0), ("b", "1", 1), ("b", "2", 2)])
    running.results.clear()
    running.change(3)
    running.take([("a", "2", 3), ("b", "3", 4), ("a", "3", 5), ("b", "4", 6)])
    assert running.results == {"a": ["3", "['1', '2', '3']", "'123'", "1.0"]}  # the full window of b is complete


def test_none_deletes_the_window_and_the_next_record_begins_another_one() -> None:
    adder = CountWindowFunction(2, list, lambda key, value, known: None if value == "end" else [*known, value])
    first = adder("k", "a", adder.initial())
    assert first == CountWindow(1, False, ["a"])
    assert adder("k", "end", first) is None


def test_only_full_windows_with_a_result_have_one() -> None:
    full = FullWindows(aggregate_of)
    assert [full(None), full(CountWindow(1, False, 5)), full(CountWindow(2, True, None))] == [(), (), ()]
    assert full(CountWindow(2, True, 0)) == (0,)


def test_a_function_that_never_returns_a_value_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def forgets(key: str, value: str, known: list[str]) -> Any:
        known.append(value)

    builder = StreamsBuilder()
    texts = Materialized.with_(value_serde=Serdes.json())
    builder.stream("in").group_by_key().count_windows(2).aggregate(list, forgets, texts).to("out")
    output_of(builder.build(), [("a", "x", 0), ("a", "y", 1)])
    assert "The aggregator forgets" in caplog.text
