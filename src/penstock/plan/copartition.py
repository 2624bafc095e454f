"""Partition counts of co-partitioned topics: all topics of a group have equal counts.

Rules: repartition topics follow the user's own topics. Without those, they follow the counts that the user fixed;
otherwise they take the largest count. Error messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.errors import TopologyError


def check_copartitioned(groups: Iterable[frozenset[str]], fixed: Mapping[str, int]) -> None:
    """Check that the user's partition counts of co-partitioned topics are equal.

    Kafka: InternalTopologyBuilder.validateCopartition.

    Args:
        groups: sets of topics that must have equal numbers of partitions.
        fixed: the numbers of partitions that the user fixed, by repartition topic.

    Raises TopologyError if a group has only repartition topics with fixed counts, and the counts differ.
    """
    for group in groups:
        counts = {topic: fixed[topic] for topic in sorted(group) if topic in fixed}
        if len(counts) == len(group) and len(set(counts.values())) > 1:
            raise _not_same(counts)


def enforce_copartitioning(
    group: frozenset[str], partitions: Mapping[str, int | None], fixed: Mapping[str, int], external: Mapping[str, int]
) -> dict[str, int]:
    """Return the common number of partitions of each repartition topic of `group`.

    Kafka class: CopartitionedTopicsEnforcer.

    Args:
        group: topics that must have equal numbers of partitions.
        partitions: the number of partitions of each repartition topic on its own.
        fixed: the numbers of partitions that the user fixed, by repartition topic.
        external: the numbers of partitions of the user's own topics.

    Raises TopologyError if the numbers cannot be equal.
    """
    own = {topic: external[topic] for topic in sorted(group) if topic not in partitions}
    internal = sorted(topic for topic in group if topic in partitions)
    enforced = {topic: fixed[topic] for topic in internal if topic in fixed}
    if len(set(own.values())) > 1:
        raise TopologyError(f"Topics not co-partitioned: [{_shown(own)}]")
    if own:
        count = next(iter(own.values()))
    elif enforced:
        count = next(iter(enforced.values()))
        if len(set(enforced.values())) > 1:
            raise _not_same(enforced)
    else:
        count = max((partitions[topic] or 0 for topic in internal), default=0)
    for topic, given in enforced.items():
        if given != count:
            raise TopologyError(
                f"Number of partitions [{given}] of repartition topic [{topic}] doesn't match number of partitions "
                f"[{count}] of the source topic."
            )
    return dict.fromkeys(internal, count)


def _not_same(counts: Mapping[str, int]) -> TopologyError:
    return TopologyError(f"Following topics do not have the same number of partitions: [{_shown(counts)}]")


def _shown(counts: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"{topic}={count}" for topic, count in sorted(counts.items())) + "}"
