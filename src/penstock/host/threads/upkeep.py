"""The thread that looks after a running instance from time to time: whether its topics have changed,
how far it is, and which state it no longer needs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from penstock_broker.common.clock import elapsed_milliseconds

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5


class Upkeep:
    """Calls functions again and again until it is closed; they look themselves whether it is time for them."""

    def __init__(self, name: str, functions: Sequence[Callable[[], None]]) -> None:
        """Start. name: of the thread."""
        self._functions = functions
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self, seconds: float) -> None:
        """End after the function that runs now; wait so long for it (s)."""
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
    """Return a function that calls `function`, unless it has done so, or was made, less than `interval_ms` ago."""
    last = elapsed_ms()

    def look() -> None:
        nonlocal last
        now = elapsed_ms()
        if now - last >= interval_ms:
            last = now
            function()

    return look
