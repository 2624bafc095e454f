"""The sticky assignor of streams groups (Kafka class: StickyTaskAssignor), without standby tasks."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock_broker.groups.streams.tasks import TaskId, Tasks

ASSIGNOR: Final = "sticky"
"""The name of the assignor."""


class TaskClient(NamedTuple):
    """A member as seen by the assignor.

    Args:
        process_id: its process.
        current: the tasks that it has now.
    """

    process_id: str
    current: Tasks


def assign_sticky(members: Mapping[str, TaskClient], tasks: Iterable[TaskId]) -> dict[str, Tasks]:
    """Assign each task to one member: to its present one, as far as the loads of members allow it.

    The others go to the process with the fewest tasks for each of its members, and there to the member with the fewest.

    Args:
        members: by member id; at least one.
        tasks: the tasks to assign.
    """
    wanted = sorted(tasks, key=lambda task: (task[1], task[0]))
    given = _kept(members, wanted)
    kept = set().union(*given.values())
    processes: dict[str, list[tuple[int, str]]] = {}
    for member_id in sorted(members):
        processes.setdefault(members[member_id].process_id, []).append((len(given[member_id]), member_id))
    loads = []
    for process_id, counts in processes.items():
        heapq.heapify(counts)
        loads.append((sum(count for count, _ in counts) / len(counts), process_id))
    heapq.heapify(loads)
    for task in sorted(set(wanted) - kept):
        load, process_id = loads[0]
        counts = processes[process_id]
        count, member_id = counts[0]
        given[member_id].add(task)
        heapq.heapreplace(counts, (count + 1, member_id))
        heapq.heapreplace(loads, (load + 1 / len(counts), process_id))
    return {member_id: frozenset(assigned) for member_id, assigned in given.items()}


def _kept(members: Mapping[str, TaskClient], tasks: Iterable[TaskId]) -> dict[str, set[TaskId]]:
    """Return the tasks that members keep, up to an equal share for each."""
    owners = {task: member_id for member_id in sorted(members) for task in members[member_id].current}
    given: dict[str, set[TaskId]] = {member_id: set() for member_id in members}
    wanted = list(tasks)
    open_tasks, open_members = len(wanted), len(members)
    share = -(-open_tasks // open_members)
    for task in wanted:
        owner = owners.get(task)
        if owner is None or len(given[owner]) >= share:
            continue
        given[owner].add(task)
        if len(given[owner]) == share:
            # The share is rounded up, so the members that have it leave less for the others.
            open_tasks, open_members = open_tasks - share, open_members - 1
            share = -(-open_tasks // open_members) if open_members else 0
    return given
