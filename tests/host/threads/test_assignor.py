"""The plan of a group: what it promises for all groups, and a few that show its choices."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.host.threads.assignor import Candidate, Plan, assign, owners
from penstock.host.threads.assignor import given as given_at_once
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
            frozenset(draw(others)),
        )
        for n in range(count)
    ]
    return members, tasks


def settled(members: list[Candidate], plan: Plan) -> list[Candidate]:
    """Return the members as they are when all have what the plan gives them."""
    return [one._replace(generation=9, owned=plan.active[one.member]) for one in members]


@settings(deadline=None)
@given(groups(), st.randoms())
def test_each_task_has_one_member_and_members_have_equal_numbers(group: Group, random: Random) -> None:
    members, tasks = group
    plan = assign(members, tasks)
    assert Counter(task for of_member in plan.active.values() for task in of_member) == Counter(tasks)
    sizes = [len(plan.active[one.member]) for one in members]
    assert max(sizes) - min(sizes) <= 1
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
def test_nobody_gets_a_task_that_another_still_has(group: Group) -> None:
    members, tasks = group
    owner = owners(members)
    for member, of_member in given_at_once(assign(members, tasks), members).items():
        assert {owner.get(task, member) for task in of_member} <= {member}


@settings(deadline=None)
@given(groups(), st.integers(0, 3))
def test_standbys_are_on_other_processes(group: Group, number: int) -> None:
    members, tasks = group
    plan = assign(members, tasks, tasks, number)
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


def test_the_tasks_of_a_member_that_has_gone_are_all_that_moves() -> None:
    plan = assign(group_of(set(), set(), set()), GRID)
    left = [one for one in settled(group_of(set(), set(), set()), plan) if one.member != "m1"]
    after = assign(left, GRID)
    for one in left:
        assert one.owned <= after.active[one.member]


def test_a_task_goes_to_a_member_that_has_its_state() -> None:
    task = TaskId(0, 0)
    first, second, third = group_of(set(), set(), set())
    third = third._replace(held=frozenset([task]))
    assert assign([first, second, third], [task]).active["m2"] == {task}
    first = first._replace(owned=frozenset([task]))
    assert assign([first, second, third], [task], [task], 1).standby["m2"] == {task}


def test_of_two_members_with_one_task_the_one_of_the_later_generation_has_it() -> None:
    task = TaskId(0, 0)
    old, new = group_of({task}, {task})
    assert owners([old._replace(generation=7), new]) == {task: "m0"}
    assert owners([old, new._replace(generation=7)]) == {task: "m1"}
