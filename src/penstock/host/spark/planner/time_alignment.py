"""The common time of topics that advance together.

If an epoch cannot read all records, it reads topics whose records meet in a task up to one common time, chosen so that
most of the quota is used. Otherwise it would read a year of one topic and a day of another, and the records of the
first would wait in a task and be carried from epoch to epoch. `penstock.max.skew.ms` is the first step in the search
for that time. Brokers only know the timestamps of records, so topics with another kind of timestamp extractor are not
aligned, and neither are the topics that they meet. Pure functions; a function argument asks the brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

from penstock.host.deployment.record_time import topics_with_own_time
from penstock.host.spark.protocol.placement import Placement
from penstock.plan.subtopology import BuiltTopology

USED_SHARE = 0.8
"""Minimum used share of the quota of an epoch that cannot read everything, if the times allow it.

A higher share needs more requests to brokers.
"""

LAST_TIME_MS = 1 << 62
"""A time (ms) after all records."""


def aligned_topics(
    topology: BuiltTopology, placement: Placement, config: Mapping[str, Any], with_history: Set[str] = frozenset()
) -> frozenset[str]:
    """Return the broker topics that advance together, because they meet others in some task.

    So do the partitions of one topic that meet there after a repartition, and those of a topic of `with_history`: the
    task would drop the records of the slower ones as late.
    """
    if config["penstock.max.skew.ms"] == 0:
        return frozenset()
    own_time = topics_with_own_time(topology, config)
    groups: list[frozenset[str]] = []
    repartitioned = set[str](with_history)
    for spec in topology.subtopologies:
        meeting = frozenset[str]().union(*(placement.upstream[topic] for topic in spec.source_topics))
        repartitioned.update(*(placement.upstream[topic] - {topic} for topic in spec.source_topics))
        touched = [group for group in groups if group & meeting]
        groups = [group for group in groups if not group & meeting] + [meeting.union(*touched)]
    together = (group for group in groups if not group & own_time and (len(group) > 1 or group & repartitioned))
    return frozenset[str]().union(*together)


def common_time(begin_ms: int, bytes_before: Callable[[int], float], quota: float, skew_ms: int) -> int:
    """Return the exclusive time (ms) that an epoch reads up to.

    It is `begin_ms` or later, so that the epoch has at most `quota` bytes and at least USED_SHARE of them. If the
    records of a single ms make that impossible, return the first time with more.

    Args:
        begin_ms: the time before which the last epoch read.
        bytes_before: returns the number of unread bytes older than a time; it never decreases.
        quota: bytes of the epoch; more bytes than that are unread.
        skew_ms: the first step between tried times; 1 or more.
    """
    fits, enough = begin_ms, max(USED_SHARE * quota, 1)
    if (found := bytes_before(fits)) > quota:
        return fits
    step = skew_ms
    while (too_far := min(fits + step, LAST_TIME_MS)) < LAST_TIME_MS and (more := bytes_before(too_far)) <= quota:
        fits, found, step = too_far, more, 2 * step
    while found < enough and too_far - fits > 1:
        middle = (fits + too_far) // 2
        if (more := bytes_before(middle)) <= quota:
            fits, found = middle, more
        else:
            too_far = middle
    return fits if found >= enough else too_far
