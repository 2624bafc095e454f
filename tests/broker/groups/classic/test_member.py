"""A member of a classic group and its pending requests."""

from __future__ import annotations

import pytest

from penstock_broker.groups.classic.member import ClassicGroupMember
from penstock_broker.wire.codec import Message
from tests.broker.groups.classic.support import classic_member


def test_a_pending_request_is_answered_once() -> None:
    member, given = classic_member("m"), list[Message]()
    member.join = member.sync = given.append
    assert member.is_waiting
    member.answer_join({"error_code": 1})
    assert member.is_waiting
    assert member.answer_sync({"error_code": 2})
    assert not member.is_waiting
    member.answer_join({"error_code": 3})
    assert not member.answer_sync({"error_code": 4})
    assert given == [{"error_code": 1}, {"error_code": 2}]


def test_a_client_that_asks_again_in_its_answer_waits_again() -> None:
    member, given = classic_member("m"), list[Message]()

    def ask_again(response: Message) -> None:
        member.join = given.append

    member.join = ask_again
    member.answer_join({})
    assert member.is_waiting
    assert given == []


@pytest.mark.parametrize(("protocol", "expected"), [("range", b"topics"), ("other", b""), (None, b"")])
def test_a_member_has_a_subscription_for_its_protocols(protocol: str | None, expected: bytes) -> None:
    assert classic_member("m").subscription(protocol) == expected


def test_the_size_of_a_subscription_counts_names_and_metadata() -> None:
    member: ClassicGroupMember = classic_member("m", protocols={"range": b"12345", "x": b""})
    assert member.size == 11
    assert classic_member("m", protocols={}).size == 0
