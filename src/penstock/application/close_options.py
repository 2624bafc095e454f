"""Options for closing an application: the timeout of `close`, and leaving the group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock_broker.common.durations import Duration, milliseconds

DEFAULT_CLOSE_TIMEOUT_MS: Final = 60_000
"""The default timeout of `close`."""


@dataclass(frozen=True)
class CloseOptions:
    """Options of `close` (Kafka class: CloseOptions).

    Args:
        timeout_ms: the maximum wait (ms); None for DEFAULT_CLOSE_TIMEOUT_MS.
        operation: whether the application leaves its group; None means DEFAULT.
    """

    timeout_ms: int | None = None
    operation: GroupMembershipOperation | None = GroupMembershipOperation.DEFAULT

    def __post_init__(self) -> None:
        if self.operation is None:
            object.__setattr__(self, "operation", GroupMembershipOperation.DEFAULT)

    @staticmethod
    def timeout(timeout_ms: Duration) -> CloseOptions:
        """Return options with a timeout (ms)."""
        return CloseOptions(milliseconds(timeout_ms, "time-out"))

    @staticmethod
    def group_membership_operation(operation: GroupMembershipOperation) -> CloseOptions:
        """Return options that set whether the application leaves its group."""
        return CloseOptions(operation=operation)

    def with_timeout(self, timeout_ms: Duration | None) -> CloseOptions:
        """Return these options with another timeout (ms); None for DEFAULT_CLOSE_TIMEOUT_MS."""
        return replace(self, timeout_ms=None if timeout_ms is None else milliseconds(timeout_ms, "time-out"))

    def with_group_membership_operation(self, operation: GroupMembershipOperation) -> CloseOptions:
        """Return these options with another group membership operation."""
        return replace(self, operation=operation)
