"""Reasons to close a running application at the end of the program instead of waiting."""

from __future__ import annotations

import sys
import threading
import time
from typing import Final

_CLOSE_TIMEOUT_MS: Final = 10_000
"""The total time for closing the applications still open at the end of a program."""

_TEST_RUNNERS: Final = ("_pytest", "unittest.case", "unittest.suite", "doctest")
"""Modules that call tests."""


def is_in_a_test() -> bool:
    """Return whether the main thread runs a test."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        name = f"{frame.f_globals.get('__name__')}."
        if any(name.startswith(f"{runner}.") for runner in _TEST_RUNNERS):
            return True
        frame = frame.f_back
    return False


def ended_with(is_of_a_test: bool) -> str | None:
    """Return the reason not to wait for an application that is still open.

    None if it may keep the program alive. Call it at the end of the program.

    Args:
        is_of_a_test: whether a test has started the application.
    """
    if is_of_a_test:
        return "The test that started it has not closed it (`with KafkaStreams(...)` always does)"
    # Python sets last_value to the error that ends the main thread, but an interactive session to every error.
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    return None if error is None else f"The main thread has ended with {type(error).__name__}"


class ForgottenApplications:
    """The applications closed at the end of the program."""

    def __init__(self) -> None:
        self._deadline: float | None = None

    def close_timeout_ms(self) -> int:
        """Return the time (ms) for closing the next application.

        All applications share the time of one.
        """
        if self._deadline is None:
            self._deadline = time.monotonic() + _CLOSE_TIMEOUT_MS / 1000
        return max(0, int((self._deadline - time.monotonic()) * 1000))


FORGOTTEN: Final = ForgottenApplications()
