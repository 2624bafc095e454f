"""late_to: the sinks of dropped records in a topology, and the operators that have none."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Consumed,
    CountWindowedKStream,
    Grouped,
    JoinWindows,
    KStream,
    Produced,
    Serdes,
    StreamsBuilder,
    TimeWindows,
    Topology,
    aggregations,
)
from penstock.errors import StreamsError, TopologyError
from penstock.plan.subtopology import DroppedSinkSpec
from penstock.testing import TopologyTestDriver

STRING, LONG = Serdes.string(), Serdes.long()
TEXT = Consumed.with_(STRING, STRING)
WINDOWS = TimeWindows.of_size_with_no_grace(10)


def sinks_of(topology: Topology) -> list[DroppedSinkSpec]:
    parts = topology.build("test").subtopologies
    return [node for part in parts for node in part.nodes if isinstance(node, DroppedSinkSpec)]


def test_the_description_shows_the_sink_below_its_operator() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in", TEXT).group_by_key().windowed_by(WINDOWS).count(named="counts")
    assert counts.late_to("late", Produced.as_("late-sink")) is counts
    described = str(builder.build().describe())
    assert "Processor: counts (stores: [KSTREAM-AGGREGATE-STATE-STORE-0000000001])\n      --> late-sink" in described
    assert "Sink: late-sink (topic: late)\n      <-- counts" in described


def test_each_input_of_an_operator_has_a_sink_with_the_serdes_of_its_records() -> None:
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", Consumed.with_(STRING, LONG))
    joined = builder.stream("texts", TEXT).join(
        numbers, lambda text, number: text, JoinWindows.of_time_difference_with_no_grace(10)
    )
    joined.late_to("late", Produced.as_("late"))
    this, other = sinks_of(builder.build())
    assert (this.name, this.key_serde, this.value_serde) == ("late", STRING, STRING)
    assert (other.name, other.key_serde, other.value_serde) == ("late-other", STRING, LONG)
    assert this.parents == ("KSTREAM-WINDOWED-0000000002", "KSTREAM-JOINTHIS-0000000004")
    assert other.parents == ("KSTREAM-WINDOWED-0000000003", "KSTREAM-JOINOTHER-0000000005")


def test_cogrouped_streams_have_a_sink_each() -> None:
    builder = StreamsBuilder()
    group = builder.stream("texts", TEXT).group_by_key().cogroup(lambda key, value, total: total + value)
    numbers = builder.stream("numbers").group_by_key(Grouped.with_(STRING, LONG))
    table = group.cogroup(numbers, lambda key, value, total: total).aggregate(str)
    table.late_to("late", Produced.as_("late"))
    assert [(sink.name, sink.value_serde) for sink in sinks_of(builder.build())] == [("late", STRING), ("late-1", LONG)]


@pytest.mark.parametrize("optimization", ["none", "all"])
def test_the_filter_of_a_repartition_has_a_sink_of_its_own(optimization: str) -> None:
    builder = StreamsBuilder()
    keyed = builder.stream("in", TEXT).select_key(lambda key, value: value).filter(lambda key, value: True)
    keyed.group_by_key().windowed_by(WINDOWS).count().late_to("late", Produced.as_("late"))
    keyed.group_by_key().count()
    topology = builder.build({"topology.optimization": optimization})
    names = {sink.name.partition("-KSTREAM")[0].partition("-FILTER")[0] for sink in sinks_of(topology)}
    assert names == {"late"}
    config = {"application.id": "test", "default.key.serde": STRING, "default.value.serde": STRING}
    with TopologyTestDriver(topology, config) as driver:
        source = driver.create_input_topic("in", STRING, STRING)
        for value, time in (("a", 50), (None, 51), ("a", 5)):
            source.pipe_input("k", value, time)
        written = driver.create_output_topic("late", STRING, STRING).read_records_to_list()
    assert [(record.key, record.value, record.timestamp) for record in written] == [("k", None, 51), ("a", "a", 5)]


def test_a_left_join_after_a_repartition_has_results_for_records_without_a_key_and_drops_none() -> None:
    builder = StreamsBuilder()
    keyed = builder.stream("in", TEXT).select_key(lambda key, value: value)
    keyed.left_join(builder.table("table", TEXT), lambda one, other: one).late_to("late")
    assert len(sinks_of(builder.build())) == 1


def test_a_join_with_a_global_table_writes_what_it_drops() -> None:
    builder = StreamsBuilder()
    table = builder.global_table("table", TEXT)
    joined = builder.stream("in", TEXT).join(table, lambda one, other: one, key_selector=lambda key, value: value)
    joined.late_to("late")
    with TopologyTestDriver(builder.build(), {"application.id": "test"}) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input("k", None, 5)
        record = driver.create_output_topic("late", STRING, STRING).read_record()
    assert (record.key, record.value, record.headers[0]) == ("k", None, ("penstock.dropped.reason", b"null-value"))


def test_a_self_join_with_one_store_writes_what_it_drops_once() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT)
    joined = stream.join(stream, lambda one, other: one, JoinWindows.of_time_difference_with_no_grace(10))
    joined.late_to("late")
    topology = builder.build({"topology.optimization": "all"})
    with TopologyTestDriver(topology, {"application.id": "test"}) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input("k", None, 5)
        assert len(driver.create_output_topic("late", STRING, STRING).read_records_to_list()) == 1


def test_two_topics_of_one_operator_both_receive_its_dropped_records() -> None:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).group_by_key().count().late_to("one").late_to("two")
    with TopologyTestDriver(builder.build(), {"application.id": "test"}) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input(None, "v", 5)
        assert driver.produced_topic_names() >= {"one", "two"}


def test_a_partitioner_chooses_the_partition_of_a_dropped_record() -> None:
    builder = StreamsBuilder()
    chosen: list[Any] = []

    def partition(topic: str, key: Any, value: Any, count: int) -> set[int]:
        chosen.append((topic, key, value))
        return {0}

    builder.stream("in", TEXT).group_by_key().count().late_to("late", Produced.with_(partitioner=partition))
    with TopologyTestDriver(builder.build(), {"application.id": "test"}) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input(None, "v", 5)
    assert chosen == [("late", None, "v")]


COUNT_WINDOWS: dict[str, Callable[[CountWindowedKStream[str, str]], KStream[str, Any]]] = {
    "count": lambda windows: windows.count(),
    "reduce": lambda windows: windows.reduce(lambda one, other: one + other),
    "aggregate": lambda windows: windows.aggregate(str, lambda key, value, texts: texts + value),
}


@pytest.mark.parametrize("aggregate", COUNT_WINDOWS.values(), ids=COUNT_WINDOWS)
def test_windows_of_n_records_write_what_they_drop(
    aggregate: Callable[[CountWindowedKStream[str, str]], KStream[str, Any]],
) -> None:
    builder = StreamsBuilder()
    aggregate(builder.stream("in", TEXT).group_by_key().count_windows(2)).late_to("late")
    with TopologyTestDriver(builder.build(), {"application.id": "test", "default.value.serde": STRING}) as driver:
        source = driver.create_input_topic("in", STRING, STRING)
        for key, value in ((None, "v"), ("k", "v"), ("k", None)):
            source.pipe_input(key, value, 5)
        written = driver.create_output_topic("late", STRING, STRING).read_records_to_list()
    assert [(record.key, record.value) for record in written] == [(None, "v"), ("k", None)]
    assert [dict(record.headers)["penstock.dropped.reason"] for record in written] == [b"null-key", b"null-value"]


NOT_DROPPING: dict[str, Callable[[StreamsBuilder], Any]] = {
    "a source": lambda b: b.stream("in", TEXT),
    "a function": lambda b: b.stream("in", TEXT).map_values(str),
    "a filter below an aggregation": lambda b: b.stream("in", TEXT).group_by_key().count().filter(lambda k, v: True),
    "values of a table": lambda b: b.stream("in", TEXT).group_by_key().count().map_values(str),
    "values of results": lambda b: (
        b.stream("in", TEXT).group_by_key().aggregate(aggregations.mean(of=len)).map_values(str)
    ),
    "updates of a table": lambda b: b.stream("in", TEXT).group_by_key().count().to_stream(),
    "a broadcast": lambda b: b.stream("in", TEXT).broadcast(),
    "a join of tables": lambda b: b.table("one", TEXT).join(b.table("two", TEXT), lambda one, two: one),
}


@pytest.mark.parametrize("program", NOT_DROPPING.values(), ids=NOT_DROPPING)
def test_an_operator_that_drops_no_records_is_refused_with_both_lines(program: Callable[[StreamsBuilder], Any]) -> None:
    ends_with = program(StreamsBuilder())
    with pytest.raises(TopologyError, match=r"late_to \(.*test_late_records\.py:\d+\) .* drops none") as caught:
        ends_with.late_to("late")
    assert "(created at " in str(caught.value)
    assert "directly after the operator" in str(caught.value)


READING: dict[str, Callable[[StreamsBuilder], Any]] = {
    "the source": lambda b: b.stream("back", TEXT).map_values(str).group_by_key().count(),
    "one of two": lambda b: b.stream(["in", "back"], TEXT).group_by_key().windowed_by(WINDOWS).count(),
    "a pattern": lambda b: b.stream(re.compile("ba.*"), TEXT).deduplicate_by_key(5),
    "a table": lambda b: b.table("back", TEXT),
    "another key": lambda b: b.stream("back", TEXT).group_by(lambda key, value: value).windowed_by(WINDOWS).count(),
}


@pytest.mark.parametrize("program", READING.values(), ids=READING)
def test_dropped_records_do_not_come_back_to_the_operator(program: Callable[[StreamsBuilder], Any]) -> None:
    expected = r"late_to \(.*test_late_records\.py:\d+\) .* to topic back, which .* reads: .* Name a topic of its own"
    operator = program(StreamsBuilder())
    with pytest.raises(TopologyError, match=expected):
        operator.late_to("back")


def test_dropped_records_may_go_to_a_topic_that_others_read() -> None:
    builder = StreamsBuilder()
    table = builder.table("names", TEXT)
    builder.stream("late", TEXT).foreach(lambda key, value: None)
    joined = builder.stream("in", TEXT).join(table, lambda one, two: one)
    joined.group_by_key().count().late_to("names")
    joined.group_by_key().windowed_by(WINDOWS).count().late_to("late")
    builder.build()


def test_a_topic_is_a_legal_name() -> None:
    counts = StreamsBuilder().stream("in", TEXT).group_by_key().count()
    with pytest.raises(TopologyError, match="'a b' cannot be the name of a topic"):
        counts.late_to("a b")
    with pytest.raises(TypeError, match="Expected the name of a topic for dropped records"):
        counts.late_to(lambda key, value, metadata: "late")  # type: ignore[arg-type]  # the mistake of the test


def test_a_missing_serde_is_reported_with_the_topic_before_the_first_record() -> None:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).map_values(lambda value: object()).group_by_key().windowed_by(WINDOWS).count().late_to(
        "late"
    )
    with pytest.raises(StreamsError) as caught:
        TopologyTestDriver(builder.build(), {"application.id": "test"})
    assert "writes to topic late" in "".join(caught.value.__notes__)
    assert "Produced" in "".join(caught.value.__notes__)
