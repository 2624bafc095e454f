"""Lines of calls keep the order of their operator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.host.calls.lines import Call, CallLines
from penstock.processor.calls import Answer, CallOrder
from tests.host.calls.support import record

KEYS = st.sampled_from(["a", "b", None])


def answered(lines: CallLines, call: Call) -> list[int]:
    """Answer a call; return the numbers of the calls that leave."""
    call.answer = Answer(call.sequence, call.record.digest(), 1, b"")
    return [each.sequence for each in lines.answered(call)]


@given(
    st.data(),
    st.sampled_from(CallOrder),
    st.lists(st.tuples(KEYS, st.integers(0, 1)), max_size=20),
    st.sampled_from([1, 3]),
)
def test_each_call_leaves_once_and_in_order(
    data: st.DataObject, order: CallOrder, added: list[tuple[str | None, int]], size: int
) -> None:
    lines, ready, left = CallLines(order), list[Call](), list[tuple[int, int]]()
    for number, (key, partition) in enumerate(added):
        lines.add(partition, number, record(key, "v", number))
    while len(lines):
        while lines.has_next():
            ready += lines.next(size)
        if order is CallOrder.KEY:
            heads = [(call.partition, call.record.key) for call in ready if call.record.key is not None]
            assert len(heads) == len(set(heads))
        call = ready.pop(data.draw(st.integers(0, len(ready) - 1)))
        left += [(call.partition, number) for number in answered(lines, call)]
    assert sorted(left) == sorted((partition, number) for number, (_, partition) in enumerate(added))
    for partition in (0, 1):
        numbers = [number for where, number in left if where == partition]
        if order is CallOrder.PARTITION:
            assert numbers == sorted(numbers)
        if order is CallOrder.KEY:
            for key in ("a", "b"):
                of_key = [number for number in numbers if added[number][0] == key]
                assert of_key == sorted(of_key)


@pytest.mark.parametrize("order", CallOrder)
def test_dropped_calls_are_not_made(order: CallOrder) -> None:
    lines = CallLines(order)
    lines.add(0, 1, record("a", "x"))
    lines.add(0, 2, record("a", "y"))
    lines.add(1, 1, record("a", "z"))
    first = lines.next(1)[0]
    assert [call.sequence for call in lines.drop(0)] == [1, 2]
    assert first.is_dropped
    assert lines.next(1)[0].partition == 1
    assert not lines.has_next()
    assert len(lines) == 1
    assert lines.drop(7) == []


def test_a_call_that_is_tried_again_keeps_its_place() -> None:
    lines = CallLines(CallOrder.UNORDERED)
    for number in range(3):
        lines.add(0, number, record("a", "v"))
    first = lines.next(1)[0]
    lines.again(first)
    assert lines.next(1)[0] is first


def filled(number: int, attempts: int = 1) -> CallLines:
    """Return lines with calls from 0 on, which are due at their numbers."""
    lines = CallLines(CallOrder.UNORDERED, attempts)
    for each in range(number):
        lines.add(0, each, record("a", "v"), due=float(each))
    return lines


def test_an_attempt_takes_the_first_calls() -> None:
    lines = filled(5)
    assert [[call.sequence for call in lines.next(3)], [call.sequence for call in lines.next(3)]] == [[0, 1, 2], [3, 4]]
    assert not lines.has_next()


def test_an_attempt_has_one_call_of_a_key() -> None:
    lines = CallLines(CallOrder.KEY)
    for number, key in enumerate(["a", "a", "b", None, None]):
        lines.add(0, number, record(key, "v"))
    assert [call.sequence for call in lines.next(10)] == [0, 2, 3, 4]


def test_an_attempt_that_is_not_full_waits_until_its_first_call_is_due() -> None:
    lines = filled(5)
    lines.next(2)
    assert [lines.due(4), lines.due(3)] == [2.0, float("-inf")]


def test_the_last_of_several_attempts_is_for_one_call() -> None:
    lines = filled(3, attempts=2)
    calls = lines.next(3)
    for call in calls:
        call.attempts = 1
        lines.again(call)
    lines.add(0, 3, record("a", "v"), due=9.0)
    assert lines.due(4) == float("-inf")
    assert [[call.sequence for call in lines.next(4)] for _ in range(4)] == [[0], [1], [2], [3]]


def test_a_first_attempt_that_is_the_only_one_has_several_calls() -> None:
    assert len(filled(3).next(3)) == 3


def test_a_dropped_call_takes_no_part_in_an_attempt() -> None:
    lines = filled(2)
    lines.add(1, 7, record("a", "v"))
    lines.drop(0)
    assert [call.sequence for call in lines.next(5)] == [7]
    assert not lines.has_next()


def test_a_call_that_the_service_may_know_has_an_attempt_of_its_own() -> None:
    lines = CallLines(CallOrder.UNORDERED, 9, reconciles=True)
    lines.add(0, 1, record("a", "x").that_waited())
    for number in (2, 3):
        lines.add(0, number, record("a", "y"))
    first, rest = lines.next(9), lines.next(9)
    assert [[call.sequence for call in calls] for calls in (first, rest)] == [[1], [2, 3]]
    for call in rest:
        call.attempts += 1
        lines.again(call)
    assert [call.sequence for call in lines.next(9)] == [2]
