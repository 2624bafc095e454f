"""The states of the member of a group, and the transitions of each protocol.

A member is FENCED after the loss of its tasks, a refusal, or an error of the connection that does not pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class MemberState(Enum):
    """The state of a member; see `classic_member` and `streams_member`."""

    UNJOINED = "UNJOINED"
    JOINING = "JOINING"
    SYNCING = "SYNCING"
    """Only of the classic protocol."""
    STABLE = "STABLE"
    FENCED = "FENCED"
    LEAVING = "LEAVING"
    LEFT = "LEFT"


MemberTransitions = Mapping[MemberState, tuple[MemberState, ...]]
"""The states that may follow each state."""

CLASSIC_TRANSITIONS: Final[MemberTransitions] = {
    MemberState.UNJOINED: (MemberState.UNJOINED, MemberState.JOINING, MemberState.FENCED, MemberState.LEAVING),
    MemberState.JOINING: (
        MemberState.UNJOINED,
        MemberState.JOINING,
        MemberState.SYNCING,
        MemberState.FENCED,
        MemberState.LEAVING,
    ),
    MemberState.SYNCING: (
        MemberState.UNJOINED,
        MemberState.JOINING,
        MemberState.STABLE,
        MemberState.FENCED,
        MemberState.LEAVING,
    ),
    MemberState.STABLE: (MemberState.JOINING, MemberState.FENCED, MemberState.LEAVING),
    MemberState.FENCED: (MemberState.JOINING, MemberState.FENCED, MemberState.LEAVING),
    MemberState.LEAVING: (MemberState.LEFT,),
    MemberState.LEFT: (),
}
"""The transitions of the classic protocol. A join may be answered with a request to join again."""

STREAMS_TRANSITIONS: Final[MemberTransitions] = {
    MemberState.UNJOINED: (MemberState.UNJOINED, MemberState.JOINING, MemberState.FENCED, MemberState.LEAVING),
    MemberState.JOINING: (MemberState.UNJOINED, MemberState.STABLE, MemberState.FENCED, MemberState.LEAVING),
    MemberState.STABLE: (MemberState.STABLE, MemberState.FENCED, MemberState.LEAVING),
    MemberState.FENCED: (MemberState.JOINING, MemberState.FENCED, MemberState.LEAVING),
    MemberState.LEAVING: (MemberState.LEFT,),
    MemberState.LEFT: (),
}
"""The transitions of the streams protocol. Each heartbeat may change the tasks of a member, and it stays STABLE."""
