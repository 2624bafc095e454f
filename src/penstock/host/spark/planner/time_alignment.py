"""Topics that advance together in time: which they are, and up to which time an epoch reads them.

Where an epoch cannot read all that is there, topics whose records meet in a task are read up to one time, with which
most of the quota is used: a year of one is not read against a day of another, nor do records of one wait in a task, and
be carried from epoch to epoch, because the other was read less far. `penstock.max.skew.ms` is the step in which that
time is looked for first. What brokers know of times are the timestamps of records; so topics with a timestamp extractor
of another kind are left alone, and all that they meet. Pure functions; brokers are asked through a function that is
given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.host.spark.protocol.placement import Placement
from penstock.plan.subtopology import BuiltTopology, SourceSpec
from penstock.processor.timestamps import (
    fail_on_invalid_timestamp,
    log_and_skip_on_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
)

_OF_RECORDS = (
    None,
    fail_on_invalid_timestamp,
    log_and_skip_on_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
)
"""Extractors that take the timestamp of a record where it is valid."""

USED_SHARE = 0.8
"""An epoch that cannot read all uses this share of its quota at least, where times allow; more takes more questions to
brokers."""

LAST_TIME_MS = 1 << 62
"""A time (ms) behind all records."""


def aligned_topics(topology: BuiltTopology, placement: Placement, config: Mapping[str, Any]) -> frozenset[str]:
    """Return the topics of brokers that are to advance together: those that meet others in some task."""
    if config["penstock.max.skew.ms"] == 0:
        return frozenset()
    own_time = {
        topic
        for spec in topology.subtopologies
        for node in spec.nodes
        if isinstance(node, SourceSpec) and not node.repartition
        for topic in node.topics
        if (node.timestamp_extractor or config["default.timestamp.extractor"]) not in _OF_RECORDS
    }
    groups: list[frozenset[str]] = []
    for spec in topology.subtopologies:
        meeting = frozenset[str]().union(*(placement.upstream[topic] for topic in spec.source_topics))
        touched = [group for group in groups if group & meeting]
        groups = [group for group in groups if not group & meeting] + [meeting.union(*touched)]
    return frozenset[str]().union(*(group for group in groups if len(group) > 1 and not group & own_time))


def reach(begin_ms: int, bytes_before: Callable[[int], float], quota: float, skew_ms: int) -> int:
    """Return the time (ms) before which an epoch reads: not before `begin_ms`, and such that it has at most `quota`
    bytes, and USED_SHARE of them or more; where records of one ms make that impossible, the first with more.

    Args:
        begin_ms: the time before which the last epoch read.
        bytes_before: gives the bytes to be read that are older than a time; it never falls.
        quota: bytes of the epoch; there are more to be read.
        skew_ms: the first step in which times are tried; 1 or more.
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
