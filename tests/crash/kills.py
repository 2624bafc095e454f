"""The matrix of kills, as data: which process dies when, on which layout of cores and tasks, on which broker.

A life is one application from its first start to the end of its input, with some kills on its way, so that many kills
cost one run. `LIVES` are all of them, `sample` picks a few by seed. Nothing here runs.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.host.crashpoints import POINTS, TOPOLOGY_POINTS

SOURCE_POINTS = tuple(point for point in POINTS if point.startswith("source."))
COMMIT_POINTS = tuple(point for point in POINTS if point.startswith("manifest."))
EPOCH_POINTS = tuple(point for point in POINTS if not point.startswith(("carried.", "result.")))
"""Points of an epoch that a word count comes to: no task of it hands rows to the next epoch, or parks records."""
TASK_POINTS = tuple(point for point in EPOCH_POINTS if point not in SOURCE_POINTS + COMMIT_POINTS)

SEEN = ("planned", "manifest", "committed")
"""Moments that are seen from outside: an epoch is in the offset log, in a manifest, in Spark's commit log."""

BROKERS = ("kafka", "embedded")

BROKER = "broker"
VICTIMS_AT_POINTS = {"process": "", "group": ":group", "jvm": ":jvm", "driver": ":driver", BROKER: ":stop"}
"""Which process dies at a crash point, and how to order it. jvm: the executor, where it is a task that reaches the
point and there are executors. group: a worker's daemon with all its workers; all of the driver elsewhere. broker: it is
killed and started again while the process that reaches the point stands still."""


@dataclass(frozen=True)
class Kill:
    """One kill.

    victim: of `VICTIMS_AT_POINTS` at a crash point; else a kind of process (see `processes.victims`). moment: a crash
    point, or one of `SEEN`.
    """

    victim: str
    moment: str

    def __str__(self) -> str:
        return f"{self.victim} at {self.moment}"

    def ends_application(self, executors: bool) -> bool:
        """Return whether the application must be started again: it lives on only without some process of its tasks, and
        when its broker comes back."""
        if self.victim == BROKER:
            return False
        if self.moment in TASK_POINTS:
            return self.victim == "driver" or (self.victim == "jvm" and not executors)
        return self.victim not in ("worker", "daemon", "executor")


@dataclass(frozen=True)
class Layout:
    """Where an application runs: master of Spark, its cores, and tasks a level (the partitions of the source topic)."""

    master: str
    cores: int
    tasks: int

    @property
    def executors(self) -> bool:
        """Whether tasks run in executors, apart from the driver."""
        return self.master.startswith("local-cluster")


LAYOUTS = {
    "4-cores-1-task": Layout("local[4,4]", 4, 1),
    "4-cores-8-tasks": Layout("local[4,4]", 4, 8),
    "1-core-3-tasks": Layout("local[1,4]", 1, 3),
    "2-executors-1-task": Layout("local-cluster[2,1,1024]", 2, 1),
    "2-executors-5-tasks": Layout("local-cluster[2,1,1024]", 2, 5),
}


@dataclass(frozen=True)
class Life:
    """Kills that one application goes through, in this order, an epoch or more apart.

    epochs: how many its input is for: one for each kill, and some without; the same for all long lives, so that they
    compare with one life without a kill. changes: whether each start is one of another version of the program.
    """

    broker: str
    layout: str
    name: str
    kills: tuple[Kill, ...]
    epochs: int = 28
    changes: bool = False

    def __str__(self) -> str:
        return f"{self.broker}-{self.layout}-{self.name}"

    def most_starts(self) -> int:
        """Return how often the application is started, if it lives through all that it can."""
        executors = LAYOUTS[self.layout].executors
        return 1 + sum(kill.ends_application(executors) for kill in self.kills)


def _at(victims: Sequence[str], points: Sequence[str]) -> tuple[Kill, ...]:
    """Return a kill for each point, with the victims in turn."""
    return tuple(Kill(victim, point) for victim, point in zip(itertools.cycle(victims), points, strict=False))


def _seen(victims: Sequence[str]) -> tuple[Kill, ...]:
    return tuple(Kill(victim, moment) for victim in victims for moment in SEEN)


_IN_A_CHANGE = (
    Kill("driver", "transaction.after"),  # some of an epoch is written, and another program comes
    *(Kill("process", point) for point in TOPOLOGY_POINTS),
    Kill("driver", "manifest.before_write"),  # all of it is
    Kill("jvm", "transaction.before"),  # nothing of it is
)

_ALL = tuple(VICTIMS_AT_POINTS)


def _lives(broker: str) -> Iterator[Life]:
    """Yield the lives on one broker."""
    # Every point with every victim.
    yield from (Life(broker, "4-cores-8-tasks", victim, _at([victim], EPOCH_POINTS)) for victim in _ALL)
    # Every point and every victim, with more cores than tasks, with fewer, and in a cluster.
    yield Life(broker, "4-cores-1-task", "points", _at(_ALL, EPOCH_POINTS))
    yield Life(broker, "1-core-3-tasks", "points", _at(_ALL[::-1], EPOCH_POINTS))
    yield Life(broker, "2-executors-1-task", "points", _at(("jvm", "process", "driver"), EPOCH_POINTS))
    yield Life(broker, "2-executors-5-tasks", "executor", _at(["jvm"], EPOCH_POINTS))
    ten_kills = _at(["jvm"], ["task.after_process"] * 10)
    yield Life(broker, "2-executors-5-tasks", "executor-in-each-of-ten-epochs", ten_kills)
    yield Life(broker, "2-executors-5-tasks", "tasks", _at(["process", "group", BROKER], TASK_POINTS))
    # Random moments.
    yield Life(broker, "4-cores-8-tasks", "moments-of-tasks", _seen(("worker", "daemon", "source", "commit")))
    yield Life(broker, "4-cores-8-tasks", "moments-of-the-driver", _seen(("jvm", "program", "application")))
    yield Life(broker, "2-executors-5-tasks", "moments", _seen(("executor", "worker", "jvm", "application")))
    # Between two versions of the program.
    yield Life(broker, "4-cores-8-tasks", "changes", _IN_A_CHANGE, epochs=18, changes=True)
    yield Life(broker, "1-core-3-tasks", "changes", _IN_A_CHANGE, epochs=18, changes=True)


LIVES = tuple(life for broker in BROKERS for life in _lives(broker))


def sample(seed: int) -> tuple[Life, Life]:
    """Return two short lives, one on each broker: worker, driver and broker are killed in one, an executor in the
    other."""
    chosen = random.Random(seed)
    local = chosen.choice([name for name, layout in LAYOUTS.items() if not layout.executors])
    cluster = chosen.choice([name for name, layout in LAYOUTS.items() if layout.executors])
    worker = Kill(chosen.choice(("process", "group")), chosen.choice(TASK_POINTS))
    driver = Kill(chosen.choice(("jvm", "driver")), chosen.choice(EPOCH_POINTS))
    broker = Kill(BROKER, chosen.choice(EPOCH_POINTS))
    executor = Kill("jvm", chosen.choice(TASK_POINTS))
    one, other = chosen.sample(BROKERS, 2)
    return (
        Life(one, local, "sample-of-worker-driver-and-broker", (worker, driver, broker), epochs=10),
        Life(other, cluster, "sample-of-executor", (executor,), epochs=7),
    )
