"""count_windows: nodes, names, store and serdes, and mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Consumed,
    CountWindow,
    CountWindowedKStream,
    Grouped,
    KeyValue,
    KGroupedStream,
    KStream,
    Materialized,
    Serdes,
    Stores,
    StreamsBuilder,
    Topology,
    aggregations,
)
from penstock.serdes.count_window import CountWindowSerde
from penstock.testing import TopologyTestDriver

TEXT, LONG, JSON = Serdes.string(), Serdes.long(), Serdes.json()


def grouped(builder: StreamsBuilder) -> KGroupedStream[str, int]:
    return builder.stream("in", Consumed.with_(TEXT, LONG)).group_by_key()


def built(shape: Callable[[KGroupedStream[str, int]], KStream]) -> Topology:
    builder = StreamsBuilder()
    shape(grouped(builder)).to("out")
    return builder.build()


def output_of(topology: Topology, *values: int, serde: Any = LONG) -> list[Any]:
    with TopologyTestDriver(topology) as driver:
        records = driver.create_input_topic("in", TEXT, LONG)
        for time, value in enumerate(values):
            records.pipe_input("k", value, time)
        return [pair.value for pair in driver.create_output_topic("out", TEXT, serde).read_key_values_to_list()]


def test_a_named_aggregation_names_its_nodes_and_not_its_store() -> None:
    described = str(built(lambda records: records.count_windows(2).count(named="pairs")).describe())
    assert "Processor: pairs (stores: [KSTREAM-AGGREGATE-STATE-STORE-0000000001])" in described
    assert "Processor: pairs-updates" in described
    assert "Processor: pairs-full" in described


def test_changed_keys_are_repartitioned() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(TEXT, LONG))
    by_parity = stream.group_by(lambda key, value: str(value % 2), Grouped.with_("parity", TEXT, LONG))
    by_parity.count_windows(2).reduce(lambda total, value: total + value).to("out")
    assert output_of(builder.build(), 1, 2, 3, 4, 5) == [4, 6]


@pytest.mark.parametrize(
    ("shape", "expected", "serde"),
    [
        (lambda windows: windows.count(), [2, 2], LONG),
        (lambda windows: windows.reduce(max), [2, 4], LONG),
        (lambda windows: windows.aggregate(aggregations.mean()), [1.5, 3.5], Serdes.double()),
        (lambda windows: windows.aggregate(aggregations.min()), [1, 3], LONG),
        (
            lambda windows: windows.aggregate(
                aggregations.combined(number=aggregations.count(), values=aggregations.collect())
            ),
            [{"number": 2, "values": [1, 2]}, {"number": 2, "values": [3, 4]}],
            JSON,
        ),
        (
            lambda windows: windows.aggregate(
                list, lambda key, value, known: [*known, value], Materialized.with_(TEXT, JSON)
            ),
            [[1, 2], [3, 4]],
            JSON,
        ),
    ],
)
def test_results_have_the_serde_of_the_aggregation(
    shape: Callable[[CountWindowedKStream], KStream], expected: list[Any], serde: Any
) -> None:
    assert output_of(built(lambda records: shape(records.count_windows(2))), 1, 2, 3, 4, 5, serde=serde) == expected


def test_an_annotation_selects_the_serde_of_the_aggregate() -> None:
    def joined(key: str, value: int, known: str) -> str:
        return f"{known}{value}"

    topology = built(lambda records: records.count_windows(2).aggregate(str, joined))
    assert output_of(topology, 1, 2, serde=TEXT) == ["12"]


def test_the_store_has_the_latest_window_of_each_key_without_a_record_cache() -> None:
    options = Materialized.as_(Stores.in_memory_key_value_store("windows"))
    topology = built(lambda records: records.count_windows(2).aggregate(aggregations.max(), materialized=options))
    store = topology.state_store("windows")
    assert isinstance(store.value_serde, CountWindowSerde)
    assert not store.caching
    with TopologyTestDriver(topology) as driver:
        records = driver.create_input_topic("in", TEXT, LONG)
        for key, value in (("a", 1), ("b", 2), ("a", 3), ("a", 4), ("b", 5)):
            records.pipe_input(key, value)
        windows: Any = driver.get_key_value_store("windows")
        assert list(windows.all()) == [
            KeyValue("a", CountWindow(1, False, 4)),
            KeyValue("b", CountWindow(2, True, 5)),
        ]


def test_windows_of_idle_keys_may_expire() -> None:
    options = Materialized.as_("windows").with_ttl(10)
    topology = built(lambda records: records.count_windows(2).count(options))
    with TopologyTestDriver(topology) as driver:
        records = driver.create_input_topic("in", TEXT, LONG)
        records.pipe_input("a", 1, 0)
        records.pipe_input("b", 1, 5)
        records.pipe_input("b", 1, 14)
        records.pipe_input("a", 1, 15)  # its window of time 0 has expired
        assert driver.create_output_topic("out", TEXT, LONG).read_key_values_to_list() == [KeyValue("b", 2)]


def test_a_full_window_without_parts_has_no_result() -> None:
    def even_part(value: int) -> int | None:
        return value if value % 2 == 0 else None

    even = aggregations.sum(even_part)
    options = Materialized.with_(TEXT, LONG)
    topology = built(lambda records: records.count_windows(2).aggregate(even, materialized=options))
    assert output_of(topology, 1, 3, 2, 4) == [6]


@pytest.mark.parametrize(
    ("n", "kind", "message"),
    [
        (0, ValueError, r"count_windows \(.*test_count_windowed\.py:\d+\): a window has at least 1 record, got n=0"),
        (-3, ValueError, "a window has at least 1 record, got n=-3"),
        (2.0, TypeError, "expected the number of records of a window as an int, got 2.0"),
        (True, TypeError, "as an int, got True"),
        ("5", TypeError, "as an int, got '5'"),
    ],
)
def test_another_number_is_refused_with_the_users_line(n: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        grouped(StreamsBuilder()).count_windows(n)


def test_mistakes_are_those_of_other_aggregations() -> None:
    windows = grouped(StreamsBuilder()).count_windows(2)
    mistaken: Any = windows
    with pytest.raises(TypeError, match=r"call it, aggregate\(aggregations\.sum\(\)\)"):
        mistaken.aggregate(aggregations.sum)
    with pytest.raises(TypeError, match=r"write materialized="):
        mistaken.aggregate(aggregations.sum(), Materialized.as_("x"))
    with pytest.raises(TypeError, match=r"The reducer cannot be called as reducer\(aggregate, value\)"):
        mistaken.reduce(lambda value: value)
    with pytest.raises(TypeError, match="writes str"):
        windows.aggregate(aggregations.collect(), materialized=Materialized.with_(TEXT, TEXT))
