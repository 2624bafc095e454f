"""A state changes by the transitions of its table, and by no other."""

from __future__ import annotations

from enum import Enum

import pytest

from penstock.host.threads.state_machine import StateMachine


class Door(Enum):
    OPEN = "OPEN"
    CLOSED = "CLOSED"
    LOCKED = "LOCKED"


TRANSITIONS = {Door.OPEN: (Door.CLOSED,), Door.CLOSED: (Door.OPEN, Door.LOCKED), Door.LOCKED: (Door.CLOSED,)}


def test_a_state_changes_by_the_transitions_of_its_table() -> None:
    door = StateMachine(Door.OPEN, TRANSITIONS)
    assert door.allows(Door.CLOSED)
    door.change(Door.CLOSED)
    door.change(Door.LOCKED)
    assert door.current is Door.LOCKED


@pytest.mark.parametrize("state", [Door.OPEN, Door.LOCKED])
def test_another_transition_is_refused(state: Door) -> None:
    door = StateMachine(Door.OPEN, TRANSITIONS)
    assert not door.allows(state)
    with pytest.raises(AssertionError, match=rf"{state} cannot follow Door\.OPEN\."):
        door.change(state)
    assert door.current is Door.OPEN
