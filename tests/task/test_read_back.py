"""Operators continue with what the serde of their store reads, also within a batch: it may differ from what they wrote,
as Kafka Streams shows in the cases of tests/oracle with `marked_string`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Headers,
    KGroupedStream,
    KTable,
    Materialized,
    Produced,
    Serde,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
)
from tests.task.topologies import batch_of, sent, task_of

EXECUTIONS = pytest.mark.parametrize("execution", ["auto", "record"])
STRING = Serdes.string()


class MarkingSerde(Serde[str]):
    """A text that gets a mark each time it is read."""

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        return str(value).encode()

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> str:
        return data.decode() + "~"


def _materialized(cached: bool, serde: Serde | None = None) -> Materialized:
    made = Materialized.with_(key_serde=STRING, value_serde=serde or MarkingSerde())
    return made if cached else made.with_caching_disabled()


def _append(key: Any, value: str, aggregate: str) -> str:
    return f"{aggregate}+{value}"


def _reduced(grouped: KGroupedStream, cached: bool) -> KTable:
    return grouped.reduce(lambda one, other: f"{one}+{other}", materialized=_materialized(cached))


def _aggregated(grouped: KGroupedStream, cached: bool) -> KTable:
    return grouped.aggregate(str, _append, materialized=_materialized(cached))


def _windowed(grouped: KGroupedStream, cached: bool) -> KTable:
    windowed = grouped.windowed_by(TimeWindows.of_size_with_no_grace(100))
    return windowed.aggregate(str, _append, materialized=_materialized(cached))


def _sliding(grouped: KGroupedStream, cached: bool) -> KTable:
    windowed = grouped.windowed_by(SlidingWindows.of_time_difference_with_no_grace(5))
    return windowed.aggregate(str, _append, materialized=_materialized(cached))


def _sessions(grouped: KGroupedStream, cached: bool) -> KTable:
    windowed = grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(50))
    return windowed.aggregate(str, _append, _append, materialized=_materialized(cached))


OPERATORS: dict[str, Callable[[KGroupedStream, bool], KTable]] = {
    "reduce": _reduced,
    "aggregate": _aggregated,
    "windows": _windowed,
    "sliding": _sliding,
    "sessions": _sessions,
}


def _results(
    execution: str, make: Callable[[KGroupedStream, bool], KTable], cached: bool, together: bool
) -> list[tuple[str | None, int]]:
    """Return what comes out of one key's records, which come in one batch or in one batch each."""
    builder = StreamsBuilder()
    table = make(builder.stream("in").group_by_key(), cached)
    table.to_stream(lambda key, value: "k").to("out", Produced.with_(key_serde=STRING, value_serde=STRING))
    task = task_of(builder.build(), execution=execution, cache_bytes=1 << 20)
    batch = batch_of(("a", "x", 10), ("a", "y", 12), ("a", "z", 13), ("a", "w", 12))
    for row in range(0, len(batch), len(batch) if together else 1):
        task.add_records("in", 0, batch.slice(row, len(batch) if together else row + 1))
        task.process()
    task.flush()
    return [(value, timestamp) for _, _, value, timestamp in sent(task)]


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("operator", OPERATORS)
def test_aggregations_continue_with_what_the_store_reads(operator: str, cached: bool) -> None:
    make = OPERATORS[operator]
    expected = _results("record", make, cached, together=False)
    assert "~+" in str(expected)
    for execution in ("auto", "record"):
        for together in (True, False):
            assert _results(execution, make, cached, together) == expected, (execution, together)


@EXECUTIONS
def test_a_reduction_shows_how_often_its_store_was_read(execution: str) -> None:
    results = _results(execution, _reduced, cached=False, together=True)
    assert [value for value, _ in results] == ["x", "x~+y", "x~+y~+z", "x~+y~+z~+w"]


@EXECUTIONS
def test_the_old_values_of_a_table_are_those_that_its_store_reads(execution: str) -> None:
    builder = StreamsBuilder()
    table = builder.stream("in").to_table(materialized=_materialized(False))
    table.group_by(lambda key, value: (value, value)).count()
    task = task_of(builder.build(), execution=execution, first_of_several=True)
    task.add_records("in", 0, batch_of(("a", "x", 10), ("a", "y", 12), ("a", "z", 13)))
    task.process()
    assert [key for _, key, _, _ in sent(task)] == ["x", "x~", "y", "y~", "z"]


@EXECUTIONS
def test_a_sum_of_floats_has_the_precision_of_its_store(execution: str) -> None:
    def total(grouped: KGroupedStream, cached: bool) -> KTable:
        summed = grouped.aggregate(
            lambda: 0.1, lambda key, value, before: before + 0.1, materialized=_materialized(cached, Serdes.float())
        )
        return summed.map_values(repr)

    results = _results(execution, total, cached=False, together=True)
    assert results[0][0] == repr(0.2)
    assert results[1][0] != repr(0.1 + 0.1 + 0.1)
    assert results == _results("record", total, cached=False, together=False)
