"""The phases of an instance and the valid transitions between them. Each step of the core belongs to a phase.

A commit goes through QUIESCING, PREPARING, WRITING, COMMITTING and APPLYING; an error goes through DROPPING.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from penstock.host.threads.state_machine import StateMachine


class Phase(Enum):
    """The current work of an instance."""

    RUNNING = "RUNNING"
    QUIESCING = "QUIESCING"
    """No task is handed out; runs in flight return."""
    PREPARING = "PREPARING"
    """Tasks flush their caches."""
    WRITING = "WRITING"
    """All output sent so far is being written."""
    COMMITTING = "COMMITTING"
    """Offsets are being committed."""
    APPLYING = "APPLYING"
    """The bases apply their changes."""
    DROPPING = "DROPPING"
    """Tasks are closed without a commit."""
    ASKING = "ASKING"
    """The handler of uncaught exceptions decides."""
    TELLING = "TELLING"
    """The instance notifies the group that the application ends."""
    WAITING = "WAITING"
    """The instance waits before it opens tasks again."""
    ENDING = "ENDING"
    """Tasks are closed after the last commit."""
    ENDED = "ENDED"


VALID_TRANSITIONS: Final[Mapping[Phase, tuple[Phase, ...]]] = {
    Phase.RUNNING: (Phase.QUIESCING, Phase.DROPPING),
    Phase.QUIESCING: (Phase.PREPARING, Phase.APPLYING, Phase.DROPPING),
    Phase.PREPARING: (Phase.WRITING, Phase.COMMITTING, Phase.APPLYING, Phase.DROPPING),
    Phase.WRITING: (Phase.COMMITTING, Phase.DROPPING),
    Phase.COMMITTING: (Phase.APPLYING, Phase.DROPPING),
    Phase.APPLYING: (Phase.RUNNING, Phase.ENDING, Phase.DROPPING),
    Phase.DROPPING: (Phase.DROPPING, Phase.RUNNING, Phase.WAITING, Phase.ASKING, Phase.ENDING),
    Phase.ASKING: (Phase.WAITING, Phase.TELLING, Phase.ENDING),
    Phase.TELLING: (Phase.ENDING,),
    Phase.WAITING: (Phase.RUNNING, Phase.DROPPING),
    Phase.ENDING: (Phase.ENDED,),
    Phase.ENDED: (),
}
"""The phases that may follow each phase.

In ASKING, TELLING and ENDING, the decision about the first error holds, and later errors are ignored.
"""


class InstancePhase(StateMachine[Phase]):
    """The phase of an instance."""

    def __init__(self) -> None:
        super().__init__(Phase.RUNNING, VALID_TRANSITIONS)
