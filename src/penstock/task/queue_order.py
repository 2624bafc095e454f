"""The order of records from queues with possibly equal head times, computed at once."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from penstock.record import Int64Array
from penstock.task.priority_queue import PriorityQueue


def in_turns(times: Sequence[Int64Array], first: Sequence[int]) -> Int64Array:
    """Return the number of the queue from which each head is taken.

    Args:
        times: the ascending times (ms) of the heads of each queue, at least one.
        first: the numbers of the queues, in the order in which they wait.
    """
    if len(times) == 2:
        return np.where(_are_from_first(times[first[0]], times[first[1]]), first[0], first[1])
    left = [iter(each.tolist()) for each in times]
    heads: PriorityQueue[tuple[int, int]] = PriorityQueue(itemgetter(0))
    turns: list[int] = []
    for number in first:
        heads.offer((next(left[number]), number))
    while (head := heads.poll()) is not None:
        number = head[1]
        turns.append(number)
        following = next(left[number], None)
        if following is not None:
            heads.offer((following, number))
    return np.array(turns, np.int64)


def _are_from_first(one: Int64Array, other: Int64Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return for each head whether it is taken from `one`, which begins, instead of `other`.

    The result is that of a priority queue with two items, without a step per head.

    At a time in both, the queue that was not taken last goes first; then they alternate until one has no more heads of
    that time. So the last one taken at a time is the one with more heads of it; if both have as many, the one that did
    not begin, and the next time begins like this one.
    """
    moments, places = np.unique(np.concatenate([one, other]), return_inverse=True)
    of_one, of_other = places[: len(one)], places[len(one) :]
    ones, others = (np.bincount(each, minlength=len(moments)) for each in (of_one, of_other))
    known = np.concatenate([[0], 1 + np.flatnonzero(ones != others)])  # moments from which the first queue is known
    begins = np.concatenate([[True], (ones < others)[known[1:] - 1]])
    one_begins = begins[np.searchsorted(known, np.arange(len(moments)), "right") - 1]
    starts = np.cumsum(ones + others) - ones - others
    ranks = np.arange(len(one)) - (np.cumsum(ones) - ones)[of_one]  # rank of each head of `one` within its time
    before = np.minimum(ranks + ~one_begins[of_one], others[of_one])  # number of `other`'s heads taken before it
    from_one = np.zeros(len(places), np.bool_)
    from_one[starts[of_one] + ranks + before] = True
    return from_one


def places_among(offsets: Int64Array, among: Int64Array) -> Int64Array:
    """Return the indexes of `offsets` in `among`, which contains them in this order.

    Other offsets may be in between. Neither needs to ascend: records that wait over a change of the topology come from
    lanes whose offsets start over.
    """
    if len(offsets) == len(among):
        return np.arange(len(offsets), dtype=np.int64)
    left = enumerate(among.tolist())
    return np.array([next(place for place, offset in left if offset == each) for each in offsets.tolist()], np.int64)
