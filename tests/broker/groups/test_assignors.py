"""The assignors of consumer groups."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.groups.assignment import Assignment
from penstock_broker.groups.assignors import ASSIGNORS, Subscriber, assign_range, assign_uniform

TOPICS = [uuid.UUID(int=number) for number in range(1, 4)]

_members = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        Subscriber,
        st.frozensets(st.sampled_from(TOPICS)),
        st.none() | st.sampled_from(["x", "y", "z"]),
        st.frozensets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 7))),
    ),
    min_size=1,
)
_partitions = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 6))


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(members=_members, partitions=_partitions)
def test_each_partition_that_is_read_has_one_reader(
    name: str, members: dict[str, Subscriber], partitions: dict[uuid.UUID, int]
) -> None:
    result = ASSIGNORS[name](members, partitions)
    assert result.keys() == members.keys()
    given = [partition for assigned in result.values() for partition in assigned]
    read = {topic for member in members.values() for topic in member.topics} & partitions.keys()
    assert sorted(given) == [(topic, number) for topic in sorted(read) for number in range(partitions[topic])]
    for member_id, assigned in result.items():
        assert {topic for topic, _ in assigned} <= members[member_id].topics


@given(members=_members, partitions=_partitions)
def test_uniform_cannot_be_made_more_equal_by_a_move_and_then_changes_nothing(
    members: dict[str, Subscriber], partitions: dict[uuid.UUID, int]
) -> None:
    result = assign_uniform(members, partitions)
    for giver, assigned in result.items():
        for topic, _ in assigned:
            for taker, member in members.items():
                if topic in member.topics:
                    assert len(result[giver]) - len(result[taker]) < 2
    again = {name: member._replace(current=result[name]) for name, member in members.items()}
    assert assign_uniform(again, partitions) == result


def subscribers(*names: str, **current: Assignment) -> dict[str, Subscriber]:
    return {name: Subscriber(frozenset(TOPICS), None, current.get(name, frozenset())) for name in names}


def test_uniform_moves_no_more_than_it_must() -> None:
    two = assign_uniform(subscribers("a", "b"), {TOPICS[0]: 6})
    three = assign_uniform(subscribers("a", "b", "c", **two), {TOPICS[0]: 6})
    assert [len(three[name]) for name in "abc"] == [2, 2, 2]
    assert three["a"] < two["a"]
    assert three["b"] < two["b"]
    back = assign_uniform(subscribers("a", "b", **three), {TOPICS[0]: 6})
    assert back["a"] > three["a"]
    assert back["b"] > three["b"]


def test_range_gives_the_same_numbers_of_all_topics() -> None:
    result = assign_range(subscribers("b", "a"), {TOPICS[0]: 5, TOPICS[1]: 5})
    assert sorted(number for _, number in result["a"]) == [0, 0, 1, 1, 2, 2]
    assert sorted(number for _, number in result["b"]) == [3, 3, 4, 4]
