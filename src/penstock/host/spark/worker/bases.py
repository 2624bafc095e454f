"""Where the bases of tasks are on a machine, and how a worker opens one.

<state.dir>/<application.id>/
  bases/<task>             LMDB; any worker may have it open
  bases-rocksdb/<task>     RocksDB, if `penstock.state.base` says so; one worker at a time
  uncommitted/<task>/      what outgrows the memory of an attempt, until it ends
"""

from __future__ import annotations

import shutil
import time
import uuid
from pathlib import Path

from penstock.errors import LockError
from penstock.host.spark.recipe import Recipe
from penstock.state.api import Base
from penstock.state.lmdb import LmdbBase
from penstock.state.open import LMDB, ROCKSDB, open_base

_DIRECTORIES = {LMDB: "bases", ROCKSDB: "bases-rocksdb"}
_PATIENCE_SECONDS = 60
_LOOK_SECONDS = 0.05


def base_directory(recipe: Recipe, task: str) -> Path:
    """Return where the base of `task` is on each machine."""
    return _directory(recipe, _DIRECTORIES[recipe.config["penstock.state.base"]], task)


def open_task_base(recipe: Recipe, task: str, content_bytes: int) -> Base:
    """Open the base of `task`, in which `content_bytes` are to be expected; waits for a worker that has it open, if
    only one may.

    Raises:
        LockError: a worker has it open for a minute: an attempt of the task that was given up and goes on.
        ProcessorStateError: it cannot be opened.
    """
    kind = recipe.config["penstock.state.base"]
    for other in _DIRECTORIES.keys() - {kind}:  # of a run with another configuration: behind, and in the way
        shutil.rmtree(_directory(recipe, _DIRECTORIES[other], task), ignore_errors=True)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return open_base(kind, base_directory(recipe, task), recipe.config, content_bytes)
        except LockError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_LOOK_SECONDS)


class Scratch:
    """A place on disk for the uncommitted changes of one attempt of a task."""

    def __init__(self, recipe: Recipe, task: str) -> None:
        """Take the place, and clear away what attempts left that were killed."""
        self._directory = _directory(recipe, "uncommitted", task)
        self.clear()

    def open(self) -> Base:
        """Return an empty base."""
        return LmdbBase(self._directory / uuid.uuid4().hex)

    def clear(self) -> None:
        """Delete what is there; whoever has it open may go on to use it."""
        shutil.rmtree(self._directory, ignore_errors=True)


def _directory(recipe: Recipe, kind: str, task: str) -> Path:
    return Path(recipe.config["state.dir"]) / recipe.application_id / kind / task
