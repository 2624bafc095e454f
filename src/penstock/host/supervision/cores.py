"""How many cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_LIMIT: Final = Path("/sys/fs/cgroup/cpu.max")  # of the container; the root of a machine has no such file


def cores() -> int:
    """Return how many cores this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS has no such call
        return os.cpu_count() or 1


def cores_at_a_time(limit: Path = _LIMIT) -> int:
    """Return how many cores the processes of this container may use at the same time, which may be fewer: they share a
    quota of time, rounded up here. limit: the file of the control group that has it."""
    try:
        quota, period = limit.read_text().split()
        return min(cores(), -(-int(quota) // int(period)))
    except (OSError, ValueError):  # there is no limit
        return cores()
