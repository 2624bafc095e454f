"""KGroupedTable: repartitions, stores and serdes of its aggregations."""

from __future__ import annotations

from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Grouped, Materialized


def test_aggregations_share_the_repartition_that_the_user_named() -> None:
    builder = StreamsBuilder()
    grouped = builder.table("in").group_by(lambda k, v: (v, v), Grouped.as_("g"))
    grouped.count()
    grouped.reduce(lambda a, b: b, lambda a, b: a)
    assert list(builder.build().build("app").repartition_topics) == ["app-g-repartition"]
    unnamed = StreamsBuilder()
    grouped = unnamed.table("in").group_by(lambda k, v: (v, v))
    grouped.count(Materialized.as_("one"))
    grouped.count(Materialized.as_("two"))
    assert list(unnamed.build().build("app").repartition_topics) == ["app-one-repartition", "app-two-repartition"]
