"""Crashes at the named points of an epoch, played in one process by a seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from penstock.host import crashpoints
from tests.host.spark.inline import InlineQuery

ALL_POINTS = (
    *crashpoints.POINTS,
    *crashpoints.TOPOLOGY_POINTS,
    *crashpoints.SAVEPOINT_POINTS,
    *crashpoints.SWITCH_POINTS,
)


class KilledError(BaseException):
    """What a kill is in one process."""


class Crashes:
    """Strikes at points chosen by a seed: each time a process comes to a point, with a certain probability; and at a
    given point once."""

    def __init__(
        self,
        seed: int = 0,
        probability: float = 0.0,
        most: int | None = None,
        at: str = "",
        points: Sequence[str] = crashpoints.POINTS,
    ) -> None:
        """Choose by `seed`, with `probability` at each of `points`, `most` times (None: without end); and at `at`."""
        self._random = random.Random(seed)
        self._left = most
        self._points = points
        self.probability = probability
        self.at = at
        self.struck: Counter[str] = Counter()

    def __call__(self, name: str, epoch: int) -> None:
        assert name in ALL_POINTS
        if name == self.at:
            self.at = ""
        elif self._left == 0 or name not in self._points or self._random.random() >= self.probability:
            return
        elif self._left is not None:
            self._left -= 1
        self.struck[name] += 1
        raise KilledError(f"{name} at epoch {epoch}")


def run_to_end_over_kills(query: InlineQuery) -> None:
    """Run `query` to the end of its inputs, by a new driver after each kill."""
    killed = False
    while True:
        try:
            if killed:
                query.restart()  # which may finish an epoch, and be killed too
            query.run_to_end()
            return
        except KilledError:
            killed = True


def is_killed(query: InlineQuery) -> bool:
    """Run to the end; return whether a process is killed before."""
    try:
        query.run_to_end()
    except KilledError:
        return True
    return False


def calls_so_far(path: Path) -> int:
    """Count a call in a file; return the number of calls before. A run that is repeated does not repeat it."""
    before = path.stat().st_size if path.exists() else 0
    with path.open("ab") as file:
        file.write(b".")
    return before


def answer_by_chance(calls: Path, seed: int, failing: float, value: str) -> str:
    """Return the value with the number of the call, or fail, by chance: each run of an epoch has other outcomes.

    failing: the share of calls that fail.
    """
    number = calls_so_far(calls)
    if random.Random(seed << 32 | number).random() < failing:
        raise ConnectionError(f"no answer for {value}")
    return f"{value} {number}"
