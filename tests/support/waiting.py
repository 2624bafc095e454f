"""Waiting for a condition, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

WAIT_SECONDS: Final = 480.0
"""Far more than a busy machine needs."""

_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 0.1
"""What takes seconds is looked at less often: conditions read topics and directories, and would take a core."""


def until(condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> bool:
    """Wait until a condition holds, at most some seconds, and return whether it does."""
    deadline = time.monotonic() + seconds
    pause = _FIRST_PAUSE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(1.2 * pause, _LONGEST_PAUSE_SECONDS)
    return True
