"""Applications that refuse to run while a command loads the file of their program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from penstock.errors import StreamsError

Refusal: TypeAlias = Callable[[], StreamsError]
"""Returns the error of an application that refuses to run."""

_refusal: Refusal | None = None


@contextmanager
def without_running(refusal: Refusal) -> Iterator[None]:
    """Make applications created in the block, in any thread, refuse to run."""
    global _refusal
    before, _refusal = _refusal, refusal
    try:
        yield
    finally:
        _refusal = before


def current_refusal() -> Refusal | None:
    """Return the current refusal for new applications; None outside of such a block."""
    return _refusal
