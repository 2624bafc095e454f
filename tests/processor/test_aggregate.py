"""Aggregations by key against a model of one dictionary, by records and by columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import KGroupedStream, KTable, Materialized, Stores, StreamsBuilder
from penstock.exception_handlers import LogAndContinueProcessingExceptionHandler
from penstock.plan.topology import Topology
from tests.support.tables import Row
from tests.task.topologies import STRING, batch_of, output_of, sent, task_of

ROWS = st.lists(
    st.tuples(st.none() | st.sampled_from("ab"), st.none() | st.sampled_from("xy!"), st.integers(0, 50)), max_size=30
)
TEXTS = Materialized.with_(STRING, STRING)


def aggregated(make: Callable[[KGroupedStream], KTable]) -> Topology:
    builder = StreamsBuilder()
    make(builder.stream("in").group_by_key()).to_stream().map_values(lambda v: None if v is None else str(v)).to("out")
    return builder.build()


def added(aggregate: str, value: str) -> str | None:
    return None if value == "!" else aggregate + value


def aggregate(grouped: KGroupedStream) -> KTable:
    return grouped.aggregate(lambda: "=", lambda key, value, total: added(total, value), TEXTS)


def expected_updates(rows: list[Row]) -> list[Row]:
    table: dict[str, tuple[str, int]] = {}
    updates: list[Row] = []
    for key, value, time in rows:
        if key is not None and value is not None:
            old, latest = table.pop(key, ("=", time))
            new, latest = added(old, value), max(latest, time)
            updates.append((key, new, latest))
            if new is not None:
                table[key] = new, latest
    return updates


@given(ROWS, st.sampled_from(["auto", "record"]))
@settings(max_examples=30)
def test_each_record_updates_its_key_and_a_deleted_key_starts_over(rows: list[Row], execution: str) -> None:
    assert output_of(aggregated(aggregate), rows, execution=execution) == expected_updates(rows)


@given(ROWS, st.sampled_from(["auto", "record"]))
@settings(max_examples=30)
def test_a_flush_of_the_cache_forwards_the_last_update_of_each_key(rows: list[Row], execution: str) -> None:
    output = output_of(aggregated(aggregate), rows, execution=execution, cache_bytes=1_000_000)
    last = {key: (value, time) for key, value, time in expected_updates(rows)}
    assert len({key for key, *_ in output}) == len(output)
    assert {key: (value, time) for key, value, time in output if value is not None} == {
        key: (value, time) for key, (value, time) in last.items() if value is not None
    }


@pytest.mark.parametrize("cache_bytes", [0, 1_000_000])
@pytest.mark.parametrize("execution", ["auto", "record"])
def test_the_last_count_has_the_largest_timestamp_of_the_records(execution: str, cache_bytes: int) -> None:
    rows: list[Row] = [("a", "x", 5), ("b", "x", 9), ("a", "x", 2), (None, "x", 50), ("a", None, 60), ("b", "x", 7)]
    topology = aggregated(lambda grouped: grouped.count())
    output = output_of(topology, rows, execution=execution, cache_bytes=cache_bytes)
    assert output[-2:] == [("a", "2", 5), ("b", "2", 9)]


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_a_count_continues_with_the_next_batch(execution: str) -> None:
    task = task_of(aggregated(lambda grouped: grouped.count()), execution=execution, cache_bytes=1_000_000)
    for offset, rows in ((0, [("a", "x", 9)]), (1, [("a", "x", 5), ("a", "x", 6), ("b", "x", 7)])):
        task.add_records("in", 0, batch_of(*rows, first_offset=offset))
        task.process()
        task.flush()
    assert sent(task) == [("out", "a", "1", 9), ("out", "a", "3", 9), ("out", "b", "1", 7)]


def test_the_reducer_of_a_single_value_does_not_run() -> None:
    topology = aggregated(lambda grouped: grouped.reduce(lambda one, other: pytest.fail("one value")))
    assert output_of(topology, [("a", "x", 5), ("b", "y", 6)]) == [("a", "x", 5), ("b", "y", 6)]


@pytest.mark.parametrize("cache_bytes", [0, 1_000_000])
def test_a_row_whose_aggregator_fails_changes_nothing(cache_bytes: int) -> None:
    def counted(key: str, value: str, total: str) -> str:
        return total + str(int(value))

    topology = aggregated(lambda grouped: grouped.aggregate(str, counted, TEXTS))
    rows: list[Row] = [("a", "1", 1), (None, "5", 2), ("a", "x", 3), ("a", "2", 4)]
    config: dict[str, Any] = {"processing.exception.handler": LogAndContinueProcessingExceptionHandler}
    assert output_of(topology, rows, cache_bytes=cache_bytes, config=config)[-1] == ("a", "12", 4)


@given(ROWS.map(lambda rows: [row for row in rows if row[1] != "!"]))  # a delete is itself a version
@settings(max_examples=20)
def test_a_versioned_store_gives_the_same_updates(rows: list[Row]) -> None:
    def versioned(grouped: KGroupedStream) -> KTable:
        store = Materialized.as_(Stores.persistent_versioned_key_value_store("v", 1000))
        return grouped.aggregate(
            lambda: "=", lambda key, value, total: added(total, value), store.with_value_serde(STRING)
        )

    assert output_of(aggregated(versioned), rows) == expected_updates(rows)
