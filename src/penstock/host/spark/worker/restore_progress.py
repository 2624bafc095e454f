"""Tells how far tasks are in rebuilding their bases, from the workers that do it to the driver that says it.

A worker that rebuilds a base for longer than a moment writes, every now and then, how many entries it has restored, as
a small file of its task beside the state; the driver looks for such files, where workers on any machine can put them.
They are news, not state: one of another generation or of a committed epoch is void, and nobody minds one that is lost.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import orjson

from penstock.clock import SystemClock
from penstock.host.spark.checkpoints.checkpoint import Checkpoint

_log = logging.getLogger(__name__)

_WRITE_MS = 1_000
_LOOK_MS = 2_000


class RestoreState(NamedTuple):
    """How far a rebuild is: by a driver of which generation, for which epoch, entries restored and in all."""

    generation: int
    epoch: int
    restored: int
    total: int


class RestoreProgress:
    """What one worker says of one rebuild."""

    def __init__(self, checkpoint: Checkpoint, generation: int, task: str, epoch: int) -> None:
        """Tell of the rebuild of `task` for `epoch`, by a worker of the driver of `generation`."""
        self._checkpoint = checkpoint
        self._task = task
        self._clock = SystemClock()
        self._state = RestoreState(generation, epoch, 0, 0)
        self._told_ms = 0
        self._told = False

    def begin(self, total: int) -> None:
        """Start to count: `total` entries are to be restored."""
        self._state = self._state._replace(restored=0, total=total)
        self._told_ms = self._clock.milliseconds()

    def restored(self, entries: int) -> None:
        """Count `entries` more."""
        self._state = self._state._replace(restored=self._state.restored + entries)
        now = self._clock.milliseconds()
        if now - self._told_ms >= _WRITE_MS:
            self._told_ms, self._told = now, True
            self._checkpoint.write_restore_state(self._task, orjson.dumps(list(self._state)))

    def end(self) -> None:
        """Take the news back, if there were any."""
        if self._told:
            self._checkpoint.delete_restore_state(self._task)


class RestoreWatch:
    """What the driver knows of running rebuilds, from a look every other second."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Watch the tasks of `checkpoint`; nothing is looked at yet."""
        self._checkpoint = checkpoint
        self._clock = SystemClock()
        self._looked_ms = 0
        self._states: dict[str, RestoreState] = {}

    def look(self, generation: int, committed_epoch: int) -> None:
        """Look if it is time, and log what is new of the epoch after `committed_epoch`."""
        now = self._clock.milliseconds()
        if now - self._looked_ms < _LOOK_MS:
            return
        self._looked_ms = now
        found = {
            task: state
            for task, data in self._checkpoint.restore_states().items()
            for state in (RestoreState(*orjson.loads(data)),)
            if (state.generation, state.epoch) == (generation, committed_epoch + 1)
        }
        for task, state in found.items():
            if state != self._states.get(task):
                _log.info("Task %s restores its state: %d of %d entries.", task, state.restored, state.total)
        for task in self._states.keys() - found.keys():
            _log.info("Task %s has restored its state.", task)
        self._states = found

    def snapshot(self) -> dict[str, tuple[int, int]]:
        """Return (entries restored, entries in all) of each task that is rebuilding, by task id."""
        return {task: (state.restored, state.total) for task, state in self._states.items()}
