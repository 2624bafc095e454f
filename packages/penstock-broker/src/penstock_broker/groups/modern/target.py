"""The target assignment of a group: the intended assignment of each member (Kafka class: Assignment)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Self

from penstock_broker.groups.modern.heartbeat import UnitT


@dataclass(frozen=True, slots=True)
class TargetAssignment(Generic[UnitT]):
    """The assignment that the members move towards.

    Args:
        epoch: the group epoch, which counts changes of members and topics.
        metadata_hash: the hash of the topics in this epoch.
        assignment_epoch: the epoch of the assignment.
        assignments: by member id.
    """

    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    assignments: Mapping[str, frozenset[UnitT]] = field(default_factory=dict)

    @property
    def is_outdated(self) -> bool:
        """Whether the assignment belongs to an earlier epoch."""
        return self.epoch > self.assignment_epoch

    def of(self, member_id: str) -> frozenset[UnitT]:
        """Return the target of a member."""
        return self.assignments.get(member_id, frozenset())

    def renamed(self, old: str, new: str) -> Self:
        """Return the target with a changed member id."""
        assignments = {new if member_id == old else member_id: each for member_id, each in self.assignments.items()}
        return replace(self, assignments=assignments)

    def without(self, member_id: str) -> Self:
        """Return the target without a member."""
        return replace(self, assignments={each: self.of(each) for each in self.assignments if each != member_id})
