"""Rate limits for log lines that would otherwise appear once per record or connection attempt.

The first line of a kind appears immediately. Further lines within the interval are counted; when it ends, the last of
them appears with their number. So 200,000 unreadable records make a few lines, and the last line has the topic,
partition and offset of the last record.
"""

from __future__ import annotations

import atexit
import copy
import logging
import os
import threading
from collections.abc import Callable, Hashable

INTERVAL_SECONDS = 60.0
"""Seconds between two lines of a kind."""

_MOST_KINDS = 100
"""Kinds of lines that one logger distinguishes; all others count as one kind."""


class _Kind:
    """The suppressed lines of a kind within one interval: their number and the last one."""

    def __init__(self) -> None:
        self.left_out = 0
        self.last: logging.LogRecord | None = None


class RateLimit(logging.Filter):
    """A filter that passes one line of each kind per interval.

    Args:
        log: the logger.
        interval_seconds: time between two lines of a kind.
        up_to: lines of a higher level always appear.
        kind: the key that distinguishes kinds of lines; by default the message before its arguments are merged.
    """

    def __init__(
        self,
        log: logging.Logger,
        interval_seconds: float = INTERVAL_SECONDS,
        up_to: int = logging.WARNING,
        kind: Callable[[logging.LogRecord], Hashable] = lambda line: line.msg,
    ) -> None:
        super().__init__()
        self._log = log
        self._interval = interval_seconds
        self._up_to = up_to
        self._kind = kind
        self.begin()

    def begin(self) -> None:
        """Reset all state.

        Also used in a forked process, where the timer does not run.
        """
        self._lock = threading.Lock()
        self._kinds: dict[Hashable, _Kind] = {}
        self._timer: threading.Timer | None = None

    def forget(self) -> None:
        """Cancel the timer and reset all state.

        For the next test, or at exit, when the log may be closed before the interval ends.
        """
        if self._timer is not None:
            self._timer.cancel()
        self.begin()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line may appear now."""
        if record.levelno > self._up_to or getattr(record, "is_summary", False):
            return True
        with self._lock:
            kind = self._kind(record)
            if kind not in self._kinds and len(self._kinds) >= _MOST_KINDS:
                kind = None
            found = self._kinds.get(kind)
            if found is None:
                self._kinds[kind] = _Kind()
            else:
                found.left_out += 1
                found.last = record
            if self._timer is None:
                self._timer = threading.Timer(self._interval, self._tell)
                self._timer.daemon = True
                self._timer.start()
            return found is None

    def _tell(self) -> None:
        """Log the suppressed lines of the past interval and begin the next one."""
        with self._lock:
            over, self._kinds = self._kinds, {}
            self._timer = None
        for kind in over.values():
            if kind.last is not None:
                line = copy.copy(kind.last)
                said = f"{kind.left_out} more such lines in {self._interval:g} s, this is the last one"
                line.msg = f"{line.getMessage()} ({said})"
                line.args = ()
                line.exc_info = None
                line.__dict__["is_summary"] = True
                self._log.handle(line)


_limits: list[RateLimit] = []


def limit_rate(
    log: logging.Logger,
    interval_seconds: float = INTERVAL_SECONDS,
    up_to: int = logging.WARNING,
    kind: Callable[[logging.LogRecord], Hashable] = lambda line: line.msg,
) -> logging.Logger:
    """Limit each kind of line in `log` to one per interval, and return `log`.

    Args:
        log: the logger.
        interval_seconds: time between two lines of a kind.
        up_to: lines of a higher level always appear.
        kind: the key that distinguishes kinds of lines; by default the message before its arguments are merged.
    """
    limit = RateLimit(log, interval_seconds, up_to, kind)
    log.addFilter(limit)
    _limits.append(limit)
    return log


def forget_lines() -> None:
    """Make the next line of each kind appear immediately."""
    for limit in _limits:
        limit.forget()


def _begin_in_child() -> None:
    """Reset the limits in a forked process.

    Their timers do not survive a fork, and their locks may be held.
    """
    for limit in _limits:
        limit.begin()


atexit.register(forget_lines)
os.register_at_fork(after_in_child=_begin_in_child)
