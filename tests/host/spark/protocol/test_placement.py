"""Where tasks run: levels, numbers of tasks, Spark partitions, and the shape that a checkpoint is compared with."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import pytest

from penstock import Calls, Serdes, StreamsBuilder, Topology
from penstock.config import StreamsConfig
from penstock.dsl.options import Consumed, Grouped
from penstock.errors import MissingSourceTopicError, TopologyError
from penstock.host.deployment.topics import check_source_topics, resolve_patterns
from penstock.host.spark.protocol.placement import Placement, differences, place, shape
from penstock.plan.partition_grouper import PartitionGrouper
from penstock.plan.subtopology import BuiltTopology, InternalTopic, SourceSpec, SubtopologySpec, TaskId
from penstock.record import TopicPartition

STRING = Serdes.string()
PAIRS = Grouped.with_(key_serde=STRING)  # values keep the serde that they have
TEXT = Consumed.with_(key_serde=STRING, value_serde=STRING)
CONFIG = StreamsConfig()


def counts(*levels: str) -> BuiltTopology:
    builder = StreamsBuilder()
    stream = builder.stream("in", consumed=TEXT)
    for name in levels:
        stream = stream.group_by(lambda k, v: v, grouped=PAIRS.with_name(name)).count().to_stream()
    stream.to("out")
    return builder.build().build("app")


def test_a_stateless_topology_is_on_level_0() -> None:
    placement = place(counts(), {"in": 3, "out": 2}, parallelism=2)
    assert placement.levels == ((TaskId(0, 0), TaskId(0, 1), TaskId(0, 2)),)
    assert placement.partitions == (2,)
    assert placement.sink_partitions == 2


def test_a_repartition_topic_has_as_many_partitions_as_the_largest_source_upstream() -> None:
    placement = place(counts("one", "two"), {"in": 3, "out": 1}, parallelism=8)
    assert [len(level) for level in placement.levels] == [3, 3, 3]
    assert placement.source_partitions["app-two-repartition"] == 3
    assert placement.partitions == (3, 3, 3)
    assert placement.sink_partitions == 1


def test_lanes_count_over_all_levels_and_partitions_follow_the_number_in_the_level() -> None:
    placement = place(counts("one"), {"in": 3, "out": 1}, parallelism=2)
    assert placement.places[TaskId(1, 1)] == (1, 1, 4)
    assert placement.consumer("app-one-repartition", 2) == TaskId(1, 2)


def test_a_topic_is_read_where_it_has_partitions() -> None:
    builder = StreamsBuilder()
    builder.stream(["a", "b"]).to("out")
    built = builder.build().build("app")
    placement = place(built, {"a": 1, "b": 2, "out": 1}, parallelism=4)
    assert placement.inputs_of(TaskId(0, 0), {}) == [("a", 0), ("b", 0)]
    assert placement.inputs_of(TaskId(0, 1), {}) == [("b", 1)]


class Pairs(PartitionGrouper):
    """Two partitions of a topic in each group."""

    def group(self, topics: Mapping[str, int]) -> Sequence[Collection[TopicPartition]]:
        return [
            [TopicPartition(topic, number) for topic, count in topics.items() for number in (first, first + 1)]
            for first in range(0, max(topics.values()), 2)
        ]


def test_a_user_groups_partitions_into_tasks() -> None:
    placement = place(counts("one"), {"in": 4, "out": 1}, parallelism=2, grouper=Pairs())
    assert placement.levels == ((TaskId(0, 0), TaskId(0, 1)), (TaskId(1, 0), TaskId(1, 1)))
    assert placement.inputs_of(TaskId(0, 1), {}) == [("in", 2), ("in", 3)]
    assert placement.consumer("app-one-repartition", 3) == TaskId(1, 1)


def test_a_checkpoint_is_compared_with_the_groups_of_the_user() -> None:
    topology = counts()
    before, now = (
        shape(topology, place(topology, {"in": 4, "out": 1}, 2, grouper), CONFIG)
        for grouper in (Pairs(), PartitionGrouper())
    )
    assert "partitions of tasks" in before
    assert any(line.startswith("partitions of tasks") for line in differences(before, now))


def test_missing_topics_are_named_with_the_command() -> None:
    with pytest.raises(
        MissingSourceTopicError,
        match=r"Source topics that do not exist: in\. .*penstock topics create in --bootstrap-servers kafka:9092",
    ) as refused:
        check_source_topics(counts(), {"out": 1}, "kafka:9092")
    [note] = refused.value.__notes__
    assert re.fullmatch(r"KSTREAM-SOURCE-0000000000 reads in \(.*test_placement\.py.*\)\.", note)


def test_a_topic_of_a_global_store_that_is_missing_is_named_with_its_source() -> None:
    builder = StreamsBuilder()
    builder.global_table("rates")
    with pytest.raises(MissingSourceTopicError) as refused:
        check_source_topics(builder.build().build("app"), {}, "kafka:9092")
    assert "KTABLE-SOURCE" in refused.value.__notes__[0] or "KSTREAM-SOURCE" in refused.value.__notes__[0]
    assert "reads rates" in refused.value.__notes__[0]


def test_topics_of_a_join_with_different_numbers_are_named_with_their_sources_and_what_to_do() -> None:
    builder = StreamsBuilder()
    builder.stream("a").join(builder.table("b"), lambda left, right: left)
    with pytest.raises(TopologyError, match="not co-partitioned") as refused:
        place(builder.build().build("app"), {"a": 1, "b": 3}, parallelism=2)
    one, other, remedy = refused.value.__notes__
    assert one.startswith("KSTREAM-SOURCE-0000000000 reads a (")
    assert "reads b (" in other
    assert "repartition" in remedy


def test_patterns_are_resolved_against_the_topics_that_are_there() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("in-.*")).to("out")
    built = builder.build().build("app")
    topics = {"in-a": 1, "in-b": 2, "other": 1, "in-internal": 1, "__in-x": 1}
    resolved = resolve_patterns(built, topics, frozenset(["in-internal"]), StreamsConfig())
    assert resolved.subtopologies[0].source_topics == ("in-a", "in-b")
    assert len(place(resolved, topics, 2).tasks) == 2
    none = resolve_patterns(built, {"other": 1}, frozenset(), StreamsConfig())
    with pytest.raises(MissingSourceTopicError, match=r"no topic matches the pattern 'in-\.\*'"):
        check_source_topics(none, {"other": 1}, "kafka:9092")


def two_sources(group: frozenset[str], fixed: int | None = None) -> BuiltTopology:
    """A sub-topology that reads the repartition topic `r` of another one beside the topic `b`."""
    feeding = SubtopologySpec(0, (SourceSpec("s0", ("a",)),), source_topics=("a",), sink_topics=("r",))
    reading = SubtopologySpec(1, (SourceSpec("s1", ("b", "r")),), source_topics=("b", "r"))
    return BuiltTopology((feeding, reading), {"r": InternalTopic("r", {}, fixed)}, copartition_groups=(group,))


def test_a_repartition_topic_is_aligned_with_the_topic_it_is_joined_with() -> None:
    placement = place(two_sources(frozenset(["b", "r"])), {"a": 2, "b": 5}, parallelism=2)
    assert placement.source_partitions == {"a": 2, "b": 5, "r": 5}
    assert [len(level) for level in placement.levels] == [2, 5]


def test_topics_that_cannot_be_joined_are_refused() -> None:
    with pytest.raises(TopologyError, match=r"partitions \[3\] of repartition topic \[r\] .* partitions \[5\]"):
        place(two_sources(frozenset(["b", "r"]), fixed=3), {"a": 2, "b": 5}, parallelism=2)


def fed(edges: Mapping[int, Sequence[int]], outside: Collection[int]) -> BuiltTopology:
    """Sub-topologies that feed those of `edges`, and read a topic `a` of the brokers where they are `outside`."""
    specs = []
    for number, targets in edges.items():
        sources = [f"r{number}", *(["a"] if number in outside else [])]
        sinks = tuple(f"r{target}" for target in targets)
        node = SourceSpec(f"s{number}", tuple(sources))
        specs.append(SubtopologySpec(number, (node,), source_topics=tuple(sources), sink_topics=sinks))
    return BuiltTopology(tuple(specs), {f"r{number}": InternalTopic(f"r{number}", {}, 1) for number in edges})


@pytest.mark.parametrize(
    ("edges", "outside", "levels"),
    [
        ({0: [0]}, [0], [[0]]),
        ({0: [1], 1: [0]}, [0, 1], [[0], [1]]),
        ({0: [1], 1: [0]}, [1], [[1], [0]]),
        ({0: [], 1: [2, 0], 2: [1]}, [1, 2], [[1], [0, 2]]),
        ({0: [1], 1: [2], 2: [1, 3], 3: []}, [0], [[0], [1], [2], [3]]),
        ({0: [1, 2], 1: [0, 2], 2: [1, 0]}, [0], [[0], [1], [2]]),
    ],
)
def test_a_loop_begins_with_the_subtopology_that_reads_from_the_brokers(
    edges: Mapping[int, Sequence[int]], outside: Collection[int], levels: list[list[int]]
) -> None:
    placed = place(fed(edges, outside), {"a": 1}, parallelism=2)
    assert [[task.subtopology for task in tasks] for tasks in placed.levels] == levels


def topology_shape(built: BuiltTopology, partitions: int = 2) -> dict[str, object]:
    return shape(built, place(built, {"in": partitions, "out": 1}, parallelism=2), CONFIG)


def test_the_same_program_has_the_same_shape_whatever_the_parallelism() -> None:
    built = counts("one")
    topics = {"in": 2, "out": 1}
    assert shape(built, place(built, topics, 1), CONFIG) == shape(built, place(built, topics, 8), CONFIG)
    assert differences(topology_shape(counts("one")), topology_shape(counts("one"))) == []


def test_differences_name_what_changed() -> None:
    lines = differences(topology_shape(counts("one")), topology_shape(counts("one", "two"), partitions=4))
    text = "\n".join(lines)
    assert "partitions of source topics / in: was 2, is 4" in text
    assert "partitions of source topics / app-two-repartition: was absent, is 4" in text
    assert "new: [" in text


def test_a_topology_by_hand_can_be_placed() -> None:
    topology = Topology().add_source("source", "in").add_sink("sink", "out", "source")
    assert place(topology.build("app"), {"in": 1, "out": 1}, 4).partitions == (1,)


async def ask(value: str) -> str:
    return value


def calling() -> BuiltTopology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", TEXT).group_by(lambda k, v: v, grouped=PAIRS.with_name("words"))
    asked = grouped.reduce(lambda one, other: other).to_stream().map_values(ask, named="ask", calls=Calls())
    asked.to("out")
    return builder.build().build("app")


def test_each_task_reads_its_partition_of_the_answers_and_waits_for_none() -> None:
    placement = place(calling(), {"in": 3, "out": 1, "app-ask-answers": 7}, parallelism=2)
    answers = [TopicPartition("app-ask-answers", number) for number in range(3)]
    assert placement.task_topics == {"app-ask-answers": 3}
    assert [placement.groups[TaskId(1, number)][-1] for number in range(3)] == answers
    assert placement.levels == (tuple(TaskId(0, n) for n in range(3)), tuple(TaskId(1, n) for n in range(3)))
    assert [placement.consumer(*each) for each in answers] == [TaskId(1, number) for number in range(3)]
    assert placement.inputs_of(TaskId(1, 2), {"app-words-repartition": 3}) == [answers[2]]
    assert placement.users_inputs(TaskId(1, 2)) == (("app-words-repartition", 2),)
    assert placement.awaitable[TaskId(1, 0)] == ()


def test_a_placement_of_earlier_versions_keeps_the_partitions_of_answers() -> None:
    placement = place(calling(), {"in": 3, "out": 1}, parallelism=2)
    state = vars(placement).copy()
    state["answers"] = state.pop("task_topics")
    found = Placement.__new__(Placement)
    found.__setstate__(state)
    assert found == placement
    assert found.awaitable[TaskId(1, 0)] == ()


def test_answers_are_no_part_of_the_topics_that_a_checkpoint_is_compared_with() -> None:
    built = calling()
    found = shape(built, place(built, {"in": 3, "out": 1}, parallelism=2), CONFIG)
    assert found["partitions of source topics"] == {"app-words-repartition": 3, "in": 3}
    assert found["stores"]["1"].keys() >= {"ask-calls"}
