"""Detaching objects from their parent's threads and processes in a forked process."""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class OfOneProcess(Protocol):
    """An object with threads or processes, which do not exist in a forked process."""

    def _leave_to_the_parent(self) -> None:
        """Shut down in this forked process without affecting the parent."""
        ...


_objects: Final[WeakSet[OfOneProcess]] = WeakSet()


def stay_in_this_process(each: OfOneProcess) -> None:
    """Detach `each` from its threads and processes in every process forked from now on."""
    _objects.add(each)


def _leave_to_the_parent() -> None:
    for each in _objects:
        each._leave_to_the_parent()
    _objects.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)
