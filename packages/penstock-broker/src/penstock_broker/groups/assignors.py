"""The assignors of consumer groups, which distribute partitions among members (KIP-848).

Contains `uniform` and `range`. Rules: every partition of a subscribed topic is assigned to exactly one subscriber. The
result depends only on the arguments.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import islice
from typing import Final, NamedTuple

from penstock_broker.groups.assignment import Assignment, PartitionId


class Subscriber(NamedTuple):
    """A member as seen by an assignor.

    Args:
        topics: ids of the topics that it subscribes to.
        instance_id: name of a static member; None for others.
        current: the partitions of its previous target.
    """

    topics: Set[uuid.UUID]
    instance_id: str | None
    current: Assignment


Assignor = Callable[[Mapping[str, Subscriber], Mapping[uuid.UUID, int]], dict[str, Assignment]]
"""Computes the assignment by member id from the members and the partition counts of topics."""


def assign_uniform(members: Mapping[str, Subscriber], partitions: Mapping[uuid.UUID, int]) -> dict[str, Assignment]:
    """Assign partitions as evenly as the subscriptions allow, moving as few as possible.

    Args:
        members: by member id.
        partitions: number of partitions by topic.
    """
    given: dict[str, set[PartitionId]] = {}
    taken: set[PartitionId] = set()
    for member_id in sorted(members):
        topics, _, current = members[member_id]
        kept = {each for each in current if each[0] in topics and each[1] < partitions.get(each[0], 0)} - taken
        given[member_id] = kept
        taken |= kept
    if len({frozenset(member.topics) for member in members.values()}) == 1:
        topics = next(iter(members.values())).topics
        wanted = [
            (topic, number) for topic in sorted(topics & partitions.keys()) for number in range(partitions[topic])
        ]
        return _shared(wanted, given)
    readers = {
        topic: [member_id for member_id in sorted(members) if topic in members[member_id].topics]
        for topic in sorted(partitions)
    }
    for topic, count in sorted(partitions.items()):
        for partition in ((topic, number) for number in range(count)):
            if partition not in taken and readers[topic]:
                given[min(readers[topic], key=lambda member_id: len(given[member_id]))].add(partition)
    _balance(given, readers)
    return {member_id: frozenset(assigned) for member_id, assigned in given.items()}


def _shared(wanted: Sequence[PartitionId], given: Mapping[str, set[PartitionId]]) -> dict[str, Assignment]:
    """Distribute partitions among members with the same topics.

    Members with more partitions get the remainder of the division.
    """
    quota, left_over = divmod(len(wanted), len(given))
    most_first = sorted(given, key=lambda member_id: -len(given[member_id]))
    quotas = {member_id: quota + (rank < left_over) for rank, member_id in enumerate(most_first)}
    kept = {member_id: sorted(given[member_id])[: quotas[member_id]] for member_id in given}
    taken = {partition for partitions in kept.values() for partition in partitions}
    rest = (partition for partition in wanted if partition not in taken)
    return {
        member_id: frozenset([*kept[member_id], *islice(rest, quotas[member_id] - len(kept[member_id]))])
        for member_id in given
    }


def _balance(given: dict[str, set[PartitionId]], readers: Mapping[uuid.UUID, list[str]]) -> None:
    """Move partitions to members with at least two fewer, until no such move is left."""
    is_moving = True
    while is_moving:
        is_moving = False
        for giver in sorted(given, key=lambda member_id: -len(given[member_id])):
            for partition in sorted(given[giver]):
                taker = min(readers[partition[0]], key=lambda member_id: len(given[member_id]))
                if len(given[giver]) - len(given[taker]) < 2:
                    continue
                given[giver].remove(partition)
                given[taker].add(partition)
                is_moving = True


def assign_range(members: Mapping[str, Subscriber], partitions: Mapping[uuid.UUID, int]) -> dict[str, Assignment]:
    """Assign each member a range of each topic.

    Members with the same topics get the same partition numbers of all of them.

    Args:
        members: by member id; static members are ordered by their names, so they keep their ranges.
        partitions: number of partitions by topic.
    """
    given: dict[str, set[PartitionId]] = {member_id: set() for member_id in members}
    in_order = sorted(members, key=lambda member_id: (members[member_id].instance_id or member_id, member_id))
    for topic, count in partitions.items():
        readers = [member_id for member_id in in_order if topic in members[member_id].topics]
        start = 0
        for number, member_id in enumerate(readers):
            size = count // len(readers) + (number < count % len(readers))
            given[member_id] |= {(topic, partition) for partition in range(start, start + size)}
            start += size
    return {member_id: frozenset(assigned) for member_id, assigned in given.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""The assignors by name; the first is the default."""
