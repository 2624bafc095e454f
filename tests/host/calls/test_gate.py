"""Calls of an opened task wait for the answers that exist."""

from __future__ import annotations

from penstock.host.calls.gate import CallGate
from penstock.record import TopicPartition

A, B = TopicPartition("a-answers", 0), TopicPartition("b-answers", 0)


def test_the_gate_opens_when_all_answers_are_used() -> None:
    gate = CallGate({A: 5, B: 1})
    assert not gate.is_open({})
    assert not gate.is_open({A: 5})
    assert gate.was_closed
    assert gate.is_open({A: 6, B: 1})
    assert not gate.was_closed


def test_an_open_gate_stays_open() -> None:
    gate = CallGate({A: 5})
    assert gate.is_open({A: 5})
    assert gate.is_open({})


def test_a_task_without_answers_calls_at_once() -> None:
    assert CallGate({}).is_open({})
    assert CallGate({A: 0}).is_open({})
