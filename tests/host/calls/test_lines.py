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


@given(st.data(), st.sampled_from(CallOrder), st.lists(st.tuples(KEYS, st.integers(0, 1)), max_size=20))
def test_each_call_leaves_once_and_in_order(
    data: st.DataObject, order: CallOrder, added: list[tuple[str | None, int]]
) -> None:
    lines, ready, left = CallLines(order), [], list[tuple[int, int]]()
    for number, (key, partition) in enumerate(added):
        lines.add(partition, number, record(key, "v", number))
    while len(lines):
        while lines.has_next():
            ready.append(lines.next())
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
    first = lines.next()
    assert [call.sequence for call in lines.drop(0)] == [1, 2]
    assert first.is_dropped
    assert lines.next().partition == 1
    assert not lines.has_next()
    assert len(lines) == 1
    assert lines.drop(7) == []


def test_a_call_that_is_tried_again_keeps_its_place() -> None:
    lines = CallLines(CallOrder.UNORDERED)
    for number in range(3):
        lines.add(0, number, record("a", "v"))
    first = lines.next()
    lines.again(first)
    assert lines.next() is first
