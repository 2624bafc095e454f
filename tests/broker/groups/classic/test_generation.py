"""The generation of a classic group: its record, its answers, and its states."""

from __future__ import annotations

from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.groups.classic.support import (
    SESSION_MS,
    Client,
    stable_group,
    state_of,
)
from tests.broker.groups.support import GroupBroker


def test_members_go_on_after_a_kill_of_the_broker(broker: GroupBroker) -> None:
    first, static = Client(broker, "a"), Client(broker, "b", "two")
    stable_group(broker, first, static)
    before = broker.groups.describe("g")
    broker.restart()
    assert broker.groups.describe("g") == before
    assert [member.beat() for member in (first, static)] == [ErrorCode.none] * 2
    assert static.sync() == static.member_id.encode()
    broker.commit("other", "t", 0, 1)
    broker.timers.advance(SESSION_MS - 1)
    assert state_of(broker) == "Stable"
    broker.timers.advance(1)
    assert state_of(broker) == "Empty"
    broker.restart()
    assert state_of(broker) == "Empty"
    first.member_id = ""
    first.join()
    assert first.generation == 4  # generations go on, whatever happened
