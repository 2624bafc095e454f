"""How contestants are measured: progress and CPU time over a window in which everything is warm.

Progress (lines counted and committed) is sampled while a contestant runs. The window opens when a share of the lines is
done and closes when all are; rates are taken over the window alone, so the start of JVMs and sessions is not in them.
Not here: the contestants.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

WARM_SHARE: Final = 0.3
"""Share of the lines after which the window opens."""

_LOOK_SECONDS: Final = 0.05
_STALLED_SECONDS: Final = 180.0


@dataclass(frozen=True)
class Measurement:
    """What one contestant did with one text.

    contestant: its letter. lines: those in the window. seconds: length of the window. cpu_seconds: CPU time that the
    processes of the contestant used in the window, without the broker's; None if it cannot be measured. steps: in how
    many steps the lines of the window were done, such as epochs; None where the progress was not watched.
    """

    contestant: str
    name: str
    text: str
    lines: int
    words_per_line: int
    seconds: float
    cpu_seconds: float | None
    remark: str = ""
    steps: int | None = None

    @property
    def lines_per_second(self) -> float:
        """Lines a second; of CPU time for the task alone, which has its own core."""
        return self.lines / (self.cpu_seconds if self.contestant == "a" and self.cpu_seconds else self.seconds)

    @property
    def words_per_second(self) -> float:
        """Words a second."""
        return self.lines_per_second * self.words_per_line

    @property
    def cpu_seconds_per_million_words(self) -> float | None:
        """CPU seconds for a million words."""
        return None if self.cpu_seconds is None else self.cpu_seconds * 1e6 / (self.lines * self.words_per_line)

    def to_json(self) -> dict[str, Any]:
        """Return fields and rates as plain data."""
        return {
            **asdict(self),
            "lines_per_second": self.lines_per_second,
            "words_per_second": self.words_per_second,
            "cpu_seconds_per_million_words": self.cpu_seconds_per_million_words,
        }


@dataclass(frozen=True)
class Window:
    """Lines done, seconds, CPU seconds and steps of progress between the opening and the end of a window."""

    lines: int
    seconds: float
    cpu_seconds: float | None
    steps: int


class StalledError(Exception):
    """A contestant made no progress for too long."""


def watch(progress: Callable[[], int], total: int, roots: Callable[[], list[int]] = lambda: [os.getpid()]) -> Window:
    """Sample `progress` until it is `total` and return the window; `roots` gives the processes that count with all
    their descendants.

    Raises StalledError if nothing moves for a few minutes.
    """
    opened: tuple[int, float, float | None] | None = None
    last, steps = -1, 0
    moved = time.monotonic()
    while True:
        done = progress()
        now = time.monotonic()
        if done != last:
            last, moved, steps = done, now, steps + 1
            if done >= total:
                break
            if opened is None and done >= WARM_SHARE * total:
                opened, steps = (done, now, cpu_seconds_of(roots())), 0
        if now - moved > _STALLED_SECONDS:
            raise StalledError(f"no progress for {_STALLED_SECONDS:.0f} s, {max(last, 0)} of {total} lines done")
        time.sleep(_LOOK_SECONDS)
    if opened is None:
        raise StalledError(f"all {total} lines were one step of progress: give more --lines")
    lines, begin, cpu_begin = opened
    cpu = cpu_seconds_of(roots())
    return Window(total - lines, now - begin, None if cpu is None or cpu_begin is None else cpu - cpu_begin, steps)


def cpu_seconds_of(roots: list[int]) -> float | None:
    """Return the CPU time of these processes and their descendants, ended ones too; None if there is no /proc."""
    if not Path("/proc/self/stat").exists():
        return None
    processes = _processes()
    tick = os.sysconf("SC_CLK_TCK")
    return sum(processes[pid].ticks for root in roots for pid in _family_of(root, processes)) / tick


def descendants(root: int) -> list[int]:
    """Return the processes that descend from `root`, and itself; empty where there is no /proc."""
    return _family_of(root, _processes()) if Path("/proc/self/stat").exists() else []


class _Process(NamedTuple):
    parent: int
    ticks: int  # user and system, its own and of children that it waited for


def _processes() -> dict[int, _Process]:
    found: dict[int, _Process] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended since
        found[int(entry.name)] = _Process(int(fields[1]), sum(map(int, fields[11:15])))
    return found


def _family_of(root: int, processes: Mapping[int, _Process]) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found: list[int] = []
    waiting = [root] if root in processes else []
    while waiting:
        found.append(waiting.pop())
        waiting.extend(children.get(found[-1], ()))
    return found
