"""Lets a run make the calls again that have failed in earlier runs.

The answers topics keep the failures. A run ignores those before the ends that these topics had at its start, and the
planner makes the calls of their records again. Each epoch of the run has the ends in its offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.host.spark.checkpoints.checkpoint import Metadata
from penstock.host.spark.checkpoints.topology_versions import has_written_part
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.epoch_offset import EpochOffset
from penstock.host.spark.protocol.transactions import commits_topic
from penstock.record import TopicPartition


def calling_again(
    description: ApplicationDescription, ends: Mapping[TopicPartition, int], metadata: Metadata
) -> ApplicationDescription:
    """Return `description` for a run that ignores the failed answers before `ends`.

    An epoch that an earlier run planned ignores them too, unless a part of its output is committed: its tasks have
    accepted its answers then.

    Args:
        description: of the run, in its topology version.
        ends: the ends of the inputs at the start.
        metadata: of the topology version.
    """
    start, planned = description.start, description.planned
    assert start is not None, "the description of a run has a topology version"
    again = {
        topic: [ends.get(TopicPartition(topic, number), 0) for number in range(count)]
        for topic, count in description.placement.task_topics.items()
        if topic in description.topology.answers_topics
    }
    start = replace(start, call_again_before=again)
    if planned is not None and _reads_answers(description, start, planned) and not _has_output(description, metadata):
        planned = replace(planned, call_again_before=again)
    return replace(description, start=start, planned=planned)


def _has_output(description: ApplicationDescription, metadata: Metadata) -> bool:
    """Return whether a part of the planned epoch's output is committed."""
    assert description.planned is not None
    has_markers = commits_topic(description.application_id) in description.topic_partitions
    return has_markers and has_written_part(description, metadata, description.planned.epoch)


def _reads_answers(description: ApplicationDescription, start: EpochOffset, end: EpochOffset) -> bool:
    topics = description.topology.answers_topics
    return any(end.positions.get(topic) != start.positions.get(topic) for topic in topics)
