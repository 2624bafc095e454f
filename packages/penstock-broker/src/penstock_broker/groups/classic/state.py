"""The states of a classic group (Kafka class: ClassicGroupState)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class ClassicGroupState(StrEnum):
    """The states of a group, with the names shown by tools."""

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
"""The valid next states of each state.

A rebalance without members ends in an empty group.
"""
