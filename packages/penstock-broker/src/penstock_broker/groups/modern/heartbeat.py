"""The common fields of the heartbeats of consumer groups and streams groups."""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

UnitT = TypeVar("UnitT")
"""The unit of assignment: a partition or a task."""

_UnitT = TypeVar("_UnitT", covariant=True)

LEAVE: Final = -1
"""Epoch of a leaving member."""
LEAVE_FOR_A_WHILE: Final = -2
"""Epoch of a static member that leaves and will come back."""


class ModernHeartbeat(Protocol[_UnitT]):
    """A heartbeat of a member."""

    @property
    def member_id(self) -> str:
        """The member."""
        ...

    @property
    def member_epoch(self) -> int:
        """The last epoch that it received; 0 to join, LEAVE or LEAVE_FOR_A_WHILE."""
        ...

    @property
    def instance_id(self) -> str | None:
        """Name of a static member; None for others."""
        ...

    @property
    def owned(self) -> frozenset[_UnitT] | None:
        """What it owns; None if unchanged since the last heartbeat."""
        ...
