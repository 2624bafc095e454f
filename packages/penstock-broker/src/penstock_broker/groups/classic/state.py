"""The states of a classic group (Kafka class: ClassicGroupState)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class ClassicGroupState(StrEnum):
    """The states of a group, by the names that tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


NEXT_STATES: Final[Mapping[ClassicGroupState, frozenset[ClassicGroupState]]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING}),
    ClassicGroupState.PREPARING: frozenset({ClassicGroupState.COMPLETING, ClassicGroupState.EMPTY}),
    ClassicGroupState.COMPLETING: frozenset({ClassicGroupState.STABLE, ClassicGroupState.PREPARING}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.PREPARING}),
}
"""The states that may follow each state; with no members left, a rebalance ends in an empty group."""
