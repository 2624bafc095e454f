"""What chaos does to an application, as data: kinds of deeds and schedules drawn by seed. Nothing here runs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
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
"""The wall clock leaps ten years ahead for an epoch or some seconds, and back."""

TEN_YEARS_SECONDS: Final = 10 * 365 * 86_400

POWER: Final = "power"
"""The machine of the application loses its power: what was not synced is gone."""

FULL_DISK: Final = "full disk"
"""The disk with state and checkpoint is full for a while."""

RESCALE: Final = "rescale"
"""The program comes to the end of its input, topics get more partitions, a repartition topic more or fewer, and it goes
on from a savepoint whose keys are divided again; see tests/chaos/rescaling.py."""

INSTANCE: Final = "instance"
"""An instance of the threads host is killed, and started again."""

LOST_DIRECTORY: Final = "lost directory"
"""An instance is killed, and started again without its state directory."""

CHANGELOG: Final = "changelog"
"""All instances are closed and a changelog is deleted: one that starts ends with an error that names it, and the state
of all instances writes it again."""

LOST_ANSWERS: Final = "lost answers"
"""What the coordinator of the group answers an instance, or a program on Spark, is lost for a while, while all
connections stay open."""

LEADER: Final = "leader"
"""The instance that leads a rebalance is killed between two of its steps."""

QUOTA: Final = "quota"
"""The broker takes little of what producers write, for more than a commit."""

BYTES_A_SECOND: Final = 2_000.0
"""The quota of producers: a burst of eleven times as much is free."""

SLOW_ROUNDS: Final = 5
"""How many rounds of input are written under the quota."""

FLIPPED_BIT: Final = "flipped bit"
"""A record of the input is fetched with a bit flipped: the application ends with an error that names the place, and
goes on once the record is read as it was written."""

OF_INSTANCES: Final = (
    INSTANCE,
    LOST_DIRECTORY,
    STOP,
    CLOSE,
    CLOCK,
    BROKER,
    QUOTA,
    FLIPPED_BIT,
    CHANGELOG,
    LOST_ANSWERS,
    LEADER,
)
"""What is done to the instances of a group: to one of them, but for those of `OF_ALL` and a changelog."""

OF_ALL: Final = (BROKER, QUOTA, FLIPPED_BIT)
"""What is done to all instances together."""


def schedule(seed: int, cluster: bool, disk: bool) -> Iterator[str]:
    """Yield deeds to an application on Spark, as `in_turns`.

    cluster: whether there are executors. disk: whether the application has a disk of its own.
    """
    kinds = [*KILLS, BROKER, PAUSE, CHANGE, CLOSE, RESCALE, STOP, TAKEOVER, CLOCK, QUOTA, FLIPPED_BIT, LOST_ANSWERS]
    kinds += [EXECUTOR] if cluster else []
    kinds += [POWER, FULL_DISK] if disk else []
    return in_turns(seed, kinds)


def in_turns(seed: int, of: Sequence[str]) -> Iterator[str]:
    """Yield deeds without an end: every kind once, in an order drawn by `seed`, then again in another order."""
    draw, kinds = random.Random(seed), list(of)
    while True:
        draw.shuffle(kinds)
        yield from kinds
