"""KGroupedStream: serdes and repartitions of its aggregations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Consumed, Materialized
from penstock.dsl.stream import KStream
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
