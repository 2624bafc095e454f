"""The plan of a group: what it promises for all groups, and a few that show its choices."""

from __future__ import annotations

import hashlib
from collections import Counter
from fractions import Fraction
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.host.threads.assignor import Candidate, LeaderState, Plan, assign, owners
from penstock.host.threads.assignor import given as given_at_once
from penstock.host.threads.subscription import digest
from penstock.plan.subtopology import TaskId

TASKS = st.sets(st.builds(TaskId, st.integers(0, 3), st.integers(0, 7)), max_size=24)


Group = tuple[list[Candidate], set[TaskId]]


@st.composite
def groups(draw: st.DrawFn) -> Group:
    """Members with tasks that overlap, have gone or belong to several, and the tasks of the application."""
    tasks = draw(TASKS)
    others = st.sets(st.sampled_from(sorted(tasks)), max_size=24) if tasks else st.just(set[TaskId]())
    owned = others | TASKS
    count = draw(st.integers(1, 6))
    members = [
        Candidate(
            f"m{n}",
            f"p{draw(st.integers(0, count))}",
            draw(st.integers(0, 3)),
            frozenset(draw(owned)),
            dict.fromkeys(draw(others), draw(st.integers(0, 40_000))),
            workers=draw(st.sampled_from([1, 1, 1, 2, 3, 8])),
        )
        for n in range(count)
    ]
    return members, tasks


def settled(members: list[Candidate], plan: Plan) -> list[Candidate]:
    """Return the members as they are when all have what the plan gives them."""
    return [one._replace(generation=9, owned=plan.active[one.member]) for one in members]


def copied(members: list[Candidate], plan: Plan, end: int) -> list[Candidate]:
    """Return the members as they are when the copies that the plan asks for are ready."""
    return [one._replace(positions=dict.fromkeys(plan.standby[one.member], end)) for one in members]


def check_sizes(members: list[Candidate], plan: Plan) -> None:
    """Check that each member has its share of the tasks by its workers, but for less than one."""
    tasks, workers = sum(map(len, plan.active.values())), sum(one.workers for one in members)
    for one in members:
        assert abs(len(plan.active[one.member]) - Fraction(tasks * one.workers, workers)) < 1


@settings(deadline=None)
@given(groups(), st.randoms())
def test_each_task_has_one_member_and_members_have_numbers_by_their_workers(group: Group, random: Random) -> None:
    members, tasks = group
    plan = assign(members, tasks)
    assert Counter(task for of_member in plan.active.values() for task in of_member) == Counter(tasks)
    check_sizes(members, plan)
    random.shuffle(members)
    assert assign(members, sorted(tasks, reverse=True)) == plan


@settings(deadline=None)
@given(groups())
def test_a_group_comes_to_rest(group: Group) -> None:
    members, tasks = group
    plan = assign(members, tasks)
    after = settled(members, plan)
    assert assign(after, tasks).active == plan.active
    assert given_at_once(plan, after) == plan.active


