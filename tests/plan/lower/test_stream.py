"""What the operators of streams become."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock import Materialized, Produced, Serdes, Stores, StreamsBuilder, WindowedSerdes
from penstock.plan.lower.plan import lower
from penstock.plan.partitioning import WindowedStreamPartitioner
from penstock.plan.subtopology import SourceSpec
from penstock.processor.joiner import JoinType
from tests.plan.lower.programs import build, kinds, nodes_of, processors, sinks
from tests.plan.plans import TEXT, lookup, rekey, repartition, stream, table


@pytest.mark.parametrize(("type", "passing"), [(JoinType.INNER, "NullKeyFilter"), (JoinType.LEFT, "StreamMerge")])
def test_a_repartition_keeps_records_without_a_key_only_for_a_left_join(type: JoinType, passing: str) -> None:
    plan = {0: stream("a"), 1: rekey(0), 2: repartition("r", 1), 3: table("t"), 4: lookup(2, 3, type)}
    built = lower(plan).build("app")
    assert processors(built)["r-repartition-filter"].__class__.__name__ == passing


def test_a_repartition_is_a_sink_and_a_source_of_another_subtopology() -> None:
    built = lower({0: stream("a"), 1: repartition("r", 0, partitions=3, key_serde=TEXT)}).build("app")
    assert [part.source_topics for part in built.subtopologies] == [("a",), ("app-r-repartition",)]
    (sink,), source = sinks(built), nodes_of(built)["r-repartition-source"]
    assert isinstance(source, SourceSpec)
    assert (sink.key_serde, source.key_serde, sink.repartition, source.repartition) == (TEXT, TEXT, True, True)
    assert built.repartition_topics["app-r-repartition"].partitions == 3


def test_a_pattern_and_an_offset_reset_reach_the_source() -> None:
    source = stream(pattern=re.compile("a.*"), offset_reset="latest")
    found = nodes_of(lower({0: source}).build("app"))[source.name]
    assert isinstance(found, SourceSpec)
    assert found.pattern is not None
    assert (found.topics, found.pattern.pattern, found.offset_reset) == ((), "a.*", "latest")


def test_windowed_keys_have_a_partitioner_unless_the_user_gives_one() -> None:
    windowed = WindowedSerdes.time_windowed(Serdes.string(), 5)

    def own(topic: str, key: Any, value: Any, partitions: int) -> None:
        return None

    for options, expected in (
        (Produced.with_(windowed, TEXT), WindowedStreamPartitioner(windowed.inner)),
        (Produced.with_(windowed, TEXT).with_stream_partitioner(own), own),
        (Produced.with_(TEXT, TEXT), None),
    ):
        builder = StreamsBuilder()
        builder.stream("in").to("out", options)
        (sink,) = sinks(build(builder))
        assert sink.partitioner == expected


@pytest.mark.parametrize(
    ("store", "kind"),
    [("counts", "StreamCount"), (Stores.persistent_versioned_key_value_store("counts", 5), "RecordByRecord")],
)
def test_a_versioned_store_is_written_record_by_record(store: Any, kind: str) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(Materialized.as_(store))
    assert kinds(build(builder)) == [kind]
