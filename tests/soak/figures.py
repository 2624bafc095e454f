"""What processes and directories take, again and again, and whether that stays flat."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.crash.processes import descendants

MIB = 1024 * 1024
_BLOCK = 512


class Tolerance(NamedTuple):
    """How much larger a figure may be at the end: this share of it, and so much."""

    share: float
    more: float


TOLERANCES: Mapping[str, Tolerance] = {
    "processes": Tolerance(0.1, 1),
    "descriptors": Tolerance(0.05, 8),
    "memory": Tolerance(0.1, 8 * MIB),
    "disk": Tolerance(0.2, 4 * MIB),
}
"""By figure. Memory breathes with the allocator; disk with compactions, which come in waves."""


def figures_of(pid: int, directories: Iterable[Path]) -> dict[str, float]:
    """Return what a process and those below it take: their number, open descriptors, resident bytes, and bytes on disk,
    also those of deleted files that are still open."""
    figures = {"processes": 0.0, "descriptors": 0.0, "memory": 0.0, "disk": float(sum(map(_bytes_below, directories)))}
    for each in (pid, *(process.pid for process in descendants(pid))):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            figures["memory"] += int(Path(f"/proc/{each}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            opened = list(Path(f"/proc/{each}/fd").iterdir())
            figures["processes"] += 1
            figures["descriptors"] += len(opened)
            figures["disk"] += sum(map(_bytes_if_deleted, opened))
    return figures


def _bytes_if_deleted(descriptor: Path) -> int:
    with suppress(FileNotFoundError):  # closed meanwhile
        found = descriptor.stat()
        if stat.S_ISREG(found.st_mode) and not found.st_nlink:
            return found.st_blocks * _BLOCK
    return 0


def _bytes_below(directory: Path) -> int:
    found = 0
    for path, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):  # deleted meanwhile
                found += (Path(path) / name).stat().st_blocks * _BLOCK
    return found


def growth(figures: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """Return the figures that grow, each with its median in the second quarter and in the last one: the first quarter
    is the warm-up."""
    quarter = len(figures) // 4
    assert quarter >= 3, f"{len(figures)} samples are too few"
    found = {}
    for name, tolerance in TOLERANCES.items():
        early = median(each[name] for each in figures[quarter : 2 * quarter])
        late = median(each[name] for each in figures[-quarter:])
        if late > early * (1 + tolerance.share) + tolerance.more:
            found[name] = (early, late)
    return found
