"""The stateless operators: results that are refused, and the rows of origin of their columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock import KeyValue, Record
from penstock.processor.api import BatchProcessor
from penstock.processor.stateless import (
    NullKeyFilter,
    StreamBranch,
    StreamFilter,
    StreamFlatMap,
    StreamFlatMapValues,
    StreamForeach,
    StreamMap,
    StreamMapValues,
    StreamPeek,
    StreamSelectKey,
    as_pair,
)
from penstock.record import RecordBatch
from penstock.testing import MockProcessorContext
from tests.task.topologies import counting, nodes_of

BATCH = RecordBatch.of([("a", 1, 10, 0, ()), (None, 2, 11, 1, (("h", b""),)), ("c", 3, 12, 2, ())])
ROW_A, ROW_C = ("a", 1, 10), ("c", 3, 12)
BY_ZERO = "ZeroDivisionError"


def rows_of(processor: BatchProcessor) -> tuple[list[tuple[Any, Any, int]], Any, list[tuple[int, str]]]:
    """Return the rows for BATCH, their rows of origin, and the failures."""
    failures: list[tuple[int, str]] = []
    nodes = nodes_of(counting())
    processor.init(nodes.task.node_context(nodes.topology.processors[0]))
    result, origin = processor.process_batch(BATCH, lambda row, error: failures.append((row, type(error).__name__)))
    rows = list(zip(result.keys, result.values, result.timestamps.tolist(), strict=True))
    return rows, None if origin is None else origin.tolist(), failures


def until_two(value: int) -> Iterator[int]:
    yield value
    if value == 2:
        raise LookupError
    yield value


@pytest.mark.parametrize(
    ("processor", "rows", "origin", "failures"),
    [
        (StreamFilter(lambda k, v: v > 0), [ROW_A, (None, 2, 11), ROW_C], None, []),
        (StreamFilter(lambda k, v: v == 2, negate=True), [ROW_A, ROW_C], [0, 2], []),
        (StreamFilter(lambda k, v: 1 / (v - 1) > 0.5), [(None, 2, 11)], [1], [(0, BY_ZERO)]),
        (NullKeyFilter(), [ROW_A, ROW_C], [0, 2], []),
        (StreamSelectKey(lambda k, v: k + "!"), [("a!", 1, 10), ("c!", 3, 12)], [0, 2], [(1, "TypeError")]),
        (StreamMapValues(lambda v: 6 // (v - 2), False), [("a", -6, 10), ("c", 6, 12)], [0, 2], [(1, BY_ZERO)]),
        (StreamMap(lambda k, v: None if v == 1 else (v, k)), [(2, None, 11), (3, "c", 12)], [1, 2], [(0, "TypeError")]),
        (StreamMap(lambda k, v: "ab" if v == 1 else [v, k]), [(2, None, 11), (3, "c", 12)], [1, 2], [(0, "TypeError")]),
        (StreamFlatMap(lambda k, v: {v: k}.items() if v < 3 else []), [(1, "a", 10), (2, None, 11)], [0, 1], []),
        (StreamFlatMapValues(until_two, False), [ROW_A, ROW_A, ROW_C, ROW_C], [0, 0, 2, 2], [(1, "LookupError")]),
        (StreamFlatMapValues(lambda v: [v] * (v - 1), False), [(None, 2, 11), ROW_C, ROW_C], [1, 2, 2], []),
        (StreamPeek(lambda k, v: k + ""), [ROW_A, ROW_C], [0, 2], [(1, "TypeError")]),
        (StreamForeach(lambda k, v: k + ""), [], [], [(1, "TypeError")]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BatchProcessor) else "",
)  # fmt: skip
def test_columns_name_the_row_of_origin_of_each_result(
    processor: BatchProcessor, rows: list[Any], origin: Any, failures: list[Any]
) -> None:
    assert rows_of(processor) == (rows, origin, failures)


def test_repeated_rows_keep_offset_and_headers_of_their_record() -> None:
    result, _ = StreamFlatMapValues(lambda v: [v, v], False).process_batch(BATCH, lambda row, error: None)
    assert result.offsets.tolist() == [0, 0, 1, 1, 2, 2]
    assert [result.headers_at(row) for row in range(6)] == [(), (), (("h", b""),), (("h", b""),), (), ()]


def test_a_branch_gets_the_records_of_the_first_predicate_that_matches() -> None:
    branch = StreamBranch([lambda k, v: v == 2, lambda k, v: v > 1], ["two", "more"])
    context = MockProcessorContext()
    branch.init(context)
    for value in (1, 2, 3):
        branch.process(Record("k", value, 0))
    assert [(each.child_name, each.record.value) for each in context.forwarded()] == [("two", 2), ("more", 3)]
    _, origin, rows = branch.branch_batch(BATCH, lambda row, error: None)
    assert origin is None
    assert {child: each.tolist() for child, each in rows.items()} == {"two": [1], "more": [2]}


@pytest.mark.parametrize("pair", [("k", "v"), ["k", "v"], KeyValue("k", "v"), iter(["k", "v"])])
def test_a_pair_has_two_parts(pair: Any) -> None:
    assert as_pair(pair) == ("k", "v")


@pytest.mark.parametrize("pair", ["ab", b"ab", {"a": 1, "b": 2}, {1, 2}, (1, 2, 3), ("a",), 5, None])
def test_what_only_looks_like_a_pair_is_refused(pair: Any) -> None:
    with pytest.raises(TypeError, match=r"^The mapper returned .* where a pair \(key, value\) was expected\.$"):
        as_pair(pair)


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (StreamMap(lambda k, v: None), "The provided KeyValueMapper returned null which is not allowed."),
        (StreamFlatMap(lambda k, v: None), "The provided KeyValueMapper returned null which is not allowed."),
        (
            StreamFlatMapValues(lambda v: None, False),
            "The provided ValueMapper returned null, expected an iterable of values.",
        ),
        (StreamFlatMapValues(lambda v: "text", False), "The mapper returned the text 'text' where an iterable"),
    ],
)
def test_a_result_that_makes_no_record_is_refused(processor: BatchProcessor, message: str) -> None:
    processor.init(MockProcessorContext())
    with pytest.raises(TypeError) as caught:
        processor.process(Record("k", "v", 0))
    assert str(caught.value).startswith(message)
    errors: list[str] = []
    processor.process_batch(BATCH, lambda row, error: errors.append(str(error)))
    assert [error.startswith(message) for error in errors] == [True] * 3
