"""A client of a classic group, and a group of several in a stable state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock_broker.errors import ApiError
from penstock_broker.groups.classic.joining import JoinRequest
from penstock_broker.groups.classic.member import ClassicGroupMember
from penstock_broker.groups.group import MemberIdentity
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.groups.support import GroupBroker

SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Client:
    """A client of the group `g` that may become a member.

    Args:
        broker: the broker.
        name: its client id.
        instance_id: its name as a static member.
        settings: other fields of its JoinGroup.
    """

    def __init__(self, broker: GroupBroker, name: str = "c", instance_id: str | None = None, **settings: Any) -> None:
        self._broker = broker
        self._name = name
        self._settings = settings
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.joined: Message | None = None
        self.synced: Message | None = None

    def join(self, **changes: Any) -> Message | None:
        """Send JoinGroup and return the answer, if it came at once."""
        self.joined = None
        request = JoinRequest(
            self.member_id,
            self.instance_id,
            self._name,
            "/127.0.0.1",
            SESSION_MS,
            REBALANCE_MS,
            "consumer",
            {"range": b"topics"},
            needs_member_id=False,
            may_skip_assignment=True,
        )._replace(**(self._settings | changes))
        self._broker.groups.join("g", request, self._take_join)
        return self.joined

    def _take_join(self, response: Message) -> None:
        self.joined = response
        if response["error_code"] == ErrorCode.none:
            self.member_id, self.generation = response["member_id"], response["generation_id"]

    @property
    def is_leader(self) -> bool:
        """Whether the last JoinGroup made it the leader."""
        return self.joined is not None and self.joined.get("leader") == self.member_id

    @property
    def identity(self) -> MemberIdentity:
        """Who it is."""
        return MemberIdentity(self.member_id, self.instance_id, self.generation)

    def sync(self, assignments: dict[str, bytes] | None = None, protocol: str | None = "range") -> bytes | None:
        """Send SyncGroup and return the assignment, if it came at once."""
        self.synced = None

        def take(response: Message) -> None:
            self.synced = response

        self._broker.groups.classic_group("g").sync(self.identity, "consumer", protocol, assignments or {}, take)
        return self.assignment

    @property
    def assignment(self) -> bytes | None:
        """What the last SyncGroup brought."""
        return None if self.synced is None else self.synced.get("assignment")

    def beat(self) -> ErrorCode:
        """Send Heartbeat and return its code."""
        return code_of(lambda: self._broker.groups.classic_group("g").heartbeat(self.identity))

    def leave(self) -> ErrorCode:
        """Leave the group."""
        [code] = self._broker.groups.leave("g", [(self.member_id, self.instance_id)])
        return code


def code_of(call: Callable[[], object]) -> ErrorCode:
    try:
        call()
    except ApiError as error:
        return error.code
    return ErrorCode.none


def stable_group(broker: GroupBroker, *members: Client) -> None:
    """Let clients join one after the other, and be assigned their own names."""
    for count in range(1, len(members) + 1):
        for member in members[:count]:
            if member.member_id:
                assert member.beat() in (ErrorCode.none, ErrorCode.rebalance_in_progress)
        for member in (members[count - 1], *members[: count - 1]):
            member.join()
    assign(*members)


def assign(*members: Client) -> None:
    [leader] = [member for member in members if member.is_leader]
    for member in members:
        if member is not leader:
            assert member.sync() is None
    leader.sync({member.member_id: member.member_id.encode() for member in members})
    assert [member.assignment for member in members] == [member.member_id.encode() for member in members]


def state_of(broker: GroupBroker) -> str:
    state: str = broker.groups.describe("g")["group_state"]
    return state


def classic_member(member_id: str, **fields: Any) -> ClassicGroupMember:
    """Return a member without pending requests."""
    member = ClassicGroupMember(member_id, None, "c", "/h", SESSION_MS, REBALANCE_MS, {"range": b"topics"})
    return replace(member, **fields)
