"""How an application is closed: how long `close` waits, and whether the group is left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from penstock_broker.common.durations import Duration, milliseconds

DEFAULT_CLOSE_TIMEOUT_MS: Final = 60_000
"""How long `close` waits by default."""


class GroupMembershipOperation(Enum):
    """Whether the group of consumers is left at the end, so that the other instances have the tasks at once and not
    when the session has ended (Kafka class: CloseOptions.GroupMembershipOperation).

    On Spark both are the same: there is no membership, only positions for tools that show the lag.
    """

    LEAVE_GROUP = "LEAVE_GROUP"
    REMAIN_IN_GROUP = "REMAIN_IN_GROUP"


@dataclass(frozen=True)
class CloseOptions:
    """How to close (Kafka class: CloseOptions).

    timeout_ms: longest wait (ms); None for DEFAULT_CLOSE_TIMEOUT_MS. operation: whether the group is left; None for
    what the host does without options.
    """

    timeout_ms: int | None = None
    operation: GroupMembershipOperation | None = None

    @staticmethod
    def timeout(timeout_ms: Duration) -> CloseOptions:
        """Return options with a time-out (ms)."""
        return CloseOptions(milliseconds(timeout_ms, "time-out"))

    @staticmethod
    def group_membership_operation(operation: GroupMembershipOperation) -> CloseOptions:
        """Return options that set whether the application leaves its group."""
        return CloseOptions(operation=operation)

    def with_timeout(self, timeout_ms: Duration | None) -> CloseOptions:
        """Return these options with another time-out (ms); None for DEFAULT_CLOSE_TIMEOUT_MS."""
        return replace(self, timeout_ms=None if timeout_ms is None else milliseconds(timeout_ms, "time-out"))

    def with_group_membership_operation(self, operation: GroupMembershipOperation) -> CloseOptions:
        """Return these options with another answer to whether the group is left."""
        return replace(self, operation=operation)
