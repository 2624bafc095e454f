"""The partitioner that makes a topic a broadcast, and the topics that have it."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Repartitioned, StreamsBuilder
from penstock.plan.broadcast import all_broadcasts, broadcasts_of, every_partition, read_broadcasts
from penstock.plan.subtopology import SinkSpec, SourceSpec


@given(st.text(), st.none() | st.text(), st.integers(1, 1_000))
def test_a_record_goes_to_each_partition(topic: str, key: str | None, partitions: int) -> None:
    assert sorted(every_partition(topic, key, "value", partitions)) == list(range(partitions))


def test_sinks_and_sources_of_a_broadcast_are_found_also_in_another_process() -> None:
    builder = StreamsBuilder()
    builder.stream("in").broadcast(Repartitioned.as_("b")).repartition(Repartitioned.as_("r")).to("out")
    built = pickle.loads(pickle.dumps(builder.build().build("app")))
    topic = "app-b-broadcast-repartition"
    writing, reading, last = built.subtopologies
    assert (broadcasts_of(writing.nodes), broadcasts_of(reading.nodes)) == ({topic}, set())
    assert [read_broadcasts(spec.nodes) for spec in (writing, reading, last)] == [set(), {topic}, set()]
    assert all_broadcasts(built) == {topic}


@pytest.mark.parametrize("partitioner", [None, lambda topic, key, value, partitions: set(range(partitions))])
def test_other_partitioners_make_no_broadcast(partitioner: object) -> None:
    nodes = [SinkSpec("k", (), "out", partitioner=partitioner), SourceSpec("s", ("out",), repartition=True)]  # type: ignore[arg-type]  # of a parameter
    assert not broadcasts_of(nodes)
    assert not read_broadcasts(nodes)