@settings(deadline=None)
@given(groups())
def test_no_more_tasks_move_than_must(group: Group) -> None:
    members, tasks = group
    plan = assign(members, tasks)
    owner = {task: member for task, member in owners(members).items() if task in tasks}
    had = Counter(owner.values())
    workers = sum(one.workers for one in members)
    most = {one.member: -(-len(tasks) * one.workers // workers) for one in members}
    kept = sum(task in plan.active[member] for task, member in owner.items())
    least = {one.member: len(tasks) * one.workers // workers for one in members}
    assert kept >= sum(min(had[member], least[member]) for member in least)
    assert all(len(plan.active[member]) <= most[member] for member in most)


@settings(deadline=None)
@given(groups())
def test_nobody_gets_a_task_that_another_still_has(group: Group) -> None:
    members, tasks = group
    owner = owners(members)
    for member, of_member in given_at_once(assign(members, tasks), members).items():
        assert {owner.get(task, member) for task in of_member} <= {member}


@settings(deadline=None)
@given(groups(), st.integers(0, 3))
def test_standbys_are_on_other_processes(group: Group, number: int) -> None:
    members, tasks = group
    plan = assign(members, tasks, tasks, LeaderState(standbys=number))
    process = {one.member: one.process for one in members}
    for task in tasks:
        where = [
            process[member]
            for of_members in (plan.active, plan.standby)
            for member, of_member in of_members.items()
            if task in of_member
        ]
        assert len(where) == len(set(where)) == min(1 + number, len(set(process.values())))


def group_of(*owned: set[TaskId]) -> list[Candidate]:
    return [Candidate(f"m{n}", f"p{n}", 1, frozenset(tasks)) for n, tasks in enumerate(owned)]


GRID = {TaskId(subtopology, number) for subtopology in range(2) for number in range(4)}


def test_a_new_member_takes_over_half_of_each_sub_topology() -> None:
    plan = assign(group_of(GRID, set()), GRID)
    assert plan.active["m1"] <= GRID
    assert Counter(task.subtopology for task in plan.active["m0"]) == {0: 2, 1: 2}
    assert Counter(task.subtopology for task in plan.active["m1"]) == {0: 2, 1: 2}


def test_a_member_with_more_workers_has_more_tasks_of_each_sub_topology() -> None:
    tasks = {TaskId(subtopology, number) for subtopology in range(2) for number in range(9)}
    many, one = group_of(set(), set())
    plan = assign([many._replace(workers=8), one], tasks)
    assert Counter(task.subtopology for task in plan.active["m0"]) == {0: 8, 1: 8}
    assert Counter(task.subtopology for task in plan.active["m1"]) == {0: 1, 1: 1}
    grown = settled([many._replace(workers=8), one._replace(workers=8)], plan)
    after = assign(grown, tasks)
    assert [len(after.active[member]) for member in ("m0", "m1")] == [9, 9]
    assert plan.active["m1"] <= after.active["m1"]


def test_members_without_workers_plan_as_the_first_version_of_the_rules_did() -> None:
    random, plans = Random(1), hashlib.sha256()
    for _ in range(200):
        tasks = sorted({TaskId(random.randrange(4), random.randrange(8)) for _ in range(random.randrange(24))})
        members = [
            Candidate(
                f"m{number}",
                f"p{random.randrange(3)}",
                random.randrange(4),
                frozenset(random.sample(tasks, random.randrange(len(tasks) + 1))),
                {task: random.randrange(40_000) for task in tasks},
            )
            for number in range(random.randrange(1, 6))
        ]
        state = LeaderState(dict.fromkeys(tasks, 40_000), random.randrange(3))
        plans.update(digest(assign(members, tasks, tasks, state)))
    assert plans.hexdigest() == "49d478cc0cd1876da94005f51bd8243e9dc3c48065eb6a503c2075ccabcaf187"


def test_the_tasks_of_a_member_that_has_gone_are_all_that_moves() -> None:
    plan = assign(group_of(set(), set(), set()), GRID)
    left = [one for one in settled(group_of(set(), set(), set()), plan) if one.member != "m1"]
    after = assign(left, GRID)
    for one in left:
        assert one.owned <= after.active[one.member]


def test_a_task_goes_to_a_member_that_has_its_state() -> None:
    task = TaskId(0, 0)
    first, second, third = group_of(set(), set(), set())
    second, third = second._replace(positions={task: 4}), third._replace(positions={task: 5})
    state = LeaderState({task: 7}, standbys=1)
    assert assign([first, second, third], [task], [task], state).active["m2"] == {task}
    first = first._replace(owned=frozenset([task]))
    assert assign([first, second, third], [task], [task], state).standby["m2"] == {task}


END = 30_000


@settings(deadline=None, max_examples=30)
@given(groups(), st.integers(0, 2), st.integers(1, 3))
def test_tasks_move_behind_their_copies_until_members_have_equal_numbers(
    group: Group, standbys: int, warm_ups: int
) -> None:
    members, tasks = group
    state = LeaderState(dict.fromkeys(tasks, END), standbys, warm_ups=warm_ups)
    owned: dict[TaskId, str] = {}
    for _ in range(len(tasks) + 2):
        plan = assign(members, tasks, tasks, state)
        assert Counter(task for of_member in plan.active.values() for task in of_member) == Counter(tasks)
        moving = sum(map(len, plan.standby.values())) - len(tasks) * standbys
        assert moving <= warm_ups
        for one in members:
            for task in plan.active[one.member]:
                others = [each.positions.get(task, 0) for each in members]
                is_ready = owned.get(task) == one.member or one.positions.get(task, 0) >= END - state.acceptable_lag
                assert is_ready or task not in owned or max(others) < END - state.acceptable_lag
        owned = {task: member for member, of_member in plan.active.items() for task in of_member}
        members = copied(settled(members, plan), plan, END)
        if not plan.waiting:
            break
    assert not plan.waiting
    check_sizes(members, plan)


def test_a_task_stays_with_its_owner_until_the_new_member_has_a_copy() -> None:
    first, second = group_of({TaskId(0, 0), TaskId(0, 1)}, set())
    tasks = sorted(first.owned)
    state = LeaderState(dict.fromkeys(tasks, END))
    plan = assign([first, second], tasks, tasks, state)
    assert (plan.active["m0"], plan.active["m1"]) == (first.owned, frozenset())
    [moving] = plan.standby["m1"]
    assert plan.waiting == {moving}
    nearly = second._replace(positions={moving: END - 10_001})
    assert assign([first, nearly], tasks, tasks, state) == plan
    ready = second._replace(positions={moving: END - 10_000})
    moved = assign([first, ready], tasks, tasks, state)
    assert (moved.active["m1"], moved.waiting) == (frozenset([moving]), frozenset())


def test_a_task_whose_state_nobody_has_goes_to_its_member_at_once() -> None:
    tasks = [TaskId(0, 0), TaskId(0, 1)]
    plan = assign(group_of(set(), set()), tasks, tasks, LeaderState(dict.fromkeys(tasks, END)))
    assert [len(plan.active[member]) for member in ("m0", "m1")] == [1, 1]
    assert not plan.waiting


def test_of_two_members_with_one_task_the_one_of_the_later_generation_has_it() -> None:
    task = TaskId(0, 0)
    old, new = group_of({task}, {task})
    assert owners([old._replace(generation=7), new]) == {task: "m0"}
    assert owners([old, new._replace(generation=7)]) == {task: "m1"}


def test_a_standby_is_in_another_zone_though_a_member_in_the_same_one_has_its_state() -> None:
    task = TaskId(0, 0)
    members = group_of({task}, set(), set())
    first, second, third = (one._replace(tags={"zone": zone}) for one, zone in zip(members, "aab", strict=True))
    second = second._replace(positions={task: 7})
    members = [first, second, third]
    state = LeaderState({task: 7}, standbys=1, tags=["zone"])
    assert assign(members, [task], [task], state).standby["m2"] == {task}
    assert assign(members, [task], [task], state._replace(tags=())).standby["m1"] == {task}
    everywhere = assign(members, [task], [task], state._replace(standbys=2))
    assert (everywhere.standby["m1"], everywhere.standby["m2"]) == ({task}, {task})
