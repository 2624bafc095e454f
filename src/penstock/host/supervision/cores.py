"""The number of cores available to this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_LIMIT: Final = Path("/sys/fs/cgroup/cpu.max")  # of the container; the root of a machine has no such file


def cores() -> int:
    """Return the number of cores on which this process may run."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS does not have this call
        return os.cpu_count() or 1


def cores_at_a_time(limit: Path = _LIMIT) -> int:
    """Return the number of cores that this container's processes may use simultaneously.

    It may be smaller than `cores`: the processes share a quota of time, rounded up here. limit: the file of the control
    group with the quota.
    """
    try:
        quota, period = limit.read_text().split()
        return min(cores(), -(-int(quota) // int(period)))
    except (OSError, ValueError):  # there is no limit
        return cores()
