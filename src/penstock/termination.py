"""SIGTERM ends a block of the main thread as an exception would, so that what it opened is closed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

TERMINATED: Final = 143
"""The exit code of a program that SIGTERM has ended."""


@contextmanager
def terminating() -> Iterator[None]:
    """Make SIGTERM raise SystemExit(TERMINATED) inside the block, once, after calling the previous handler.

    The block restores the previous handler. Nothing changes in threads other than the main one, where Python receives
    no signals, or if SIGTERM is ignored.
    """
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        yield
        return
    ended = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal ended
        if ended:  # what was opened is being closed
            return
        ended = True
        if callable(before):
            before(number, frame)
        raise SystemExit(TERMINATED)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is end:
            signal.signal(signal.SIGTERM, before)
