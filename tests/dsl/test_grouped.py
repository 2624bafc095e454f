"""KGroupedStream: serdes and repartitions of its aggregations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import KGroupedStream, KTable, SessionWindows, TimeWindows
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Consumed, Materialized
from penstock.dsl.stream import KStream
from penstock.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream
from penstock.processor.api import Processor
from penstock.record import Record
from penstock.serdes import Serdes

KEY, VALUE = Serdes.string(), Serdes.integer()


class Drop(Processor):
    def process(self, record: Record[Any, Any]) -> None:
        pass


def test_a_count_is_a_long_and_an_aggregate_keeps_the_key_serde() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", Consumed.with_(key_serde=KEY, value_serde=VALUE)).group_by_key()
    grouped.count(Materialized.as_("count"))
    grouped.aggregate(int, lambda k, v, a: a, Materialized.as_("aggregate"))
    stores = builder.build().build("app").subtopologies[0].stores
    assert isinstance(stores["count"].value_serde, type(Serdes.long()))
    assert (stores["aggregate"].key_serde, stores["aggregate"].value_serde) == (KEY, None)


@pytest.mark.parametrize(
    ("change", "repartitioned"),
    [
        (lambda s: s, False),
        (lambda s: s.filter(lambda k, v: True).map_values(str), False),
        (lambda s: s.select_key(lambda k, v: v).filter(lambda k, v: True), True),
        (lambda s: s.map(lambda k, v: (v, k)), True),
        (lambda s: s.process(Drop), True),
        (lambda s: s.merge(s.map(lambda k, v: (v, k))), True),
    ],
)
def test_a_group_is_repartitioned_only_if_keys_may_have_changed(
    change: Callable[[KStream], KStream], repartitioned: bool
) -> None:
    builder = StreamsBuilder()
    change(builder.stream("in")).group_by_key().count(Materialized.as_("s"))
    assert set(builder.build().build("app").repartition_topics) == ({"app-s-repartition"} if repartitioned else set())


@pytest.mark.parametrize(
    ("make", "node", "next_node"),
    [
        (lambda g: g.count(), "KSTREAM-AGGREGATE-0000000002", "KSTREAM-PEEK-0000000004"),
        (lambda g: g.count(Materialized.as_("s")), "KSTREAM-AGGREGATE-0000000001", "KSTREAM-PEEK-0000000003"),
        (
            lambda g: g.count(Materialized.with_(KEY, None)),
            "KSTREAM-AGGREGATE-0000000003",
            "KSTREAM-PEEK-0000000005",
        ),
        (lambda g: g.reduce(max), "KSTREAM-REDUCE-0000000002", "KSTREAM-PEEK-0000000004"),
        (lambda g: g.reduce(max, named="mine"), "mine", "KSTREAM-PEEK-0000000004"),
    ],
)
def test_an_aggregation_takes_the_numbers_that_kafka_streams_takes(
    make: Callable[[KGroupedStream], KTable], node: str, next_node: str
) -> None:
    builder = StreamsBuilder()
    make(builder.stream("in").group_by_key()).to_stream().peek(lambda k, v: None)
    (part,) = builder.build().build("app").subtopologies
    names = [each.name for each in part.nodes]
    assert (names[1], names[-1]) == (node, next_node)


def test_a_table_can_be_queried_only_if_the_user_named_its_store() -> None:
    grouped = StreamsBuilder().stream("in").group_by_key()
    assert grouped.count().queryable_store_name is None
    assert grouped.count(Materialized.with_(KEY, None)).queryable_store_name is None
    assert grouped.reduce(max, Materialized.as_("s")).queryable_store_name == "s"


def test_the_kind_of_windows_chooses_the_kind_of_stream() -> None:
    grouped = StreamsBuilder().stream("in").group_by_key()
    sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5))
    assert isinstance(sessions, SessionWindowedKStream)
    assert isinstance(grouped.windowed_by(TimeWindows.of_size_with_no_grace(5)), TimeWindowedKStream)


@pytest.mark.parametrize(
    ("wrong", "signature"),
    [
        (lambda g: g.reduce(lambda v: v), r"reducer\(aggregate, value\)"),
        (lambda g: g.aggregate(lambda k: k, lambda k, v, a: a), r"initializer\(\)"),
        (lambda g: g.aggregate(str, lambda v, a: a), r"aggregator\(key, value, aggregate\)"),
        (lambda g: g.cogroup(lambda v, a: a), r"aggregator\(key, value, aggregate\)"),
    ],
)
def test_a_function_of_another_form_is_refused(wrong: Callable[[Any], object], signature: str) -> None:
    with pytest.raises(TypeError, match=signature):
        wrong(StreamsBuilder().stream("in").group_by_key())
