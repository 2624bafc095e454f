"""The sticky assignor of streams groups: all tasks, equal shares, few moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.groups.streams.assignor import TaskClient, assign_sticky
from penstock_broker.groups.streams.tasks import NO_TASKS, TaskId

_tasks = st.frozensets(st.tuples(st.sampled_from("012"), st.integers(0, 5)))
_offsets = st.dictionaries(st.tuples(st.sampled_from("012"), st.integers(0, 5)), st.integers(0, 9))
_clients = st.builds(TaskClient, st.sampled_from("pqr"), _tasks, _offsets)
_members = st.dictionaries(st.sampled_from("abcdef"), _clients, min_size=1)


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


# ---------------------------------------- members with state; the answers are those of Kafka 4.4.0


def state(*numbers: int, offset: int = 5) -> dict[TaskId, int]:
    return dict.fromkeys((("0", number) for number in numbers), offset)


def test_tasks_go_to_members_with_their_state() -> None:
    members = {"a": TaskClient("p", NO_TASKS, state(2, 3)), "b": TaskClient("q", NO_TASKS, state(0, 1))}
    assert assign_sticky(members, tasks(4)) == {"a": frozenset(tasks(4)[2:]), "b": frozenset(tasks(2))}


def test_a_task_goes_to_the_member_with_the_highest_offset() -> None:
    members = {
        "a": TaskClient("p", NO_TASKS, state(0, offset=5)),
        "b": TaskClient("q", NO_TASKS, state(0, offset=9)),
        "c": TaskClient("r", NO_TASKS, state(0, offset=7)),
    }
    assert assign_sticky(members, tasks(1)) == {"a": NO_TASKS, "b": frozenset(tasks(1)), "c": NO_TASKS}


def test_a_present_owner_comes_before_members_with_state() -> None:
    members = {"a": TaskClient("p", frozenset(tasks(1))), "b": TaskClient("q", NO_TASKS, state(0, offset=99))}
    assert assign_sticky(members, tasks(1)) == {"a": frozenset(tasks(1)), "b": NO_TASKS}


def test_a_member_with_all_state_gets_no_more_than_its_share() -> None:
    members = {"a": TaskClient("p", NO_TASKS), "b": TaskClient("q", NO_TASKS, state(0, 1, 2, 3))}
    assert assign_sticky(members, tasks(4)) == {"a": frozenset(tasks(4)[2:]), "b": frozenset(tasks(2))}


def test_a_later_holder_gets_a_task_only_if_it_and_its_process_have_less_load() -> None:
    members = {
        "a": TaskClient("p", frozenset(tasks(1)), state(1, offset=9)),
        "b": TaskClient("q", NO_TASKS, state(1)),
        "c": TaskClient("q", NO_TASKS),
    }
    assert assign_sticky(members, tasks(3))["b"] == {("0", 1)}
    # The process of the other holder has no load, but the holder of most state has none either.
    members = {
        "a": TaskClient("p", NO_TASKS, state(1, offset=9)),
        "b": TaskClient("p", frozenset(tasks(1))),
        "c": TaskClient("q", NO_TASKS, state(1)),
    }
    assert assign_sticky(members, tasks(3))["a"] == {("0", 1)}


def test_state_of_tasks_that_do_not_exist_has_no_effect() -> None:
    assert assign_sticky({"a": TaskClient("p", NO_TASKS, state(7))}, tasks(1)) == {"a": frozenset(tasks(1))}
