"""A member of a classic group (Kafka class: ClassicGroupMember)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock_broker.groups.context import Answer
from penstock_broker.wire.codec import Message


@dataclass(slots=True)
class ClassicGroupMember:
    """A member and its pending requests.

    Args:
        session_timeout_ms: time (ms) without a request after which it is removed.
        rebalance_timeout_ms: time (ms) that the others wait for it in a rebalance.
        protocols: its assignors with its metadata for each of them, preferred first.
        assignment: its part of the leader's assignment.
        join: answers its pending JoinGroup.
        sync: answers its pending SyncGroup.
        is_new: whether it has not taken part in a rebalance.
        is_pending_sync: whether the others wait for its SyncGroup.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Mapping[str, bytes]
    assignment: bytes = b""
    join: Answer | None = None
    sync: Answer | None = None
    is_new: bool = False
    is_pending_sync: bool = False

    @property
    def size(self) -> int:
        """Size of its subscription in bytes."""
        return sum(len(name) + len(metadata) for name, metadata in self.protocols.items())

    @property
    def is_waiting(self) -> bool:
        """Whether one of its requests waits for other members."""
        return self.join is not None or self.sync is not None

    def subscription(self, protocol: str | None) -> bytes:
        """Return its metadata for an assignor, or empty bytes."""
        return self.protocols.get(protocol or "", b"")

    def answer_join(self, response: Message) -> None:
        """Answer the pending JoinGroup, if any."""
        answer, self.join = self.join, None
        if answer is not None:
            answer(response)

    def answer_sync(self, response: Message) -> bool:
        """Answer the pending SyncGroup, if any; return whether it existed."""
        answer, self.sync = self.sync, None
        if answer is not None:
            answer(response)
        return answer is not None
