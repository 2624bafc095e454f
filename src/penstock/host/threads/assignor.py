"""The assignment of tasks to the members of a group.

Pure and deterministic: every member computes the plan from the same inputs and compares it (`subscription`).

Rules, in order of priority: each task has one member; members have tasks in proportion to their workers, to within one
task; a task stays where it is; a task goes to the member that lacks the fewest records of its state; the tasks of a
sub-topology are spread over members. A plan that is fed back as input does not change, so a group comes to rest.
Standbys are in other processes than their task, preferably in processes with other tags, such as another zone
(KIP-708).

If the new member of a task lacks more than `acceptable.recovery.lag` records of its state, the task stays with a member
that has them, and the new member keeps a copy: a warm-up. It gets the task in a later plan, which the leader requests
repeatedly (KIP-441, Kafka class: HighAvailabilityTaskAssignor).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Final, NamedTuple

from penstock.plan.subtopology import TaskId

VERSION: Final = 2
"""The version of the rules. A group with several versions plans by the lowest. In version 1, members have equal numbers
of tasks, regardless of their workers."""


class Candidate(NamedTuple):
    """A member of the group.

    Args:
        member: its unique name.
        process: its process; a task and its standbys are in different processes.
        generation: the group generation in which it had its tasks.
        owned: its tasks.
        positions: its state of other tasks, as the sum of the next offsets of their changelogs.
        tags: its values of `client.tag.`, by key.
        workers: the number of tasks that it can run at the same time.
    """

    member: str
    process: str
    generation: int
    owned: frozenset[TaskId]
    positions: Mapping[TaskId, int] = {}
    tags: Mapping[str, str] = {}
    workers: int = 1


class LeaderState(NamedTuple):
    """The leader's knowledge of the state of tasks, and its settings.

    Args:
        ends: the sum of the changelog ends of each task; other tasks have no lag on any member.
        standbys: the number of standbys of each stateful task (num.standby.replicas), limited by the number of
            processes.
        acceptable_lag: the most records that a member may lack to get a task (acceptable.recovery.lag).
        warm_ups: the most warm-ups at the same time (max.warmup.replicas).
        tags: the keys whose values should differ between a task and its standbys (rack.aware.assignment.tags).
    """

    ends: Mapping[TaskId, int] = {}
    standbys: int = 0
    acceptable_lag: int = 10_000
    warm_ups: int = 2
    tags: Sequence[str] = ()


NO_STATE: Final = LeaderState()
"""No known state, and no standbys."""


class Plan(NamedTuple):
    """The tasks and standbys of each member, by its name; warm-ups are standbys. waiting: the tasks that stay where
    they are until another member has their state."""

    active: Mapping[str, frozenset[TaskId]]
    standby: Mapping[str, frozenset[TaskId]]
    waiting: frozenset[TaskId] = frozenset()


Lag = Callable[[TaskId, Candidate], int]
"""Returns the number of records of a task's state that a member lacks."""


def owners(candidates: Collection[Candidate]) -> dict[TaskId, str]:
    """Return the owner of each task; of several claims, the latest generation wins."""
    result: dict[TaskId, str] = {}
    for one in sorted(candidates, key=lambda each: (each.generation, each.member)):
        result.update(dict.fromkeys(one.owned, one.member))
    return result


def assign(
    candidates: Collection[Candidate],
    tasks: Collection[TaskId],
    stateful: Collection[TaskId] = (),
    state: LeaderState = NO_STATE,
) -> Plan:
    """Return the plan of tasks and standbys for the members.

    Args:
        candidates: the members, at least one.
        tasks: the tasks of the application.
        stateful: the tasks that have standbys.
        state: the state of the stateful tasks.
    """
    members = sorted(candidates, key=lambda one: one.member)
    wanted = set(tasks)
    owner = {task: member for task, member in owners(members).items() if task in wanted}

    def lag(task: TaskId, one: Candidate) -> int:
        is_owner = owner.get(task) == one.member
        return 0 if is_owner else max(0, state.ends.get(task, 0) - one.positions.get(task, 0))

    target = _balanced(members, wanted, owner, lag)
    active = {member: set(of_member) for member, of_member in target.items()}
    moves: dict[TaskId, str] = {}
    for task in sorted(wanted & set(stateful)):
        [new] = (one for one in members if task in target[one.member])
        ready = [one for one in members if lag(task, one) <= state.acceptable_lag]
        if new not in ready and ready:
            keeper = min(
                ready,
                key=lambda one: (owner.get(task) != one.member, _load(active[one.member], one), one.member),
            )
            active[new.member].remove(task)
            active[keeper.member].add(task)
            moves[task] = new.member
    standby = _standbys(members, active, sorted(wanted & set(stateful)), state, moves, lag)
    warm_ups = [(task, member) for task, member in moves.items() if task not in standby[member]]
    for task, member in warm_ups[: state.warm_ups]:
        standby[member].add(task)
    return Plan(
        {member: frozenset(of_member) for member, of_member in active.items()},
        {member: frozenset(of_member) for member, of_member in standby.items()},
        frozenset(moves),
    )


