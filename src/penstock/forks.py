"""What an object does in a process that is forked: it leaves threads and processes to the parent, which has them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakMethod

_methods: Final[set[WeakMethod[Callable[[], Any]]]] = set()


def call_in_children(method: Callable[[], None]) -> None:
    """Call `method` in each process that is forked from now on, for as long as its object exists."""
    _methods.add(WeakMethod(method, _methods.discard))


def _call() -> None:
    for reference in list(_methods):
        method = reference()
        if method is not None:
            method()
    _methods.clear()


os.register_at_fork(after_in_child=_call)
