"""Answers that another part of the broker gives, before or after they are asked for."""

from __future__ import annotations

import pytest

from penstock_broker.answers import PromisedAnswer
from penstock_broker.wire.codec import Message

RESPONSE: Message = {"error_code": 0}


@pytest.mark.parametrize("is_early", [True, False])
def test_an_answer_is_given_once_whenever_it_comes(is_early: bool) -> None:
    answer, given = PromisedAnswer(), list[Message]()
    if is_early:
        answer.give(RESPONSE)
    answer.start(given.append)
    if not is_early:
        assert given == []
        answer.give(RESPONSE)
    assert given == [RESPONSE]


def test_an_answer_to_a_client_that_is_gone_is_dropped() -> None:
    answer, given = PromisedAnswer(), list[Message]()
    answer.start(given.append)
    answer.cancel()
    answer.give(RESPONSE)
    assert given == []


def test_an_answer_is_over_before_its_receiver_is_called() -> None:
    answer, given = PromisedAnswer(), list[Message]()

    def give_again(response: Message) -> None:
        given.append(response)
        answer.give(RESPONSE)

    answer.start(give_again)
    answer.give(RESPONSE)
    assert given == [RESPONSE]
