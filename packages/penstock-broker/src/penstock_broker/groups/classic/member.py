"""A member of a classic group (Kafka class: ClassicGroupMember)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock_broker.groups.context import Answer
from penstock_broker.wire.codec import Message


@dataclass(slots=True)
class ClassicGroupMember:
    """A member and its waiting requests.

    Args:
        join: gives the answer to the JoinGroup that waits.
        sync: gives the answer to the SyncGroup that waits.
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
        """Bytes of its subscription."""
        return sum(len(name) + len(metadata) for name, metadata in self.protocols.items())

    @property
    def is_waiting(self) -> bool:
        """Whether one of its requests waits for other members."""
        return self.join is not None or self.sync is not None

    def subscription(self, protocol: str | None) -> bytes:
        """Return its metadata for an assignor; empty if it has none."""
        return self.protocols.get(protocol or "", b"")

    def answer_join(self, response: Message) -> None:
        """Answer the JoinGroup that waits, if there is one."""
        answer, self.join = self.join, None
        if answer is not None:
            answer(response)

    def answer_sync(self, response: Message) -> bool:
        """Answer the SyncGroup that waits; return whether there was one."""
        answer, self.sync = self.sync, None
        if answer is not None:
            answer(response)
        return answer is not None
