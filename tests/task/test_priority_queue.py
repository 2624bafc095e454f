"""The order of the priority queue: by key, and among equals that of java.util.PriorityQueue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.task.priority_queue import PriorityQueue

Item = tuple[int, str]


def drained(keys: list[int]) -> list[Item]:
    queue: PriorityQueue[Item] = PriorityQueue(lambda item: item[0])
    for index, key in enumerate(keys):
        queue.offer((key, chr(ord("a") + index)))
    taken: list[Item] = []
    while (item := queue.poll()) is not None:
        taken.append(item)
    return taken


@given(st.lists(st.integers(0, 5), max_size=20))
def test_items_come_out_by_key_and_all_of_them(keys: list[int]) -> None:
    assert [key for key, _ in drained(keys)] == sorted(keys)
    assert len({name for _, name in drained(keys)}) == len(keys)


@pytest.mark.parametrize(
    ("keys", "order"),
    [
        ([0, 0, 0], "acb"),
        ([0, 0, 0, 0, 0], "aedcb"),
        ([1, 0, 1, 0, 1, 0], "bdfaec"),
        ([2, 1, 2, 1, 0, 0, 1], "efbdgac"),
    ],
)
def test_equal_items_come_out_as_in_java(keys: list[int], order: str) -> None:
    assert "".join(name for _, name in drained(keys)) == order


def test_the_first_item_can_be_looked_at() -> None:
    queue: PriorityQueue[int] = PriorityQueue(lambda item: item)
    assert queue.peek() is None
    queue.offer(2)
    queue.offer(1)
    assert queue.peek() == 1
    assert len(queue) == 2
