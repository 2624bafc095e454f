"""For which reasons records are dropped, column by column and record by record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from penstock import (
    Consumed,
    JoinWindows,
    KStream,
    Materialized,
    Produced,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    TimeWindows,
    log_and_skip_on_invalid_timestamp,
)
from penstock.exception_handlers import LogAndContinueExceptionHandler, LogAndContinueProcessingExceptionHandler
from penstock.metrics.drop_reasons import DropReason
from tests.task.test_error_handling import Drop, Refusing
from tests.task.topologies import STRING, batch_of, task_of

Rows = Sequence[tuple[str | None, str | None, int]]
GOOD: Rows = [(f"k{number}", "v", 100) for number in range(30)]
"""Enough that those behind them run column by column."""
NO_KEY: Rows = [(None, "v", 100)]
NO_VALUE: Rows = [("k", None, 100)]
LATE: Rows = [("k", "v", 5)]

K, V, TOO_LATE = DropReason.NULL_KEY, DropReason.NULL_VALUE, DropReason.LATE


def joined(stream: KStream, builder: StreamsBuilder) -> None:
    windows = JoinWindows.of_time_difference_and_grace(10, 1_000)
    stream.join(builder.stream("other"), lambda one, other: f"{one}{other}", windows).to("out")


def versioned(stream: KStream, builder: StreamsBuilder) -> None:
    store = Stores.persistent_versioned_key_value_store("versions", 1_000)
    table = stream.to_table(materialized=Materialized.as_(store))
    table.join(builder.table("other"), lambda one, other: f"{one}{other}").to_stream().to("out")


CASES: Mapping[str, tuple[Callable[[KStream, StreamsBuilder], object], Rows, Mapping[DropReason, int]]] = {
    "count": (lambda s, b: s.group_by_key().count(), [*NO_KEY, *NO_VALUE, *NO_VALUE], {K: 1, V: 2}),
    "windows": (
        lambda s, b: s.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10)).count(),
        [*NO_KEY, *LATE, *LATE],
        {K: 1, TOO_LATE: 2},
    ),
    "sessions": (
        lambda s, b: s.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5)).count(),
        [*NO_KEY, *LATE],
        {K: 1, TOO_LATE: 1},
    ),
    "sliding windows": (
        lambda s, b: s.group_by_key().windowed_by(SlidingWindows.of_time_difference_with_no_grace(5)).count(),
        [*NO_KEY, *NO_VALUE, *LATE],
        {K: 1, V: 1, TOO_LATE: 1},
    ),
    "join of streams": (joined, [*NO_KEY, *NO_VALUE], {K: 1, V: 1}),
    "join with a table": (
        lambda s, b: s.join(b.table("other"), lambda one, other: one).to("out"),
        [*NO_KEY, *NO_VALUE],
        {K: 1, V: 1},
    ),
    "deduplication": (
        lambda s, b: s.deduplicate_by_key(5).to("out"),
        [*NO_KEY, *NO_VALUE, *NO_VALUE, GOOD[0]],
        {DropReason.DUPLICATE: 2},
    ),
    "table": (lambda s, b: s.to_table().to_stream().to("out"), NO_KEY, {K: 1}),
    "processing": (
        lambda s, b: s.map_values(lambda value: value.upper()).to("out"),
        NO_VALUE,
        {DropReason.PROCESSING: 1},
    ),
    "serialization": (
        lambda s, b: s.to("out", Produced.with_(STRING, Refusing())),
        [("k", "bad", 100)],
        {DropReason.SERIALIZATION: 1},
    ),
    "partitioner": (
        lambda s, b: s.to("out", Produced.with_(STRING, STRING, lambda topic, key, value, n: {0} if key else set())),
        NO_KEY,
        {DropReason.NO_PARTITION: 1},
    ),
}


def dropped(
    program: Callable[[KStream, StreamsBuilder], object], rows: Rows, execution: str, **consumed: Any
) -> Mapping[DropReason, int]:
    builder = StreamsBuilder()
    program(builder.stream("in", Consumed.with_(STRING, consumed.pop("value_serde", STRING), **consumed)), builder)
    handlers = {
        "deserialization.exception.handler": LogAndContinueExceptionHandler,
        "processing.exception.handler": LogAndContinueProcessingExceptionHandler,
        "production.exception.handler": Drop(),
    }
    task = task_of(builder.build(), execution=execution, config=handlers, first_of_several=True)
    task.add_records("in", 0, batch_of(*GOOD, *rows))
    task.process()
    found: dict[DropReason, int] = {}
    for each, records in task.prepare_commit().dropped_records.items():
        found[each.reason] = found.get(each.reason, 0) + records
    return found


@pytest.mark.parametrize("execution", ["auto", "record"])
@pytest.mark.parametrize("case", CASES)
def test_a_dropped_record_is_counted_for_its_reason(case: str, execution: str) -> None:
    program, rows, expected = CASES[case]
    assert dropped(program, rows, execution) == expected


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_what_a_source_drops_is_counted_for_its_reason(execution: str) -> None:
    def program(stream: KStream, builder: StreamsBuilder) -> None:
        stream.to("out")

    assert dropped(program, [("k", "bad", 100)], execution, value_serde=Refusing()) == {DropReason.DESERIALIZATION: 1}
    skips = {"timestamp_extractor": log_and_skip_on_invalid_timestamp}
    assert dropped(program, [("k", "v", -1)], execution, **skips) == {DropReason.INVALID_TIMESTAMP: 1}


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_what_is_late_for_a_versioned_table_or_older_than_its_value_is_counted_for_its_reason(execution: str) -> None:
    rows = [("k", "new", 5_000), ("k", "old", 4_500), ("k", "older", 1)]
    assert dropped(versioned, rows, execution) == {DropReason.OUT_OF_ORDER: 1, DropReason.LATE: 1}
