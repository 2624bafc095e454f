"""How contestants are measured: progress and CPU time over a window in which everything is warm.

Progress (lines counted and committed) is sampled while a contestant runs. The window opens when a share of the lines is
done, and a JVM is warm, and closes when all are; rates are taken over the window alone, so the start of JVMs and
sessions is not in them. A window that is too short for a rate tells how many lines would do.
Not here: the contestants.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

WARM_SHARE: Final = 0.3
"""Share of the lines after which the window opens."""

LEAST_STEPS: Final = 10
LEAST_SECONDS: Final = 20.0
"""Epochs, or other steps of progress, and seconds of a window from which a rate is taken. A shorter one may be no more
than the tail of one epoch."""

JVM_WARM_SECONDS: Final = 20.0
"""How long a JVM works before the window opens: its compiler is done with the hot code."""

_SPARE: Final = 1.2  # lines beyond those that have been just enough
_LOOK_SECONDS: Final = 0.05
_STALLED_SECONDS: Final = 180.0


@dataclass(frozen=True)
class Measurement:
    """What one contestant did with one text.

    contestant: its letter. lines: those in the window. seconds: length of the window. cpu_seconds: CPU time that the
    processes of the contestant used in the window, without the broker's; None if it cannot be measured. steps: in how
    many steps the lines of the window were done, such as epochs; None where the progress was not watched. lines_needed:
    how many lines give a rate, if the window is too short for one.
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
    lines_needed: int | None = None

    @classmethod
    def of_window(
        cls, contestant: str, name: str, text: str, words_per_line: int, window: Window, remark: str
    ) -> Measurement:
        """Return what a contestant did in a window."""
        seconds, cpu, needed = window.seconds, window.cpu_seconds, window.lines_needed
        return cls(contestant, name, text, window.lines, words_per_line, seconds, cpu, remark, window.steps, needed)

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
    """Lines done, seconds, CPU seconds and steps of progress between the opening and the end of a window.

    lines_needed: how many lines in all give a rate; None if these do.
    """

    lines: int
    seconds: float
    cpu_seconds: float | None
    steps: int
    lines_needed: int | None = None


class StalledError(Exception):
    """A contestant made no progress for too long."""


def watch(
    progress: Callable[[], int],
    total: int,
    roots: Callable[[], list[int]] = lambda: [os.getpid()],
    warm_seconds: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
) -> Window:
    """Sample `progress` until it is `total` and return the window.

    The window opens with a share of the lines, and not earlier than `warm_seconds` after the first lines. If all lines
    are done before, the window has them all, and is too short for a rate. `roots` gives the processes that count with
    all their descendants.

    Raises StalledError if nothing moves for a few minutes.
    """
    begun: _Look | None = None
    opened: _Look | None = None
    last, steps = -1, 0
    moved = clock()
    while True:
        done = progress()
        now = clock()
        if done != last:
            last, moved, steps = done, now, steps + 1
            look = _Look(done, now, cpu_seconds_of(roots()), steps)
            if begun is None and done > 0:
                begun = look
            if done >= total:
                break
            warm = begun is not None and now - begun.at >= warm_seconds
            if opened is None and warm and done >= WARM_SHARE * total:
                opened = look
        if now - moved > _STALLED_SECONDS:
            raise StalledError(f"no progress for {_STALLED_SECONDS:.0f} s, {max(last, 0)} of {total} lines done")
        time.sleep(_LOOK_SECONDS)
    first = opened or begun or look
    lines = total - first.done or total
    cpu = None if look.cpu is None or first.cpu is None else look.cpu - first.cpu
    window = Window(lines, max(look.at - first.at, _LOOK_SECONDS), cpu, look.steps - first.steps)
    is_long = opened is not None and window.steps >= LEAST_STEPS and window.seconds >= LEAST_SECONDS
    return window if is_long else replace(window, lines_needed=lines_needed(window, warm_seconds))


def lines_needed(window: Window, warm_seconds: float = 0.0) -> int:
    """Return how many lines give a window that is long enough, by the rate in one that is not."""
    rate = window.lines / window.seconds
    enough = max(rate * LEAST_SECONDS, LEAST_STEPS * window.lines / max(window.steps, 1))
    return math.ceil(_SPARE * max(enough / (1 - WARM_SHARE), enough + rate * warm_seconds))


class _Look(NamedTuple):
    """Lines, time, CPU time and steps until a moment."""

    done: int
    at: float
    cpu: float | None
    steps: int


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
