"""The errors that stopped all tasks, and the responses to them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from traceback import format_exception, format_exception_only
from typing import Final

from penstock.errors import StreamsError
from penstock.host.api import StreamThreadExceptionResponse
from penstock.record import FailedRecord
from penstock_broker.common.clock import SystemClock

_log = logging.getLogger(__name__)

_KEPT_ERRORS: Final = 50
_KEPT_TRACEBACK: Final = 10_000
"""The number of characters kept of a message, and of the end of a traceback."""

StreamsUncaughtExceptionHandler = Callable[[BaseException], StreamThreadExceptionResponse]
"""Handles an error that stopped all tasks, in any thread (Kafka class: StreamsUncaughtExceptionHandler)."""


@dataclass(frozen=True)
class UncaughtError:
    """An error that stopped all tasks.

    Args:
        time_ms: its time (ms since the epoch).
        error: its type and message.
        traceback: the end of its traceback.
        response: the response of the handler.
        record: the record on which a task failed; None for other errors.
    """

    time_ms: int
    error: str
    traceback: str
    response: StreamThreadExceptionResponse
    record: FailedRecord | None = None


class UncaughtErrors:
    """Passes the errors of an application to its handler, and keeps the last of them.

    Without a handler, or if the handler itself fails, the response is SHUTDOWN_CLIENT. handler: set before the start.
    """

    def __init__(self, application_id: str) -> None:
        self._application_id = application_id
        self._lock = threading.Lock()
        self._kept: deque[UncaughtError] = deque(maxlen=_KEPT_ERRORS)
        self._count = 0
        self.handler: StreamsUncaughtExceptionHandler | None = None

    def response_to(self, error: BaseException) -> StreamThreadExceptionResponse:
        """Return the response of the handler to `error`, and keep both."""
        response = self._decided(error)
        text = "".join(format_exception_only(error)).strip()[:_KEPT_TRACEBACK]
        traceback = "".join(format_exception(error))[-_KEPT_TRACEBACK:]
        record = error.failed_record if isinstance(error, StreamsError) else None
        with self._lock:
            self._count += 1
            self._kept.append(UncaughtError(SystemClock().milliseconds(), text, traceback, response, record))
        return response

    def kept(self) -> tuple[int, Sequence[UncaughtError]]:
        """Return the number of errors since the start, and the last 50, newest last."""
        with self._lock:
            return self._count, tuple(self._kept)

    def _decided(self, error: BaseException) -> StreamThreadExceptionResponse:
        if self.handler is None:
            notes = "".join(f"\n{note}" for note in vars(error).get("__notes__", ()))
            _log.error("%s ends: %s%s", self._application_id, error, notes)
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT
        try:
            return StreamThreadExceptionResponse(self.handler(error))
        except Exception:
            _log.exception("The uncaught exception handler of %s failed itself.", self._application_id)
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT
