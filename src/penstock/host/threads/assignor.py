"""Which member of a group has which tasks. Pure and deterministic: every member computes the plan from the same inputs,
and compares (`subscription`).

Rules, in this order: each task has one member; members have equal numbers of tasks, but for one; a task stays where it
is; a task goes to a member that has its state; the tasks of a sub-topology are spread over the members. A plan that is
the input of the next one stays as it is, so a group comes to rest. Standbys are on other processes than their task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.plan.subtopology import TaskId

VERSION: Final = 1
"""The version of the rules. Members of one group may have several: all of them plan by the lowest."""


class Candidate(NamedTuple):
    """A member of the group.

    Args:
        member: its name, which no other one has.
        process: the process that it is in; a task and its standbys are in different ones.
        generation: of the group, in which it had its tasks.
        owned: the tasks that it has.
        held: the tasks whose state it has on its disk.
    """

    member: str
    process: str
    generation: int
    owned: frozenset[TaskId]
    held: frozenset[TaskId] = frozenset()


class Plan(NamedTuple):
    """The tasks and the standbys of each member, by its name."""

    active: Mapping[str, frozenset[TaskId]]
    standby: Mapping[str, frozenset[TaskId]]


def owners(candidates: Collection[Candidate]) -> dict[TaskId, str]:
    """Return who has which task: of several that say so, the one of the latest generation."""
    result: dict[TaskId, str] = {}
    for one in sorted(candidates, key=lambda each: (each.generation, each.member)):
        result.update(dict.fromkeys(one.owned, one.member))
    return result


def assign(
    candidates: Collection[Candidate], tasks: Collection[TaskId], stateful: Collection[TaskId] = (), standbys: int = 0
) -> Plan:
    """Return which member is to have which tasks.

    Args:
        candidates: the members, at least one.
        tasks: the tasks of the application.
        stateful: those of them that have standbys.
        standbys: the number of standbys of each of these; fewer where there are fewer processes.
    """
    members = sorted(candidates)
    wanted = set(tasks)
    owner = {task: member for task, member in owners(members).items() if task in wanted}
    least, larger = divmod(len(wanted), len(members))
    active: dict[str, set[TaskId]] = {}
    for one in members:
        mine = [task for task, member in owner.items() if member == one.member]
        room = least + (larger > 0)
        active[one.member] = set(_spread(mine)[:room])
        larger -= len(active[one.member]) > least
    placed = set[TaskId]().union(*active.values())
    for task in sorted(wanted - placed):
        free = [one for one in members if len(active[one.member]) < least + (larger > 0)]
        chosen = min(free, key=lambda one: _cost(task, one, active[one.member]))
        larger -= len(active[chosen.member]) >= least
        active[chosen.member].add(task)
    return Plan(
        {member: frozenset(of_member) for member, of_member in active.items()},
        _standbys(members, active, sorted(wanted & set(stateful)), standbys),
    )


def given(plan: Plan, candidates: Collection[Candidate]) -> dict[str, frozenset[TaskId]]:
    """Return the tasks that each member may have at once: those of its plan that no other member has still. The others
    follow when their owners have given them up (KIP-429)."""
    owner = owners(candidates)
    return {
        member: frozenset(task for task in tasks if owner.get(task, member) == member)
        for member, tasks in plan.active.items()
    }


def _spread(tasks: Collection[TaskId]) -> Sequence[TaskId]:
    """Return tasks so that the first of them are spread over the sub-topologies."""
    seen: Counter[int] = Counter()
    ranks = {}
    for task in sorted(tasks):
        ranks[task] = seen[task.subtopology], task
        seen[task.subtopology] += 1
    return sorted(ranks, key=lambda task: ranks[task])


def _cost(task: TaskId, candidate: Candidate, of_member: Collection[TaskId]) -> tuple[bool, int, int, str]:
    of_subtopology = sum(each.subtopology == task.subtopology for each in of_member)
    return task not in candidate.held, of_subtopology, len(of_member), candidate.member


def _standbys(
    members: Sequence[Candidate], active: Mapping[str, Collection[TaskId]], tasks: Sequence[TaskId], number: int
) -> dict[str, frozenset[TaskId]]:
    result: dict[str, set[TaskId]] = {one.member: set() for one in members}
    for task in tasks:
        processes = {one.process for one in members if task in active[one.member]}
        for _ in range(number):
            free = [one for one in members if one.process not in processes]
            if not free:
                break
            chosen = min(free, key=lambda one: (task not in one.held, len(result[one.member]), one.member))
            result[chosen.member].add(task)
            processes.add(chosen.process)
    return {member: frozenset(of_member) for member, of_member in result.items()}
