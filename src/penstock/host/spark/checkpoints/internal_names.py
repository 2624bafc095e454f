"""The state of an application under another application.id: its internal topics have other names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.host.spark.checkpoints.carried import read_carried, write_carried
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Metadata
from penstock.host.spark.checkpoints.task_segments import with_clocks
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.record import TopicPartition
from penstock.task.task_checkpoint import TaskCheckpoint

ROW_BYTES: Final = 1024 * 1024
"""Limit of a rewritten batch of carried rows, in bytes."""


def new_names(metadata: Metadata, application_id: str) -> dict[str, str]:
    """Return the new names of the application's internal topics, which begin with its application.id."""
    old = f"{metadata.application_id}-"
    if metadata.application_id == application_id:
        return {}
    topics = metadata.shape["partitions of source topics"]
    read = set(metadata.begin)
    return {
        topic: f"{application_id}-{topic[len(old) :]}"
        for topic in topics
        if topic.startswith(old) and topic not in read
    }


def renamed_shape(shape: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the shape of a program with the new names of internal topics."""
    counts = {names.get(topic, topic): count for topic, count in shape["partitions of source topics"].items()}
    topics = {
        subtopology: sorted(names.get(topic, topic) for topic in read) for subtopology, read in shape["topics"].items()
    }
    return {**shape, "partitions of source topics": dict(sorted(counts.items())), "topics": topics}


def renamed_entry(
    checkpoint: Checkpoint, task: str, entry: TaskEntry, names: Mapping[str, str], epoch: int
) -> TaskEntry:
    """Return the entry of a task with the new names of internal topics.

    Its clocks and carried rows have these names.
    """
    if not names:
        return entry
    if entry.carried is not None:
        places = [place for _, place in entry.places(task)]
        rows = (row._replace(topic=names.get(row.topic, row.topic)) for row in read_carried(checkpoint, places))
        entry = replace(entry, carried=write_carried(checkpoint, task, epoch, (), rows, ROW_BYTES))
    if not entry.head:
        return entry

    def renamed(times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {TopicPartition(names.get(tp.topic, tp.topic), tp.partition): time for tp, time in times.items()}

    def changed(clocks: TaskCheckpoint) -> TaskCheckpoint:
        times, lanes = renamed(clocks.partition_times), renamed(clocks.lane_offsets)
        return replace(clocks, partition_times=times, lane_offsets=lanes)

    return with_clocks(checkpoint, task, entry, changed)
