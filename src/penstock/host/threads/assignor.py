"""Which member of a group has which tasks. Pure and deterministic: every member computes the plan from the same inputs,
and compares (`subscription`).

Rules, in this order: each task has one member; members have numbers of tasks in proportion to their workers, but for
less than one; a task stays where it is; a task goes to the member that lacks the least of its state; the tasks of a
sub-topology are spread over members. A plan that is the input of the next one stays as it is, so a group comes to rest.
Standbys are on other processes than their task, and where others are, on those with other tags, such as in another zone
(KIP-708).

A task whose new member lacks more than `acceptable.recovery.lag` records of its state stays with one that has them, and
the new member keeps a copy: a warm-up. It gets the task in a later plan, for which the leader asks again and again
(KIP-441, Kafka class: HighAvailabilityTaskAssignor).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Final, NamedTuple

from penstock.plan.subtopology import TaskId

VERSION: Final = 2
"""The version of the rules. Members of one group may have several: all of them plan by the lowest. By 1, members have
equal numbers of tasks, whatever their workers."""


class Candidate(NamedTuple):
    """A member of the group.

    Args:
        member: its name, which no other one has.
        process: the process that it is in; a task and its standbys are in different ones.
        generation: of the group, in which it had its tasks.
        owned: the tasks that it has.
        positions: how much it has of the state of other tasks, as the sum of the next offsets of their changelogs.
        tags: its values of `client.tag.`, by key.
        workers: how many tasks it can run at one time.
    """

    member: str
    process: str
    generation: int
    owned: frozenset[TaskId]
    positions: Mapping[TaskId, int] = {}
    tags: Mapping[str, str] = {}
    workers: int = 1


class LeaderState(NamedTuple):
    """What the leader knows of the state of tasks, and what it is set up with.

    Args:
        ends: of the changelogs of each task, as the sum of their ends; a task without is restored at once anywhere.
        standbys: the number of standbys of each of these tasks (num.standby.replicas), fewer where there are fewer
            processes.
        acceptable_lag: the records that a member may lack to get a task (acceptable.recovery.lag).
        warm_ups: the most warm-ups at one time (max.warmup.replicas).
        tags: the keys whose values are to differ between a task and its standbys (rack.aware.assignment.tags).
    """

    ends: Mapping[TaskId, int] = {}
    standbys: int = 0
    acceptable_lag: int = 10_000
    warm_ups: int = 2
    tags: Sequence[str] = ()


NO_STATE: Final = LeaderState()
"""Where nothing is known, and nothing is to be kept."""


class Plan(NamedTuple):
    """The tasks and the standbys of each member, by its name; warm-ups are standbys. waiting: the tasks that stay where
    they are until another member has their state."""

    active: Mapping[str, frozenset[TaskId]]
    standby: Mapping[str, frozenset[TaskId]]
    waiting: frozenset[TaskId] = frozenset()


Lag = Callable[[TaskId, Candidate], int]
"""How many records of the state of a task a member lacks."""


def owners(candidates: Collection[Candidate]) -> dict[TaskId, str]:
    """Return who has which task: of several that say so, the one of the latest generation."""
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
    """Return which member is to have which tasks.

    Args:
        candidates: the members, at least one.
        tasks: the tasks of the application.
        stateful: those of them that have standbys.
        state: of these.
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


def _balanced(
    members: Sequence[Candidate], wanted: Set[TaskId], owner: Mapping[TaskId, str], lag: Lag
) -> dict[str, set[TaskId]]:
    """Return the tasks of each member where all states are alike: its share by workers, rounded down or up."""
    workers = sum(one.workers for one in members)
    shares = {one.member: divmod(len(wanted) * one.workers, workers) for one in members}
    larger = len(wanted) - sum(least for least, _ in shares.values())  # shares that are rounded up
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
    """Return the tasks that a worker of a member would have with one more."""
    return (len(tasks) + 1) / one.workers


def _standbys(
    members: Sequence[Candidate],
    active: Mapping[str, Collection[TaskId]],
    tasks: Sequence[TaskId],
    state: LeaderState,
    moves: Mapping[TaskId, str],
    lag: Lag,
) -> dict[str, set[TaskId]]:
    """Return the standbys of each member; one is where its task is to move, if it is to."""
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
    """Return for how many tags a member has the value of another one that has the task."""
    return sum(any(one.tags.get(tag) == other.tags.get(tag) for other in having) for tag in tags)
