"""The order in which queues give up heads of equal times is that of a java.util.PriorityQueue."""

from __future__ import annotations

from operator import itemgetter

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.task.priority_queue import PriorityQueue
from penstock.task.queue_order import in_turns

TIMES = st.lists(st.integers(0, 5), min_size=1, max_size=12).map(sorted)


def by_heap(times: list[list[int]], first: list[int]) -> list[int]:
    """Return the number of the queue of each head, taken one by one."""
    heads: PriorityQueue[tuple[int, int, int]] = PriorityQueue(itemgetter(0))
    for number in first:
        heads.offer((times[number][0], number, 0))
    taken = []
    while (head := heads.poll()) is not None:
        _, number, row = head
        taken.append(number)
        if row + 1 < len(times[number]):
            heads.offer((times[number][row + 1], number, row + 1))
    return taken


@given(st.lists(TIMES, min_size=2, max_size=4), st.permutations(range(4)))
@example([[1, 1, 1], [1, 2, 2]], [1, 0, 2, 3])
def test_heads_are_taken_as_one_by_one(times: list[list[int]], order: list[int]) -> None:
    first = [number for number in order if number < len(times)]
    assert in_turns([np.array(each, np.int64) for each in times], first).tolist() == by_heap(times, first)
