"""A streams group in messages: topology, members, and the partitions that endpoints read."""

from __future__ import annotations

from dataclasses import replace

from penstock_broker.groups.streams.description import describe_member, describe_topology, partitions_by_endpoint
from penstock_broker.groups.streams.topology import StreamsTopology
from tests.broker.groups.streams.test_group import COUNTS, subtopology, tasks, topology
from tests.broker.groups.streams.test_member import MEMBER


def test_internal_topics_have_their_partitions_as_far_as_known() -> None:
    def counts(partitions: dict[str, int]) -> list[int]:
        [_, counting] = describe_topology(StreamsTopology(COUNTS), partitions)["subtopologies"]
        topics = (*counting["state_changelog_topics"], *counting["repartition_source_topics"])
        return [topic["partitions"] for topic in topics]

    assert counts({}) == [0, 0]
    assert counts({"r": 4, "c": 5}) == [5, 4]


def test_topics_are_sorted() -> None:
    [found] = describe_topology(StreamsTopology(topology(subtopology("0", "u", "t"))), {})["subtopologies"]
    assert found["source_topics"] == ["t", "u"]


def test_a_member_has_its_tasks_and_those_of_the_target() -> None:
    found = describe_member(replace(MEMBER, assigned=tasks(0, 1)), tasks(1))
    assert found["assignment"] == {"active_tasks": [{"subtopology_id": "0", "partitions": [0, 1]}]}
    assert found["target_assignment"] == {"active_tasks": [{"subtopology_id": "0", "partitions": [1]}]}


def test_a_task_reads_only_partitions_that_exist() -> None:
    reads_both = StreamsTopology(topology(subtopology("0", "t", "u")))
    silent = replace(MEMBER, member_id="n", endpoint=None, assigned=tasks(0))
    reading = replace(MEMBER, assigned=tasks(1, 3))
    [found] = partitions_by_endpoint([silent, reading], reads_both, {"t": 4, "u": 2})
    assert found == {
        "user_endpoint": {"host": "h", "port": 1},
        "active_partitions": [{"topic": "t", "partitions": [1, 3]}, {"topic": "u", "partitions": [1]}],
        "standby_partitions": [],
    }
