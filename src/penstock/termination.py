"""SIGTERM as an exception in a block of the main thread, which then closes resources."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from penstock_broker.common.clock import elapsed_milliseconds

TERMINATED: Final = 143
"""The exit code of a program after SIGTERM."""

_ONE_REQUEST_MS: Final = 500
"""Signals within this time are one request: `timeout` sends SIGTERM to the process and then to its group."""


@contextmanager
def terminating() -> Iterator[None]:
    """Raise SystemExit(TERMINATED) inside the block on SIGTERM, after calling the previous handler.

    A second SIGTERM raises it again, which interrupts a waiting close; a third one ends the process at once. The block
    restores the previous handler. It changes nothing in threads other than the main one, where Python receives no
    signals, or if SIGTERM is ignored.
    """
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        yield
        return
    asked_ms: int | None = None

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal asked_ms
        if asked_ms is None:
            asked_ms = elapsed_milliseconds()
            if callable(before):
                before(number, frame)
        elif elapsed_milliseconds() - asked_ms < _ONE_REQUEST_MS:
            return
        else:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise SystemExit(TERMINATED)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is end:
            signal.signal(signal.SIGTERM, before)
