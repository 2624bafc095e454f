"""The repartition of a group: whether there is one, its name, and who shares it."""

from __future__ import annotations

import pytest

from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Grouped, Materialized
from penstock.errors import TopologyError


def test_aggregations_of_a_named_group_share_its_repartition() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by(lambda k, v: v, Grouped.as_("g"))
    grouped.count(Materialized.as_("a"))
    grouped.count(Materialized.as_("b"))
    first, second = builder.build().build("app").subtopologies
    assert first.sink_topics == second.source_topics == ("app-g-repartition",)
    assert list(second.stores) == ["a", "b"]


def test_two_groups_of_one_name_are_refused() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in").select_key(lambda k, v: v)
    stream.group_by_key(Grouped.as_("g")).count()
    stream.group_by_key(Grouped.as_("g")).count()
    with pytest.raises(TopologyError, match="Processor g-repartition-filter is already added"):
        builder.build()
