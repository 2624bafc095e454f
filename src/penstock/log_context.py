"""Log record attributes for the current work: application, task and epoch.

The attributes are `penstock_application`, `penstock_task` and `penstock_epoch`; they are empty for lines from
elsewhere. Lines logged by users' functions have them too. Nothing here formats or writes a line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Work(NamedTuple):
    """The current work of a thread.

    Args:
        application: the application.id.
        task: the task id; empty outside of tasks.
        epoch: on Spark its number, on the threads host the number of the commit since the start; empty outside of
            epochs.
    """

    application: str = ""
    task: str = ""
    epoch: int | str = ""


_NO_WORK: Final = Work()
_work: Final[ContextVar[Work]] = ContextVar("penstock_work", default=_NO_WORK)


class _Marking:
    """A log record factory that adds the attributes to the records of another factory."""

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._make(*args, **kwargs)
        record.penstock_application, record.penstock_task, record.penstock_epoch = _work.get()
        return record


def mark_log_records() -> None:
    """Add the attributes to all later log records of this process."""
    make = logging.getLogRecordFactory()
    if not isinstance(make, _Marking):
        logging.setLogRecordFactory(_Marking(make))


def current_work() -> Work:
    """Return the current work of this thread."""
    return _work.get()


class logged_as:  # noqa: N801 - a context manager, named like a function
    """Adds the attributes to log records of its block, or of the decorated function.

    The arguments are those of `Work`.
    """

    def __init__(self, application: str, task: str = "", epoch: int | str = "") -> None:
        self._work = Work(application, task, epoch)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return `function` in such a block; each call has its own, so calls may overlap."""

        @wraps(function)
        def logged(*args: P.args, **kwargs: P.kwargs) -> T:
            with logged_as(*self._work):
                return function(*args, **kwargs)

        return logged

    def __enter__(self) -> None:
        self._token = _work.set(self._work)

    def __exit__(self, *_: object) -> None:
        _work.reset(self._token)
