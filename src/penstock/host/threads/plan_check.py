"""Checks that stateful tasks keep their partitions and changelogs (KIP-28), before a plan is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.client.api import OffsetAndMetadata
from penstock.host.commits.committing import committed_task
from penstock.host.deployment.internal_topics import wrong_partitions
from penstock.host.deployment.layout import Layout
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition

_MOST_NAMED: Final = 3


def partitions_with_state(layout: Layout) -> list[TopicPartition]:
    """Return the partitions of the tasks that have changelogs."""
    return sorted(p for task, group in layout.groups.items() if layout.changelogs(task) for p in group)


def refused_plan(
    layout: Layout, topics: Mapping[str, int], committed: Mapping[TopicPartition, OffsetAndMetadata]
) -> str | None:
    """Return the reason not to assign the tasks of `layout`, or None if allowed.

    Tasks must not be assigned if a partition would move away from the task with the state of its keys, or if a task
    would have no partition of its changelog.

    Args:
        layout: the tasks.
        topics: the number of partitions of each existing topic.
        committed: the offsets of the group, at least those of `partitions_with_state`.
    """
    moved = moved_partitions(layout, committed)
    return moved if moved is not None else next(iter(wrong_partitions(layout, topics)), None)


def moved_partitions(layout: Layout, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> str | None:
    """Return an error text if partitions would leave the state of their keys, or None.

    See `refused_plan`.
    """
    asked = [partition for partition in partitions_with_state(layout) if partition in committed]
    before = {p: committed_task(layout.readers[p].subtopology, p, committed[p]) for p in asked}
    moved = [partition for partition in asked if before[partition] != layout.readers[partition]]
    if not moved:
        return None
    subtopology = layout.readers[moved[0]].subtopology
    named = ", ".join(f"{p} from task {before[p]} to {layout.readers[p]}" for p in moved[:_MOST_NAMED])
    return (
        f"partition.grouper moves {len(moved)} of {len(asked)} partitions to other tasks ({named}), and the state of "
        f"their keys stays behind. Sub-topology {subtopology} had {_count(before.values(), subtopology)} tasks, and "
        f"would have {_count(layout.groups, subtopology)}. Set the former partition.grouper again, or process "
        "everything again with another application.id, or after `penstock reset`."
    )


def _count(tasks: Iterable[TaskId], subtopology: int) -> int:
    return len({task for task in tasks if task.subtopology == subtopology})
