"""Lowering of the writes of dropped records to sinks."""

from __future__ import annotations

import pytest

from penstock import Consumed, Produced, Serdes, StreamsBuilder
from penstock.errors import TopologyError
from penstock.plan.subtopology import DroppedSinkSpec

TEXT = Consumed.with_(Serdes.string(), Serdes.string())


def test_the_sinks_are_in_the_sub_topologies_of_their_parents() -> None:
    builder = StreamsBuilder()
    keyed = builder.stream("in", TEXT).select_key(lambda key, value: value)
    keyed.group_by_key().count().late_to("late", Produced.as_("late"))
    parts = builder.build().build("test").subtopologies
    sinks = [[node.name for node in part.nodes if isinstance(node, DroppedSinkSpec)] for part in parts]
    assert sinks == [["late-KSTREAM-FILTER-0000000005"], ["late"]]
    assert all(part.sink_topics[-1] == "late" for part in parts)


def test_the_name_of_a_sink_is_new() -> None:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).group_by_key().count(named="counts").late_to("late", Produced.as_("counts"))
    with pytest.raises(TopologyError, match="Processor counts is already added"):
        builder.build()
