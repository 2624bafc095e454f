"""The worker processes of a process of a simulation: their tasks are run as in real ones, and they die at times, before
or behind what they were asked for. How they are placed, replaced and answered for is the host's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.host.deployment.layout import Layout
from penstock.host.supervision.turns import Turn
from penstock.host.threads import vocabulary as v
from penstock.host.threads.processing import TaskRunner
from penstock.host.threads.workers.messages import WorkerAction
from penstock.host.threads.workers.worker import WorkerTasks
from penstock.host.threads.workers.worker_process import Died
from penstock.plan.subtopology import TaskId
from penstock.state.api import Base
from tests.host.threads.simulation.world import World

_MOST_MS = 50
"""Within this time, the parent sees that a worker has ended."""

_START_MS = 1_000
"""Within this time, a worker has loaded the program."""


class Deaths:
    """Which workers of a process are to die: those that run one task, so many in a row."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._left = 0
        self._task: TaskId | None = None

    def let_die(self, number: int) -> None:
        """Let workers die, of one task, at some of their steps."""
        self._left, self._task = number, None

    def spare(self) -> None:
        """Let no more die."""
        self._left = 0

    def comes(self, task: TaskId) -> bool:
        """Return whether a worker dies that does something for `task`, either before it or behind it."""
        if not self._left or not self._world.chance(0.3):
            return False
        self._task = self._task or task
        if task != self._task:
            return False
        self._left -= 1
        return True


class SimulatedWorker:
    """One worker process, from its start to its end (implements Worker)."""

    def __init__(
        self,
        world: World,
        name: str,
        layout: Layout,
        open_base: Callable[[TaskId], Base],
        later: Callable[[int, Callable[[], object]], None],
        deaths: Deaths,
        answer: Callable[[v.Event], None],
        died: Died,
    ) -> None:
        self._world, self._name, self._later, self._deaths = world, name, later, deaths
        self._answer, self._died = answer, died
        self._bases: dict[TaskId, Base] = {}
        self._open = open_base
        self._runner = TaskRunner(layout, layout.topic_partitions)
        self._tasks = WorkerTasks(self._runner, self._open_base)
        self._unanswered: deque[WorkerAction] = deque()
        self._is_dead = self._has_ended = self._is_busy = False
        self._is_up = False
        later(world.random.randrange(_START_MS), self._up)

    pid = 0

    @property
    def is_alive(self) -> bool:
        return not self._has_ended

    def refusal(self) -> str:
        return ""

    def do(self, action: WorkerAction) -> bool:
        if self._has_ended:
            return False
        self._unanswered.append(action)
        self._go_on()
        return True

    def die(self) -> None:
        """End at once."""
        if self._is_dead:
            return
        self._world.note(self._name, "a worker dies")
        self._is_dead = True
        for task in self._runner.open_tasks():
            self._bases[task].close()
        self._later(self._world.random.randrange(_MOST_MS), self._ended)

    def _open_base(self, task: TaskId) -> Base:
        self._bases[task] = base = self._open(task)
        return base

    def _up(self) -> None:
        self._is_up = True
        self._go_on()

    def _go_on(self) -> None:
        if self._is_up and self._unanswered and not self._is_busy and not self._is_dead:
            self._is_busy = True
            self._later(self._world.random.randrange(3), self._step)

    def _step(self) -> None:
        if self._is_dead:
            return
        self._is_busy = False
        action = self._unanswered[0]
        dies = self._deaths.comes(action.task)
        if dies and self._world.chance(0.5):
            self.die()
            return
        event = self._tasks.do(action)
        if dies:
            self.die()
            return
        self._unanswered.popleft()
        self._answer(event)
        self._go_on()

    def _ended(self) -> None:
        self._has_ended = True
        unanswered, self._unanswered = list(self._unanswered), deque()
        self._died("was killed", self.pid, unanswered)

    def is_hung(self, limit_ms: int) -> bool:
        return False

    def kill_if_hung(self, limit_ms: int) -> None:
        pass

    def read(self, question: object) -> Any:
        raise AssertionError("Nobody reads stores in a simulation.")

    def close(self) -> None:
        pass


def starter(
    world: World,
    name: str,
    layout: Layout,
    open_base: Callable[[TaskId], Base],
    later: Callable[[int, Callable[[], object]], None],
    deaths: Deaths,
    workers: list[SimulatedWorker],
) -> Callable[[Callable[[v.Event], None], Died, Turn | None], SimulatedWorker]:
    """Return what starts workers of a process, and keeps them in `workers`."""

    def start(answer: Callable[[v.Event], None], died: Died, turn: Turn | None) -> SimulatedWorker:
        worker = SimulatedWorker(world, name, layout, open_base, later, deaths, answer, died)
        workers[:] = [*(each for each in workers if each.is_alive), worker]
        return worker

    return start
