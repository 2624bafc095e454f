"""User functions on columns: each row runs once, and a failure concerns its own row only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.processor.columns import apply, composed, has_null, kept_rows, write_contexts
from penstock.processor.row_partitions import RowPartitions
from penstock.record import Int64Array, RecordBatch, TopicPartition
from penstock.state.api import RecordContext

Failures = list[tuple[int, str]]


def outcome(value: str) -> str | None:
    if value == "stop":
        raise StopIteration
    return {"none": None}.get(value, value.upper()) if value != "fail" else str(int(value))


@given(st.lists(st.sampled_from(["x", "fail", "stop", "none"])), st.booleans())
def test_failed_rows_are_left_out_and_no_row_runs_twice(values: list[str], null_is_an_error: bool) -> None:
    calls: list[str] = []
    failures: Failures = []

    def function(key: int, value: str) -> str | None:
        calls.append(value)
        return outcome(value)

    applied = apply(
        function,
        (range(len(values)), values),
        lambda row, error: failures.append((row, str(error))),
        "no null" if null_is_an_error else None,
    )
    texts = {
        "fail": "invalid literal for int() with base 10: 'fail'",
        "stop": "The function raised StopIteration.",
        **({"none": "no null"} if null_is_an_error else {}),
    }
    kept = [row for row, value in enumerate(values) if value not in texts]
    assert calls == values
    assert failures == [(row, texts[value]) for row, value in enumerate(values) if value in texts]
    assert applied.results == [None if values[row] == "none" else "X" for row in kept]
    assert (range(len(values)) if applied.kept is None else applied.kept.tolist()) == (
        range(len(values)) if len(kept) == len(values) else kept
    )


def test_an_error_that_the_handler_raises_ends_the_batch() -> None:
    calls: list[str] = []

    def refuse(row: int, error: Exception) -> None:
        raise RuntimeError(f"row {row}") from error

    with pytest.raises(RuntimeError, match=r"^row 1$"):
        apply(lambda value: calls.append(value) or outcome(value), (["x", "fail", "x"],), refuse)
    assert calls == ["x", "fail"]


@given(st.data())
def test_rows_of_rows_are_rows_of_the_first_batch(data: st.DataObject) -> None:
    def chosen(count: int) -> Int64Array | None:
        rows = st.lists(st.integers(0, count - 1), unique=True, max_size=count) if count else st.just([])
        drawn = data.draw(st.none() | rows.map(sorted))
        return None if drawn is None else np.array(drawn, np.int64)

    outer = chosen(6)
    inner = chosen(6 if outer is None else len(outer))
    both = composed(outer, inner)
    batch = RecordBatch.of([(row, row, row, row, ()) for row in range(6)])
    assert kept_rows(batch, both).keys == kept_rows(kept_rows(batch, outer), inner).keys
    assert (both is None) == (outer is None and inner is None)


def test_a_null_is_found_by_its_type() -> None:
    class Strange:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = None  # type: ignore[assignment]  # like a data frame

    column: list[Any] = [Strange(), np.zeros(2), 0, ""]
    assert not has_null(column)
    assert has_null([*column, None])
    assert not has_null([])


@pytest.mark.parametrize("headers", [(), (("h", b"1"),)])
def test_a_write_has_the_context_of_its_row(headers: Any) -> None:
    batch, rows = RecordBatch.of([("a", "x", 5, 10, ()), ("b", "y", 6, 11, headers)]), np.array([1, 0])
    assert write_contexts(RowPartitions.of([TopicPartition("in", 3)] * 2), batch, rows) == [
        RecordContext(6, headers, "in", 3, 11),
        RecordContext(5, (), "in", 3, 10),
    ]
    several = RowPartitions.of([TopicPartition("in", 3), TopicPartition("other", 1)])
    assert write_contexts(several, batch, rows) == [
        RecordContext(6, headers, "other", 1, 11),
        RecordContext(5, (), "in", 3, 10),
    ]
