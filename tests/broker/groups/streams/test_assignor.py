"""The sticky assignor of streams groups: all tasks, equal shares, few moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.groups.streams.assignor import TaskClient, assign_sticky
from penstock_broker.groups.streams.tasks import NO_TASKS, TaskId

_tasks = st.frozensets(st.tuples(st.sampled_from("012"), st.integers(0, 5)))
_members = st.dictionaries(st.sampled_from("abcdef"), st.builds(TaskClient, st.sampled_from("pqr"), _tasks), min_size=1)


def tasks(count: int) -> list[TaskId]:
    return [("0", number) for number in range(count)]


@given(members=_members, wanted=_tasks)
def test_each_task_has_one_owner(members: dict[str, TaskClient], wanted: frozenset[TaskId]) -> None:
    result = assign_sticky(members, wanted)
    assert result.keys() == members.keys()
    assert sorted(task for assigned in result.values() for task in assigned) == sorted(wanted)
    assert assign_sticky(members, wanted) == result


@given(members=_members, wanted=_tasks)
def test_a_settled_group_stays(members: dict[str, TaskClient], wanted: frozenset[TaskId]) -> None:
    fresh = {member_id: TaskClient("p", NO_TASKS) for member_id in members}
    first = assign_sticky(fresh, wanted)
    counts = [len(assigned) for assigned in first.values()]
    assert max(counts) - min(counts) <= 1
    settled = {member_id: TaskClient("p", first[member_id]) for member_id in members}
    assert assign_sticky(settled, wanted) == first


def test_a_new_member_gets_the_tasks_above_the_share_of_others() -> None:
    members = {"a": TaskClient("p", frozenset(tasks(4))), "b": TaskClient("q", NO_TASKS)}
    assert assign_sticky(members, tasks(4)) == {"a": frozenset(tasks(2)), "b": frozenset(tasks(4)[2:])}


def test_the_tasks_of_a_lost_member_go_to_the_process_with_the_fewest_for_each_member() -> None:
    members = {
        "a": TaskClient("p", frozenset({("0", 0)})),
        "b": TaskClient("p", frozenset({("0", 1)})),
        "c": TaskClient("q", NO_TASKS),
    }
    assert assign_sticky(members, tasks(3))["c"] == {("0", 2)}


def test_a_group_without_tasks_has_empty_assignments() -> None:
    assert assign_sticky({"a": TaskClient("p", frozenset(tasks(2)))}, []) == {"a": NO_TASKS}
