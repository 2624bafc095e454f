"""What chaos does to an application, as data: kinds of deeds and schedules drawn by seed. Nothing here runs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

KILLS: Final = ("worker", "daemon", "source", "commit", "jvm", "program", "application")
"""Processes that are killed; see `victims` in tests/crash/processes.py."""

EXECUTOR: Final = "executor"
"""What is killed besides where the master is a cluster."""

BROKER: Final = "broker"
"""The broker is killed and started again on its data."""

PAUSE: Final = "pause"
"""The application is paused, input is written, and it is resumed."""

CHANGE: Final = "change"
"""The program is stopped and another version of it started: an aggregation more, or less."""

CLOSE: Final = "close"
"""The program is stopped and started again."""

STOP: Final = "stop"
"""All processes of the application stand still (SIGSTOP) past every time-out, and go on."""

TAKEOVER: Final = "takeover"
"""They stand still, another program takes the application over, as on another machine, and they go on."""

CLOCK: Final = "clock"
"""The wall clock leaps ten years ahead for an epoch, and back."""

POWER: Final = "power"
"""The machine of the application loses its power: what was not synced is gone."""

FULL_DISK: Final = "full disk"
"""The disk with state and checkpoint is full for a while."""

RESCALE: Final = "rescale"
"""The program comes to the end of its input, topics get more partitions, a repartition topic more or fewer, and it goes
on from a savepoint whose keys are divided again; see tests/chaos/rescaling.py."""


def schedule(seed: int, cluster: bool, disk: bool) -> Iterator[str]:
    """Yield deeds without an end: every kind once, in an order drawn by `seed`, then again in another order.

    cluster: whether there are executors. disk: whether the application has a disk of its own.
    """
    draw = random.Random(seed)
    kinds = [*KILLS, BROKER, PAUSE, CHANGE, CLOSE, RESCALE, STOP, TAKEOVER, CLOCK]
    kinds += [EXECUTOR] if cluster else []
    kinds += [POWER, FULL_DISK] if disk else []
    while True:
        draw.shuffle(kinds)
        yield from kinds