def given(plan: Plan, candidates: Collection[Candidate]) -> dict[str, frozenset[TaskId]]:
    """Return the tasks of the plan that each member may have now. Tasks that another member still has follow when that
    member has given them up (KIP-429)."""
    owner = owners(candidates)
    return {
        member: frozenset(task for task in tasks if owner.get(task, member) == member)
        for member, tasks in plan.active.items()
    }


def _spread(tasks: Collection[TaskId]) -> Sequence[TaskId]:
    """Sort tasks so that the first of them are spread over the sub-topologies."""
    seen: Counter[int] = Counter()
    ranks = {}
    for task in sorted(tasks):
        ranks[task] = seen[task.subtopology], task
        seen[task.subtopology] += 1
    return sorted(ranks, key=lambda task: ranks[task])


def _balanced(
    members: Sequence[Candidate], wanted: Set[TaskId], owner: Mapping[TaskId, str], lag: Lag
) -> dict[str, set[TaskId]]:
    """Return the target tasks of each member: its share by workers, rounded down or up. The acceptable lag is
    ignored."""
    workers = sum(one.workers for one in members)
    shares = {one.member: divmod(len(wanted) * one.workers, workers) for one in members}
    larger = len(wanted) - sum(least for least, _ in shares.values())  # number of shares to round up
    active: dict[str, set[TaskId]] = {}

    def room(one: Candidate) -> int:
        least, rest = shares[one.member]
        return least + (rest > 0 and larger > 0)

    for one in members:
        mine = [task for task, member in owner.items() if member == one.member]
        active[one.member] = set(_spread(mine)[: room(one)])
        larger -= len(active[one.member]) > shares[one.member][0]
    placed = set[TaskId]().union(*active.values())
    for task in sorted(wanted - placed):
        free = [one for one in members if len(active[one.member]) < room(one)]
        chosen = min(free, key=lambda one: (*_cost(task, lag(task, one), active[one.member], one), one.member)).member
        larger -= len(active[chosen]) >= shares[chosen][0]
        active[chosen].add(task)
    return active


def _cost(task: TaskId, lag: int, of_member: Collection[TaskId], one: Candidate) -> tuple[int, float, float]:
    same = [each for each in of_member if each.subtopology == task.subtopology]
    return lag, _load(same, one), _load(of_member, one)


def _load(tasks: Collection[TaskId], one: Candidate) -> float:
    """Return the tasks per worker of a member with one more task."""
    return (len(tasks) + 1) / one.workers


def _standbys(
    members: Sequence[Candidate],
    active: Mapping[str, Collection[TaskId]],
    tasks: Sequence[TaskId],
    state: LeaderState,
    moves: Mapping[TaskId, str],
    lag: Lag,
) -> dict[str, set[TaskId]]:
    """Return the standbys of each member. The destination of a moving task is preferred for its standby."""
    result: dict[str, set[TaskId]] = {one.member: set() for one in members}
    for task in tasks:
        having = [one for one in members if task in active[one.member]]
        for _ in range(state.standbys):
            free = [one for one in members if all(one.process != other.process for other in having)]
            if not free:
                break
            chosen = min(
                free,
                key=lambda one: (
                    _shared_tags(one, having, state.tags),
                    moves.get(task) != one.member,
                    lag(task, one),
                    _load(result[one.member], one),
                    one.member,
                ),
            )
            result[chosen.member].add(task)
            having.append(chosen)
    return result


def _shared_tags(one: Candidate, having: Sequence[Candidate], tags: Sequence[str]) -> int:
    """Return the number of tags with a value shared by another owner of the task."""
    return sum(any(one.tags.get(tag) == other.tags.get(tag) for other in having) for tag in tags)
