"""What an object does in a process that is forked: it leaves threads and processes to the parent, which has them."""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class OfOneProcess(Protocol):
    """Has threads or processes, which a forked process does not have."""

    def _leave_to_the_parent(self) -> None:
        """Be ended in this process, which was forked, and change nothing in its parent."""
        ...


_objects: Final[WeakSet[OfOneProcess]] = WeakSet()


def stay_in_this_process(each: OfOneProcess) -> None:
    """Let `each` leave what it has to this process in all processes that are forked from now on."""
    _objects.add(each)


def _leave_to_the_parent() -> None:
    for each in _objects:
        each._leave_to_the_parent()
    _objects.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)
