"""The topology of a streams group: what is refused, numbers of partitions, and problems with topics."""

from __future__ import annotations

import uuid

import pytest

from penstock_broker.errors import ApiError
from penstock_broker.groups.streams.topology import ConfiguredTopology, GroupStatus, StreamsTopology, configured
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.groups.classic.test_group import code_of
from tests.broker.groups.streams.test_group import subtopology, topic_info, topology


def on(existing: dict[str, int], *subtopologies: Message) -> ConfiguredTopology:
    """Return a topology on a broker with some topics, by name and number of partitions."""
    topics = {name: (uuid.uuid5(uuid.NAMESPACE_DNS, name), count) for name, count in existing.items()}
    return configured(StreamsTopology(topology(*subtopologies)), topics)


def problem_of(found: ConfiguredTopology) -> tuple[GroupStatus, str]:
    assert found.problem is not None
    assert found.task_counts == {}
    return found.problem.status, found.problem.detail


def copartitioned(sources: list[int], repartitioned: list[int]) -> list[Message]:
    return [{"source_topics": sources, "source_topic_regex": [], "repartition_source_topics": repartitioned}]


@pytest.mark.parametrize(
    ("subtopologies", "code"),
    [
        ([subtopology("0", "t", source_topic_regex=["t.*"])], ErrorCode.invalid_request),
        ([subtopology("0", "t"), subtopology("0", "u")], ErrorCode.streams_invalid_topology),
        ([subtopology("0")], ErrorCode.streams_invalid_topology),
        ([subtopology("0", "t", state_changelog_topics=[topic_info("c", 3)])], ErrorCode.streams_invalid_topology),
        ([subtopology("0", "t", copartition_groups=copartitioned([1], []))], ErrorCode.streams_invalid_topology),
        ([subtopology("0", "t", copartition_groups=copartitioned([0], [-1]))], ErrorCode.streams_invalid_topology),
    ],
)
def test_an_invalid_topology_is_refused(subtopologies: list[Message], code: ErrorCode) -> None:
    assert code_of(lambda: StreamsTopology(topology(*subtopologies))) == code


def test_topologies_are_equal_in_any_order_of_subtopologies() -> None:
    one, two = subtopology("0", "t"), subtopology("1", "u")
    assert StreamsTopology(topology(one, two)) == StreamsTopology(topology(two, one))
    assert StreamsTopology(topology(one, two)) != StreamsTopology(topology(one, two, epoch=1))
    assert StreamsTopology(topology(one)) != topology(one)


def test_a_subtopology_has_as_many_tasks_as_its_largest_source_has_partitions() -> None:
    found = on({"t": 2, "u": 5}, subtopology("0", "t", "u"), subtopology("1", "t"))
    assert found.problem is None
    assert found.task_counts == {"0": 5, "1": 2}
    assert [found.has_task("0", number) for number in (-1, 0, 4, 5)] == [False, True, True, False]
    assert not found.has_task("2", 0)


def test_missing_sources_are_named() -> None:
    found = on({"t": 2}, subtopology("0", "t", "a", "b", "c", "d", "e"))
    assert problem_of(found) == (
        GroupStatus.MISSING_SOURCE_TOPICS,
        "Source topics a, b, c and 2 additional topics are missing.",
    )


def test_partitions_follow_through_repartition_topics() -> None:
    """The second sub-topology writes the topic of the third, whatever their order."""
    found = on(
        {"t": 3},
        subtopology("0", repartition_source_topics=[topic_info("r2")], state_changelog_topics=[topic_info("c")]),
        subtopology("1", repartition_source_topics=[topic_info("r1")], repartition_sink_topics=["r2"]),
        subtopology("2", "t", repartition_sink_topics=["r1"]),
    )
    assert found.partitions == {"r1": 3, "r2": 3, "c": 3}
    assert problem_of(found) == (GroupStatus.MISSING_INTERNAL_TOPICS, "Internal topics are missing: c, r1, r2")
    assert [topic["name"] for topic in found.missing] == ["c", "r1", "r2"]


def test_a_program_may_set_the_partitions_of_a_repartition_topic() -> None:
    found = on(
        {"t": 3},
        subtopology("0", "t", repartition_sink_topics=["r"]),
        subtopology("1", repartition_source_topics=[topic_info("r", 7)], state_changelog_topics=[topic_info("c")]),
    )
    assert found.partitions == {"r": 7, "c": 7}


def test_repartition_topics_have_the_partitions_of_their_copartition_group() -> None:
    joined = subtopology(
        "1", "u", repartition_source_topics=[topic_info("r")], copartition_groups=copartitioned([0], [0])
    )
    assert on({"t": 3, "u": 5}, subtopology("0", "t", repartition_sink_topics=["r"]), joined).partitions == {"r": 5}
    both = subtopology(
        "1",
        repartition_source_topics=[topic_info("r"), topic_info("s")],
        copartition_groups=copartitioned([], [0, 1]),
    )
    writers = (
        subtopology("0", "t", repartition_sink_topics=["r"]),
        subtopology("2", "u", repartition_sink_topics=["s"]),
    )
    assert on({"t": 3, "u": 5}, *writers, both).partitions == {"r": 5, "s": 5}
    fixed = subtopology(
        "1",
        repartition_source_topics=[topic_info("r"), topic_info("s", 2)],
        copartition_groups=copartitioned([], [0, 1]),
    )
    assert on({"t": 3, "u": 5}, *writers, fixed).partitions == {"r": 2, "s": 2}


def test_copartitioned_topics_with_different_numbers_are_named() -> None:
    sources = subtopology("0", "t", "u", copartition_groups=copartitioned([0, 1], []))
    assert problem_of(on({"t": 3, "u": 5}, sources)) == (
        GroupStatus.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [t=3, u=5]",
    )
    fixed = subtopology(
        "1", "u", repartition_source_topics=[topic_info("r", 2)], copartition_groups=copartitioned([0], [0])
    )
    assert problem_of(on({"t": 3, "u": 5}, subtopology("0", "t", repartition_sink_topics=["r"]), fixed)) == (
        GroupStatus.INCORRECTLY_PARTITIONED_TOPICS,
        "Number of partitions [2] of repartition topic [r] doesn't match number of partitions [5] of the source topic.",
    )


def test_an_internal_topic_with_another_number_of_partitions_is_named() -> None:
    found = on({"t": 3, "c": 2}, subtopology("0", "t", state_changelog_topics=[topic_info("c")]))
    assert problem_of(found) == (
        GroupStatus.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic c has different number of partitions: expected 3, found 2",
    )


@pytest.mark.parametrize(
    ("subtopologies", "text"),
    [
        (
            [
                subtopology("0", repartition_source_topics=[topic_info("r")], repartition_sink_topics=["s"]),
                subtopology("1", repartition_source_topics=[topic_info("s")], repartition_sink_topics=["r"]),
            ],
            "There may be loops in the topology",
        ),
        ([subtopology("0", repartition_source_topics=[topic_info("r")])], "is never used as a sink topic"),
    ],
)
def test_partitions_that_cannot_be_determined_are_an_error(subtopologies: list[Message], text: str) -> None:
    with pytest.raises(ApiError, match=text) as caught:
        on({}, *subtopologies)
    assert caught.value.code == ErrorCode.streams_invalid_topology


def test_the_hash_follows_the_topics_of_the_topology() -> None:
    reads = subtopology("0", "t")
    assert on({"t": 3}, reads).metadata_hash == on({"t": 3, "u": 1}, reads).metadata_hash
    assert on({"t": 3}, reads).metadata_hash != on({"t": 4}, reads).metadata_hash
