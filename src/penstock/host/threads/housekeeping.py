"""The maintenance thread of a running instance.

From time to time it checks for changed topics, its progress, and state that is no longer needed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from penstock_broker.common.clock import elapsed_milliseconds

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5


class Housekeeping:
    """Calls functions repeatedly until it is closed; each checks whether it is due.

    Args:
        name: of the thread.
        functions: called one after the other.
    """

    def __init__(self, name: str, functions: Sequence[Callable[[], None]]) -> None:
        self._functions = functions
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self, seconds: float) -> None:
        """End after the current function; wait up to `seconds` for it."""
        self._closed.set()
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _run(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            for function in self._functions:
                try:
                    function()
                except Exception:
                    _log.exception("%s failed, and will be tried again.", self._thread.name)


def at_intervals(
    interval_ms: int, function: Callable[[], None], elapsed_ms: Callable[[], int] = elapsed_milliseconds
) -> Callable[[], None]:
    """Return a function that calls `function` at most once per `interval_ms`, first after that time."""
    last = elapsed_ms()

    def look() -> None:
        nonlocal last
        now = elapsed_ms()
        if now - last >= interval_ms:
            last = now
            function()

    return look
