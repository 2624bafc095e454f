"""A trace goes on through state: with stores that keep headers, the header `traceparent` of the record that caused an
update leaves with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    BufferConfig,
    EmitStrategy,
    Grouped,
    JoinWindows,
    KStream,
    Produced,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from penstock.testing import TopologyTestDriver
from tests.support.telemetry import Telemetry, linked, name_of, produced, trace_of

STRING = Serdes.string()
CONFIG = {
    "application.id": "app",
    "default.key.serde": STRING,
    "default.value.serde": STRING,
    "dsl.store.format": "headers",
    "penstock.otel.enabled": True,
}
UNBOUNDED = BufferConfig.unbounded()
SECOND = 1_000
TUMBLING = TimeWindows.of_size_with_no_grace(SECOND)
SLIDING = SlidingWindows.of_time_difference_with_no_grace(SECOND)
SESSION = SessionWindows.of_inactivity_gap_with_no_grace(SECOND)
LIMIT: Suppressed = Suppressed.until_time_limit(5, UNBOUNDED)
CLOSED: Suppressed = Suppressed.until_window_closes(UNBOUNDED)

Operators = Callable[[StreamsBuilder], KStream[Any, Any]]


def grouped(builder: StreamsBuilder) -> Any:
    return builder.stream("in").group_by_key(Grouped.with_(STRING, STRING))


AGGREGATIONS: dict[str, Operators] = {
    "count": lambda b: grouped(b).count().to_stream(),
    "count by another key": lambda b: b.stream("in").group_by(lambda key, value: "all").count().to_stream(),
    "count of a table": lambda b: b.table("in").group_by(lambda key, value: ("all", value)).count().to_stream(),
    "reduce": lambda b: grouped(b).reduce(lambda old, new: old + new).to_stream(),
    "cogroup": lambda b: (
        grouped(b).cogroup(lambda key, value, before: before + value).aggregate(lambda: "").to_stream()
    ),
    "tumbling": lambda b: grouped(b).windowed_by(TUMBLING).count().to_stream(),
    "sliding": lambda b: grouped(b).windowed_by(SLIDING).count().to_stream(),
}

JOINS: dict[str, Operators] = {
    "stream and table": lambda b: b.stream("in").join(b.table("other"), lambda one, two: one + two),
    "stream and stream": lambda b: b.stream("in").join(
        b.stream("other"), lambda one, two: one + two, JoinWindows.of_time_difference_with_no_grace(SECOND)
    ),
    "table and table": lambda b: b.table("in").join(b.table("other"), lambda one, two: one + two).to_stream(),
    "by a foreign key": lambda b: (
        b.table("in")
        .join(b.table("other"), lambda one, two: one + two, foreign_key_extractor=lambda value: "k")
        .to_stream()
    ),
}

SUPPRESSED: dict[str, Operators] = {
    "time limit": lambda b: b.table("in").suppress(LIMIT).to_stream(),
    "count": lambda b: grouped(b).count().suppress(LIMIT).to_stream(),
    "tumbling": lambda b: grouped(b).windowed_by(TUMBLING).count().suppress(CLOSED).to_stream(),
}


def driver_of(operators: Operators, execution: str = "auto", cache_bytes: int = 0, **config: Any) -> TopologyTestDriver:
    builder = StreamsBuilder()
    stream = operators(builder).map(lambda key, value: ("k", str(value)))
    stream.to("out", Produced.with_(STRING, STRING))
    settings = {"penstock.execution": execution, "statestore.cache.max.bytes": cache_bytes, **config}
    return TopologyTestDriver(builder.build(), {**CONFIG, **settings})


def pipe(driver: TopologyTestDriver, topic: str, value: str, timestamp: int, key: str = "k") -> str:
    """Write a record of its own trace, and return the id of that."""
    producer, headers = produced()
    driver.create_input_topic(topic, STRING, STRING).pipe_input(key, value, timestamp, headers)
    return name_of(producer)[0]


def traces(driver: TopologyTestDriver) -> list[str | None]:
    """Return the trace of each record that was written since the last time."""
    return [
        trace_of(record.headers) for record in driver.create_output_topic("out", STRING, STRING).read_records_to_list()
    ]


@pytest.mark.parametrize("cache_bytes", [0, 1_000_000])
@pytest.mark.parametrize("execution", ["auto", "record"])
@pytest.mark.parametrize("operators", AGGREGATIONS.values(), ids=AGGREGATIONS)
def test_an_update_of_an_aggregate_has_the_trace_of_its_record(
    telemetry: Telemetry, operators: Operators, execution: str, cache_bytes: int
) -> None:
    with driver_of(operators, execution, cache_bytes) as driver:
        for timestamp in (10, 20, 15):
            trace = pipe(driver, "in", "v", timestamp)
            assert set(traces(driver)) == {trace}


@pytest.mark.parametrize("execution", ["auto", "record"])
@pytest.mark.parametrize("operators", JOINS.values(), ids=JOINS)
def test_a_join_has_the_trace_of_the_record_that_came_last(
    telemetry: Telemetry, operators: Operators, execution: str
) -> None:
    with driver_of(operators, execution) as driver:
        pipe(driver, "other", "b", 10)
        assert traces(driver) == []
        trace = pipe(driver, "in", "a", 20)
        assert traces(driver) == [trace]


@pytest.mark.parametrize("operators", [JOINS["stream and stream"], JOINS["table and table"], JOINS["by a foreign key"]])
def test_a_join_from_the_right_has_the_trace_of_that_record(telemetry: Telemetry, operators: Operators) -> None:
    with driver_of(operators) as driver:
        pipe(driver, "in", "a", 10)
        trace = pipe(driver, "other", "b", 20)
        assert traces(driver) == [trace]


@pytest.mark.parametrize("cache_bytes", [0, 1_000_000])
@pytest.mark.parametrize("execution", ["auto", "record"])
@pytest.mark.parametrize("operators", SUPPRESSED.values(), ids=SUPPRESSED)
def test_what_was_suppressed_has_the_trace_of_its_last_update(
    telemetry: Telemetry, operators: Operators, execution: str, cache_bytes: int
) -> None:
    with driver_of(operators, execution, cache_bytes) as driver:
        pipe(driver, "in", "a", 10)
        trace = pipe(driver, "in", "b", 11)
        assert traces(driver) == []
        pipe(driver, "in", "c", 100_000, key="later")
        assert traces(driver) == [trace]


def test_a_final_result_has_the_trace_of_the_record_that_closed_the_window(telemetry: Telemetry) -> None:
    def operators(builder: StreamsBuilder) -> KStream[Any, Any]:
        windowed = grouped(builder).windowed_by(TUMBLING)
        table = windowed.emit_strategy(EmitStrategy.on_window_close()).count()
        return table.to_stream()

    with driver_of(operators) as driver:
        pipe(driver, "in", "a", 10)
        driver.advance_wall_clock_time(2 * SECOND)
        trace = pipe(driver, "in", "b", 1_001)
        assert traces(driver) == [trace]


@pytest.mark.parametrize(
    ("store_format", "cache_bytes", "goes_on"),
    [("default", 0, False), ("default", 1_000_000, True), ("headers", 0, False), ("headers", 1_000_000, False)],
)
def test_updates_of_sessions_have_headers_where_kafka_forwards_them(
    telemetry: Telemetry, store_format: str, cache_bytes: int, goes_on: bool
) -> None:
    def operators(builder: StreamsBuilder) -> KStream[Any, Any]:
        return grouped(builder).windowed_by(SESSION).count().to_stream()

    with driver_of(operators, cache_bytes=cache_bytes, **{"dsl.store.format": store_format}) as driver:
        trace = pipe(driver, "in", "a", 10)
        assert traces(driver) == [trace if goes_on else None]


def test_a_trace_goes_from_input_to_output_through_count_join_and_suppress(telemetry: Telemetry) -> None:
    def operators(builder: StreamsBuilder) -> KStream[Any, Any]:
        customers = builder.table("customers")
        counts = grouped(builder).count()
        named = counts.join(customers, lambda count, name: f"{name}: {count}")
        return named.suppress(LIMIT).to_stream()

    with driver_of(operators) as driver:
        pipe(driver, "customers", "Ann", 0)
        producer, headers = produced()
        orders = driver.create_input_topic("in", STRING, STRING)
        orders.pipe_input("k", "order", 10, headers)
        pipe(driver, "customers", "Bob", 100, key="other")
        pipe(driver, "in", "order", 100, key="other")
        (record,) = driver.create_output_topic("out", STRING, STRING).read_records_to_list()
    assert record.value == "Ann: 1"
    assert record.headers == headers
    assert trace_of(record.headers) == name_of(producer)[0]
    (span,) = [span for span in telemetry.batches() if name_of(producer) in linked(span)]
    assert span.name == "process in"
