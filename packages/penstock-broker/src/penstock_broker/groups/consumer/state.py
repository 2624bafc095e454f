"""The states of a consumer group (Kafka class: ConsumerGroup.ConsumerGroupState)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

from penstock_broker.groups.consumer.member import ConsumerGroupMember
from penstock_broker.groups.consumer.target import ConsumerTargetAssignment


class ConsumerGroupState(StrEnum):
    """The states of a group, with the names shown by tools."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


NEXT_STATES: Final[Mapping[ConsumerGroupState, frozenset[ConsumerGroupState]]] = {
    ConsumerGroupState.EMPTY: frozenset({ConsumerGroupState.STABLE}),
    ConsumerGroupState.ASSIGNING: frozenset(
        {ConsumerGroupState.EMPTY, ConsumerGroupState.RECONCILING, ConsumerGroupState.STABLE}
    ),
    ConsumerGroupState.RECONCILING: frozenset(
        {ConsumerGroupState.EMPTY, ConsumerGroupState.ASSIGNING, ConsumerGroupState.STABLE}
    ),
    ConsumerGroupState.STABLE: frozenset(
        {ConsumerGroupState.EMPTY, ConsumerGroupState.ASSIGNING, ConsumerGroupState.RECONCILING}
    ),
}
"""The states that may follow each state, beyond itself.

The first member gets all partitions with its first heartbeat.
"""


def state_of(members: Collection[ConsumerGroupMember], target: ConsumerTargetAssignment) -> ConsumerGroupState:
    """Return the state of a group, depending on the progress of its members towards the target assignment."""
    if not members:
        return ConsumerGroupState.EMPTY
    if target.is_outdated:
        return ConsumerGroupState.ASSIGNING
    if all(member.is_at(target.assignment_epoch) for member in members):
        return ConsumerGroupState.STABLE
    return ConsumerGroupState.RECONCILING
