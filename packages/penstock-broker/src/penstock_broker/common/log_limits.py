"""Limits the rate of log lines that would come once per record, or once per attempt to connect.

The first line of a kind appears immediately. Those that follow it within the interval are counted; when it is over, the
last of them appears, with their number. So 200,000 records that cannot be read make a few lines, and the last has the
topic, partition and offset of the last record.
"""

from __future__ import annotations

import atexit
import copy
import logging
import os
import threading
from collections.abc import Callable, Hashable

INTERVAL_SECONDS = 60.0
"""Between two lines of a kind."""

_MOST_KINDS = 100
"""Kinds of lines that one logger tells apart; all further ones count as one."""


class _Kind:
    """The lines of a kind within one interval: how many were left out, and the last of them."""

    def __init__(self) -> None:
        self.left_out = 0
        self.last: logging.LogRecord | None = None


class RateLimit(logging.Filter):
    """A filter that lets lines of a kind pass once an interval; see the module."""

    def __init__(
        self,
        log: logging.Logger,
        interval_seconds: float = INTERVAL_SECONDS,
        up_to: int = logging.WARNING,
        kind: Callable[[logging.LogRecord], Hashable] = lambda line: line.msg,
    ) -> None:
        """Limit nothing yet; see `limit_rate` for the arguments."""
        super().__init__()
        self._log = log
        self._interval = interval_seconds
        self._up_to = up_to
        self._kind = kind
        self.begin()

    def begin(self) -> None:
        """Begin as if nothing had been logged; in a process that was forked, too, where the timer does not run."""
        self._lock = threading.Lock()
        self._kinds: dict[Hashable, _Kind] = {}
        self._timer: threading.Timer | None = None

    def forget(self) -> None:
        """End the timer and begin again: for another test, or at exit, where the log may be closed before the interval
        is over."""
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
        """Tell what was left out in the interval that is over, and begin the next one."""
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
    """Return `log`, whose lines appear once an interval from now on.

    Args:
        log: the logger.
        interval_seconds: between two lines of a kind.
        up_to: lines of a higher level always appear.
        kind: what tells the kinds of lines apart; their text before its arguments are put in.
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
    """Begin again without the timers: they do not survive, and their locks may be held."""
    for limit in _limits:
        limit.begin()


atexit.register(forget_lines)
os.register_at_fork(after_in_child=_begin_in_child)
