"""The states of a streams group (Kafka class: StreamsGroup.StreamsGroupState)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

from penstock_broker.groups.streams.member import StreamsGroupMember
from penstock_broker.groups.streams.target import NOT_READY, StreamsTargetAssignment


class StreamsGroupState(StrEnum):
    """The states of a group, with the names shown by tools."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


NEXT_STATES: Final[Mapping[StreamsGroupState, frozenset[StreamsGroupState]]] = {
    StreamsGroupState.EMPTY: frozenset(
        {StreamsGroupState.NOT_READY, StreamsGroupState.ASSIGNING, StreamsGroupState.STABLE}
    ),
    StreamsGroupState.NOT_READY: frozenset(
        {
            StreamsGroupState.EMPTY,
            StreamsGroupState.ASSIGNING,
            StreamsGroupState.RECONCILING,
            StreamsGroupState.STABLE,
        }
    ),
    StreamsGroupState.ASSIGNING: frozenset(
        {
            StreamsGroupState.EMPTY,
            StreamsGroupState.NOT_READY,
            StreamsGroupState.RECONCILING,
            StreamsGroupState.STABLE,
        }
    ),
    StreamsGroupState.RECONCILING: frozenset(
        {StreamsGroupState.EMPTY, StreamsGroupState.NOT_READY, StreamsGroupState.ASSIGNING, StreamsGroupState.STABLE}
    ),
    StreamsGroupState.STABLE: frozenset(
        {
            StreamsGroupState.EMPTY,
            StreamsGroupState.NOT_READY,
            StreamsGroupState.ASSIGNING,
            StreamsGroupState.RECONCILING,
        }
    ),
}
"""The states that may follow each state, beyond itself.

The first member gets all tasks with its first heartbeat, unless the first assignment is delayed.
"""


def state_of(members: Collection[StreamsGroupMember], target: StreamsTargetAssignment) -> StreamsGroupState:
    """Return the state of a group, depending on its topics and on the progress of its members."""
    if not members:
        return StreamsGroupState.EMPTY
    if target.topology_epoch == NOT_READY:
        return StreamsGroupState.NOT_READY
    if target.is_outdated:
        return StreamsGroupState.ASSIGNING
    if all(member.is_at(target.assignment_epoch) for member in members):
        return StreamsGroupState.STABLE
    return StreamsGroupState.RECONCILING
