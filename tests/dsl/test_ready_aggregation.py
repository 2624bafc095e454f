"""Ready aggregations of grouped streams and tables: results, serdes, names and mistakes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock import (
    Consumed,
    EmitStrategy,
    Grouped,
    Materialized,
    Produced,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    aggregations,
)
from penstock.serdes import DoubleSerde, ListSerde, LongSerde
from penstock.testing import TopologyTestDriver

TEXT, LONG, DOUBLE = Serdes.string(), Serdes.long(), Serdes.double()
NUMBERS = Consumed.with_(TEXT, LONG)


def results(builder: StreamsBuilder, rows: list[tuple[str, int | None, int]], value_serde: Any) -> list[Any]:
    """Return the values of topic `out` after rows of key, value and timestamp in topic `in`."""
    with TopologyTestDriver(builder.build(), {"statestore.cache.max.bytes": 0}) as driver:
        source = driver.create_input_topic("in", TEXT, LONG)
        for key, value, timestamp in rows:
            source.pipe_input(key, value, timestamp)
        return driver.create_output_topic("out", TEXT, value_serde).read_values_to_list()


def test_a_table_has_results_with_their_serde_and_a_named_store_has_states() -> None:
    builder = StreamsBuilder()
    mean = aggregations.mean()
    grouped = builder.stream("in", NUMBERS).group_by_key()
    grouped.aggregate(mean, materialized=Materialized.as_("means")).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, LONG).pipe_key_value_list([("a", 1), ("a", 2)])
        assert driver.create_output_topic("out", TEXT, DOUBLE).read_values_to_list() == [1.0, 1.5]
        assert mean.result(driver.get_key_value_store("means").get("a")) == 1.5


def test_a_state_that_is_its_result_has_the_serde_of_the_option() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", NUMBERS).group_by_key()
    grouped.aggregate(aggregations.max(), materialized=Materialized.as_("max"))
    grouped.aggregate(aggregations.max(float), materialized=Materialized.as_("float").with_value_serde(DOUBLE))
    grouped.aggregate(aggregations.top(2), materialized=Materialized.as_("top"))
    stores = builder.build().build("app").subtopologies[0].stores
    assert [type(stores[name].value_serde) for name in ("max", "float", "top")] == [LongSerde, DoubleSerde, ListSerde]


def test_the_serde_of_an_option_is_that_of_results() -> None:
    builder = StreamsBuilder()
    total = builder.stream("in", NUMBERS).group_by_key().aggregate(
        aggregations.sum(float), materialized=Materialized.with_(TEXT, DOUBLE)
    )  # fmt: skip
    total.to_stream().to("out")
    assert results(builder, [("a", 1, 0), ("a", 2, 0)], DOUBLE) == [1.0, 3.0]


def test_merged_sessions_have_the_values_of_both() -> None:
    builder = StreamsBuilder()
    sessions = builder.stream("in", NUMBERS).group_by_key().windowed_by(
        SessionWindows.of_inactivity_gap_and_grace(10, 100)
    )  # fmt: skip
    kept = sessions.aggregate(aggregations.combined(all=aggregations.collect(), mean=aggregations.mean()))
    stream = kept.to_stream(lambda windowed, value: str(windowed)).filter(lambda key, value: value is not None)
    stream.to("out", Produced.with_(TEXT, Serdes.json()))
    found = results(builder, [("a", 1, 0), ("a", 5, 15), ("a", 3, 8)], Serdes.json())
    assert found == [{"all": [1], "mean": 1.0}, {"all": [5], "mean": 5.0}, {"all": [1, 5, 3], "mean": 3.0}]


def test_a_window_can_emit_its_result_when_it_closes() -> None:
    builder = StreamsBuilder()
    windows = builder.stream("in", NUMBERS).group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    medians = windows.emit_strategy(EmitStrategy.on_window_close()).aggregate(aggregations.quantiles([0.5]))
    medians.to_stream(lambda windowed, value: windowed.key).to("out", Produced.with_(TEXT))
    with TopologyTestDriver(builder.build(), {"penstock.emit.interval.ms": 0}) as driver:
        source = driver.create_input_topic("in", TEXT, LONG)
        for value, timestamp in [(1, 0), (9, 3), (4, 5), (100, 20)]:
            source.pipe_input("a", value, timestamp)
        assert driver.create_output_topic("out", TEXT, Serdes.list(DOUBLE)).read_values_to_list() == [[4.0]]


def test_an_entry_of_a_table_replaces_its_old_value() -> None:
    builder = StreamsBuilder()
    grouped = builder.table("in", NUMBERS).group_by(lambda key, value: ("all", value), Grouped.with_(TEXT, LONG))
    both = aggregations.combined(total=aggregations.sum(), number=aggregations.count(), mean=aggregations.mean())
    grouped.aggregate(both).to_stream().to("out")
    found = results(builder, [("a", 4, 0), ("b", 1, 1), ("a", 2, 2), ("b", None, 3), ("a", None, 4)], Serdes.json())
    assert [(each["total"], each["number"], each["mean"]) for each in found] == [
        (4, 1, 4.0), (5, 2, 2.5), (3, 2, 1.5), (2, 1, 2.0), (0, 0, None),
    ]  # fmt: skip


def test_the_results_can_be_joined_and_their_node_is_named_after_the_aggregation() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", NUMBERS)
    means = stream.group_by_key().aggregate(aggregations.mean(), named="average")
    stream.join(means, lambda value, mean: value - mean).to("out", Produced.with_(TEXT, DOUBLE))
    described = str(builder.build().describe())
    assert "average (stores:" in described
    assert "average-result (stores: [])" in described
    assert results(builder, [("a", 1, 0), ("a", 2, 1)], DOUBLE) == [0.0, 0.5]


def test_an_aggregation_without_a_subtractor_is_refused_for_a_table() -> None:
    grouped = StreamsBuilder().table("in", NUMBERS).group_by(lambda key, value: (key, value))
    with pytest.raises(TypeError, match=r"^max\(\) cannot subtract the old value of a changed entry"):
        grouped.aggregate(aggregations.max())


def test_functions_next_to_an_aggregation_are_refused() -> None:
    grouped = StreamsBuilder().stream("in", NUMBERS).group_by_key()
    wrong: Any = Materialized.as_("x")
    with pytest.raises(TypeError, match=r"Name the options of aggregate\(mean\(\)\): write materialized=Materialized"):
        grouped.aggregate(aggregations.mean(), wrong)
    for each in (grouped, grouped.windowed_by(TimeWindows.of_size_with_no_grace(5))):
        function: Any = max
        with pytest.raises(TypeError, match=r"^mean\(\) has its own functions: leave out <built-in function max>"):
            each.aggregate(aggregations.mean(), function)
    with pytest.raises(TypeError, match="Expected a function aggregator"):
        grouped.aggregate(int)  # type: ignore[call-overload]  # the mistake


@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("sum", "aggregations.sum()"),
        ("count", "aggregations.count()"),
        ("collect", "aggregations.collect()"),
        ("top", "aggregations.top(n)"),
        ("quantiles", "aggregations.quantiles(at)"),
        ("combined", "aggregations.combined(name=aggregations.count())"),
    ],
)
def test_a_function_that_was_not_called_is_refused_with_the_users_line(function: str, call: str) -> None:
    builder = StreamsBuilder()
    uncalled: Any = vars(aggregations)[function]
    grouped = builder.stream("in", NUMBERS).group_by_key()
    table = builder.table("table", NUMBERS).group_by(lambda key, value: (key, value))
    windows = grouped.windowed_by(TimeWindows.of_size_with_no_grace(5))
    sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5))
    expected = rf"aggregate\(\) \(.*test_ready_aggregation\.py:\d+\) .* call it, aggregate\({re.escape(call)}\)\."
    each: Any
    for each in (grouped, table, windows, sessions):
        with pytest.raises(TypeError, match=expected):
            each.aggregate(uncalled)
