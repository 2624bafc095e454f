"""The phases of an instance: which may follow which."""

from __future__ import annotations

import pytest

from penstock.host.threads.phases import VALID_TRANSITIONS, InstancePhase, Phase


def reached_from(phase: Phase) -> set[Phase]:
    reached, left = {phase}, [phase]
    while left:
        new = set(VALID_TRANSITIONS[left.pop()]) - reached
        reached |= new
        left += new
    return reached


@pytest.mark.parametrize("phase", Phase)
def test_each_phase_is_reached_and_leads_to_the_end(phase: Phase) -> None:
    assert phase in reached_from(Phase.RUNNING)
    assert Phase.ENDED in reached_from(phase)


def test_an_instance_takes_no_other_transition() -> None:
    phase = InstancePhase()
    phase.change(Phase.QUIESCING)
    assert not phase.allows(Phase.ENDED)
    with pytest.raises(AssertionError, match=r"ENDED cannot follow Phase\.QUIESCING"):
        phase.change(Phase.ENDED)
    assert phase.current is Phase.QUIESCING
