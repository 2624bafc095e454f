"""How often Python switches between threads, in processes that Penstock has made: `penstock run` and worker processes.
In a program of the user, the user decides."""

from __future__ import annotations

import sys
from typing import Final

_SECONDS: Final = 0.0005


def switch_threads_often() -> None:
    """Let a thread that wakes beside a busy one run after 0.5 ms instead of 5 ms, for each record goes through several
    threads."""
    sys.setswitchinterval(_SECONDS)
