"""Crashes at the named points of an epoch, played in one process by a seed."""

from __future__ import annotations

import random
from collections import Counter

from penstock.host.spark import crashpoints
from tests.spark.inline import InlineQuery


class KilledError(BaseException):
    """What a kill is in one process."""


class Crashes:
    """Strikes at points chosen by a seed: each time a process comes to a point, with a certain probability."""

    def __init__(self, seed: int, probability: float, most: int) -> None:
        self._random = random.Random(seed)
        self._probability = probability
        self._left = most
        self.struck: Counter[str] = Counter()

    def __call__(self, name: str, epoch: int) -> None:
        assert name in crashpoints.POINTS
        if self._left and self._random.random() < self._probability:
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
