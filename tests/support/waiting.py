"""Waiting for a condition, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

WAIT_SECONDS: Final = 240.0
"""Far more than a busy machine needs."""


def until(condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> bool:
    """Wait until a condition holds, at most some seconds, and return whether it does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
