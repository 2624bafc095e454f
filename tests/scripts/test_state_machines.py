"""ARCHITECTURE.md draws the state machines as the code has them."""

from __future__ import annotations

import pytest

from scripts.state_machines import MACHINES, PAGE, page


def test_the_machines_of_the_page_are_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text), "run python scripts/state_machines.py"


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_has_a_row_for_each_state_that_it_enters(machine: str) -> None:
    transitions = MACHINES[machine]
    assert set().union(*transitions.values()) <= set(transitions)


def test_each_state_has_a_row() -> None:
    rows = {(type(state), state.name) for transitions in MACHINES.values() for state in transitions}
    assert rows == {(states, each.name) for states, _ in rows for each in states}
