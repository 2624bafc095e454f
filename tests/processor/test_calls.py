"""Calls as data: the layout of answers, and the context of a call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProcessorStateError
from penstock.processor.calls import Answer, CallContext, unpack_answer
from penstock.processor.waiting_records import WaitingRecord

WAITING = WaitingRecord(b"k", b"v", 5, (("h", b"1"),), "in", 2, 17, call_id="in-2-17-charge")
ANSWER = Answer(3, WAITING.digest(), 1, b"\x2a")

ANSWERS = st.builds(
    Answer,
    st.integers(0, 2**63),
    st.binary(),
    st.integers(1, 9),
    st.none() | st.binary(),
    st.text(),
    st.text(),
)


@given(ANSWERS)
def test_an_answer_survives_the_round_trip(answer: Answer) -> None:
    assert unpack_answer(answer.pack(), "answers") == answer


def test_the_layout_of_an_answer_is_fixed() -> None:
    assert Answer(3, b"12345678", 1, b"\x2a").pack() == bytes.fromhex("02 96 03 c4083132333435363738 01 c4012a a0 a0")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x01\x90", "Topic 'answers' has an answer in layout 01; this version reads layout 02"),
        (b"", "in layout of no bytes"),
        (b"\x02\x90", "Topic 'answers' has a damaged answer: "),
    ],
)
def test_an_unreadable_answer_fails_with_the_name_of_the_topic(data: bytes, message: str) -> None:
    with pytest.raises(ProcessorStateError, match=message):
        unpack_answer(data, "answers")


def test_an_answer_belongs_to_one_record() -> None:
    assert ANSWER.answers(3, WAITING)
    assert not ANSWER.answers(4, WAITING)
    others: list[dict[str, Any]] = [{"topic": "x"}, {"partition": 1}, {"offset": 1}, {"value": b"w"}, {"call_id": "x"}]
    assert not any(ANSWER.answers(3, replace(WAITING, **other)) for other in others)


def test_the_context_of_a_call_is_that_of_its_record() -> None:
    context = CallContext.of(WAITING, "key", 2)
    assert (context.topic, context.partition, context.offset) == ("in", 2, 17)
    assert (context.key, context.timestamp, context.headers, context.attempt) == ("key", 5, (("h", b"1"),), 2)
    assert context.idempotency_key == "in-2-17-charge"
