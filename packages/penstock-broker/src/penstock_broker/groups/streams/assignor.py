"""The sticky assignor of streams groups (Kafka class: StickyTaskAssignor), without standby tasks."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock_broker.groups.streams.task_offsets import NO_OFFSETS, TaskOffsets
from penstock_broker.groups.streams.tasks import TaskId, Tasks

ASSIGNOR: Final = "sticky"
"""The name of the assignor."""


class TaskClient(NamedTuple):
    """A member as seen by the assignor.

    Args:
        process_id: its process.
        current: the tasks that it has now.
        offsets: how far its state of other tasks is, in records.
    """

    process_id: str
    current: Tasks
    offsets: TaskOffsets = NO_OFFSETS


def assign_sticky(members: Mapping[str, TaskClient], tasks: Iterable[TaskId]) -> dict[str, Tasks]:
    """Assign each task to one member: to its present one, as far as the loads of members allow it.

    Then a member with state of the task gets it, with the same limit. The others go to the process with the fewest
    tasks for each of its members, and there to the member with the fewest.

    Args:
        members: by member id; at least one.
        tasks: the tasks to assign.
    """
    wanted = sorted(tasks, key=lambda task: (task[1], task[0]))
    shares = _Shares(members, len(wanted))
    owners = {task: member_id for member_id in sorted(members) for task in members[member_id].current}
    without_owner = [task for task in wanted if not shares.give(task, owners.get(task))]
    holders = _holders(members)
    without_state = [task for task in without_owner if not shares.give(task, shares.choose(holders.get(task, ())))]
    _spread(members, shares.given, sorted(without_state))
    return {member_id: frozenset(assigned) for member_id, assigned in shares.given.items()}


def _holders(members: Mapping[str, TaskClient]) -> dict[TaskId, list[str]]:
    """Return the members with state by task, those with the highest offset first."""
    holders: dict[TaskId, list[str]] = {}
    for member_id in sorted(members):
        for task in members[member_id].offsets:
            holders.setdefault(task, []).append(member_id)
    for task, listed in holders.items():
        listed.sort(key=lambda member_id: -members[member_id].offsets[task])
    return holders


class _Shares:
    """The tasks given to members, up to an equal share for each.

    Args:
        members: by member id.
        task_count: number of tasks to give.

    Attributes:
        given: the tasks by member id.
    """

    def __init__(self, members: Mapping[str, TaskClient], task_count: int) -> None:
        self.given: dict[str, set[TaskId]] = {member_id: set() for member_id in members}
        self._members = members
        self._sizes = Counter(each.process_id for each in members.values())
        self._counts = Counter[str]()
        self._open_tasks = task_count
        self._open_members = len(members)
        self._share = -(-task_count // len(members))

    def give(self, task: TaskId, member_id: str | None) -> bool:
        """Give a task to a member that has room for it; return whether it got the task."""
        if member_id is None or len(self.given[member_id]) >= self._share:
            return False
        self.given[member_id].add(task)
        self._counts[self._members[member_id].process_id] += 1
        if len(self.given[member_id]) == self._share:
            # The share is rounded up, so the members that have it leave less for the others.
            self._open_tasks -= self._share
            self._open_members -= 1
            self._share = -(-self._open_tasks // self._open_members) if self._open_members else 0
        return True

    def choose(self, holders: Iterable[str]) -> str | None:
        """Return the first of some members, or a later one if it and its process have less load."""
        chosen, least = None, (0.0, 0)
        for member_id in holders:
            process_id = self._members[member_id].process_id
            load = self._counts[process_id] / self._sizes[process_id], len(self.given[member_id])
            if chosen is None or (load[0] < least[0] and load[1] < least[1]):
                chosen, least = member_id, load
        return chosen


def _spread(members: Mapping[str, TaskClient], given: Mapping[str, set[TaskId]], tasks: Iterable[TaskId]) -> None:
    """Give tasks to the members with the least load."""
    processes: dict[str, list[tuple[int, str]]] = {}
    for member_id in sorted(members):
        processes.setdefault(members[member_id].process_id, []).append((len(given[member_id]), member_id))
    loads = []
    for process_id, counts in processes.items():
        heapq.heapify(counts)
        loads.append((sum(count for count, _ in counts) / len(counts), process_id))
    heapq.heapify(loads)
    for task in tasks:
        load, process_id = loads[0]
        counts = processes[process_id]
        count, member_id = counts[0]
        given[member_id].add(task)
        heapq.heapreplace(counts, (count + 1, member_id))
        heapq.heapreplace(loads, (load + 1 / len(counts), process_id))
