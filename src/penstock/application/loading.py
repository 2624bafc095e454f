"""While a command loads the file of a program, the applications that the file makes do not run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from penstock.errors import StreamsError

Refusal: TypeAlias = Callable[[], StreamsError]
"""Returns the error with which an application refuses to run."""

_refusal: Refusal | None = None


@contextmanager
def without_running(refusal: Refusal) -> Iterator[None]:
    """Let the applications that are made in the block, in any thread, refuse to run."""
    global _refusal
    before, _refusal = _refusal, refusal
    try:
        yield
    finally:
        _refusal = before


def current_refusal() -> Refusal | None:
    """Return why an application that is made now refuses to run; None if it does not."""
    return _refusal
