"""A state that changes only by the transitions of a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Generic, TypeVar

_State = TypeVar("_State", bound=Enum)


class StateMachine(Generic[_State]):
    """The current state, and the transitions to others.

    Args:
        state: the first state.
        transitions: the states that may follow each state.
    """

    def __init__(self, state: _State, transitions: Mapping[_State, Collection[_State]]) -> None:
        self.current = state
        self._transitions = transitions

    def allows(self, state: _State) -> bool:
        """Return whether `state` may follow the current one."""
        return state in self._transitions[self.current]

    def change(self, state: _State) -> None:
        """Enter `state`."""
        assert self.allows(state), f"{state} cannot follow {self.current}."
        self.current = state
