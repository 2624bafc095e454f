"""Which offsets a partition of a store has seen: by sub-topology, over repartition topics, and with records carried."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Grouped, Materialized, Serdes, StreamsBuilder
from penstock.host.spark.checkpoints.checkpoint import Manifest
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.host.spark.query import store_positions
from penstock.host.spark.query.store_positions import position_of, settled_offsets, source_partitions
from penstock.plan.subtopology import BuiltTopology
from penstock.record import TopicPartition
from penstock.state.query.position import Position
from penstock.state.query.request import QueryResult

OFFSETS = {"in": [5, 0], "other": [7, 8]}


def topology() -> BuiltTopology:
    serdes = Grouped.with_(key_serde=Serdes.string(), value_serde=Serdes.string())
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.group_by_key(grouped=serdes).count(materialized=Materialized.as_("own"))
    behind = stream.merge(builder.stream("other")).group_by(lambda _, value: value, grouped=serdes)
    behind.count(materialized=Materialized.as_("behind"))
    return builder.build().build("app")


def manifest(carried: dict[str, list[list[int]]], offsets: dict[str, list[int]] | None = None) -> Manifest:
    entry = TaskEntry(carried={"id": "00", "places": carried} if carried else None)
    return Manifest("life", 1, 1, 0, 0, {"0_0": entry}, offsets or OFFSETS)


def test_a_store_depends_on_its_partition_and_behind_a_repartition_on_all() -> None:
    built = topology()
    assert source_partitions(built, "own", 1, OFFSETS) == [TopicPartition("in", 1), TopicPartition("other", 1)]
    every = [TopicPartition(topic, number) for topic in ("in", "other") for number in (0, 1)]
    assert source_partitions(built, "behind", 1, OFFSETS) == every
    assert source_partitions(built, "own", 1, OFFSETS, [TopicPartition("in", 0)]) == [TopicPartition("in", 0)]
    assert position_of(every, OFFSETS) == Position.from_map({"in": {0: 4}, "other": {0: 6, 1: 7}})


def test_what_is_carried_over_is_not_seen_yet() -> None:
    built = topology()
    (repartition,) = built.repartition_topics
    before = settled_offsets(built, manifest({}), {})
    assert before == OFFSETS
    further = {"in": [9, 9], "other": [9, 9]}
    left = settled_offsets(built, manifest({"in": [[1, 0, 10, 0]]}, further), before)
    assert left == {"in": [9, 0], "other": [9, 9]}
    assert settled_offsets(built, manifest({repartition: [[0, 0, 10, 0]]}, further), before) == before
    assert settled_offsets(built, manifest({repartition: [[0, 0, 10, 0]]}), {}) == {"in": [0, 0], "other": [0, 0]}


def test_the_sources_of_a_repartition_topic_are_found_once_for_all_its_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built, asked = topology(), []
    sources_of = store_positions._sources_of

    def counted(topic: str, *arguments: Any) -> set[str]:
        asked.append(topic)
        return sources_of(topic, *arguments)

    monkeypatch.setattr(store_positions, "_sources_of", counted)
    (repartition,) = built.repartition_topics
    entry = TaskEntry(carried={"id": "00", "places": {repartition: [[number, 0, 10, 0] for number in range(5)]}})
    carried = Manifest("life", 1, 1, 0, 0, {"0_0": entry, "0_1": entry}, OFFSETS)
    assert settled_offsets(built, carried, {}) == {"in": [0, 0], "other": [0, 0]}
    assert asked == [repartition]


def test_positions_are_merged_to_the_larger_offsets() -> None:
    one = Position.empty_position().with_component("in", 0, 4).with_component("in", 0, 2)
    assert one == Position.from_map({"in": {0: 4}})
    assert one.merge(Position.from_map({"in": {0: 3, 1: 1}})) == Position.from_map({"in": {0: 4, 1: 1}})
    assert one.merge(None) == one
    assert one.topics == {"in"}
    assert QueryResult.for_result(1).with_position(one).position == one
