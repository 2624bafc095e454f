"""The partitions that a task waits for, by wall clock."""

from __future__ import annotations

from collections.abc import Set

from hypothesis import given
from hypothesis import strategies as st

from penstock.record import TopicPartition
from penstock.task.idling import NO_WAIT, Idling, InputWait

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
NOTHING: Set[TopicPartition] = frozenset()


def test_an_empty_partition_is_awaited_until_the_idle_time_is_over() -> None:
    idling = Idling({})
    wait = InputWait((A, B), idle_ms=10)
    assert idling.awaited(wait, {A}, now=100) == {A, B}
    assert idling.deadlines == {B: 110}
    assert idling.awaited(wait, {A}, now=109) == {A, B}
    assert idling.awaited(wait, {A}, now=110) == {A}
    assert idling.awaited(wait, {A, B}, now=111) == {A, B}
    assert idling.deadlines == {}


def test_a_lagging_partition_is_awaited_without_a_deadline() -> None:
    idling = Idling({A: 5})
    wait = InputWait((A,), frozenset([A]), idle_ms=10)
    assert [idling.awaited(wait, NOTHING, now) for now in (100, 10_000)] == [{A}, {A}]
    assert idling.next_deadline(100) is None


def test_without_an_idle_time_only_lagging_partitions_are_awaited() -> None:
    idling = Idling({B: 200})
    assert idling.awaited(InputWait((A, B), frozenset([A])), {A, B}, now=100) == {A}
    assert idling.deadlines == {}
    assert idling.awaited(NO_WAIT, {A, B}, now=100) == NOTHING


def test_a_clock_that_goes_back_does_not_lengthen_the_wait() -> None:
    idling = Idling({A: 1_000_000})
    assert idling.awaited(InputWait((A,), idle_ms=10), NOTHING, now=100) == {A}
    assert idling.deadlines == {A: 110}


def test_single_records_wait_for_one_partition_after_the_other() -> None:
    idling = Idling({})
    wait = InputWait((A, B), idle_ms=10)
    assert idling.must_wait(wait, NOTHING, now=100)
    assert idling.deadlines == {A: 110}
    assert idling.must_wait(wait, NOTHING, now=110)
    assert idling.deadlines == {A: 110, B: 120}
    assert not idling.must_wait(wait, NOTHING, now=120)


@given(st.dictionaries(st.sampled_from([A, B]), st.integers(0, 20)), st.integers(0, 20))
def test_the_next_deadline_is_the_first_one_that_is_to_come(deadlines: dict[TopicPartition, int], now: int) -> None:
    idling = Idling(deadlines)
    to_come = [deadline for deadline in deadlines.values() if deadline > now]
    assert idling.next_deadline(now) == (min(to_come) if to_come else None)
    idling.found_empty({A, B}, 50)
    assert idling.deadlines == {A: 50, B: 50, **deadlines}
