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


class _Delay:
    """The blocks of `undisturbed` that the main thread is in, and whether a signal waits for their end."""

    blocks = 0
    is_due = False


@contextmanager
def undisturbed() -> Iterator[None]:
    """Raise the SystemExit of the first SIGTERM after the block instead of in it.

    It is for conversations that cannot be taken up again: after an exception while an answer of the JVM is on its way,
    the next call of the thread would get this answer. Outside of the main thread, it changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _Delay.blocks += 1
    try:
        yield
    finally:
        _Delay.blocks -= 1
        if _Delay.is_due and not _Delay.blocks:
            _Delay.is_due = False
            raise SystemExit(TERMINATED)


@contextmanager
def terminating() -> Iterator[None]:
    """Raise SystemExit(TERMINATED) inside the block on SIGTERM, after calling the previous handler.

    A block of `undisturbed` delays the first one. A second SIGTERM raises it again, which interrupts a waiting close; a
    third one ends the process at once. The block restores the previous handler. It changes nothing in threads other
    than the main one, where Python receives no signals, or if SIGTERM is ignored.
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
            if _Delay.blocks:
                _Delay.is_due = True
                return
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
