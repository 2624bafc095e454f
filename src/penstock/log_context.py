"""What a line of the log says of the work that it comes from: application, task and epoch, as attributes.

The attributes of a log record are `penstock_application`, `penstock_task` and `penstock_epoch`; they are empty where a
line comes from something else. Lines that functions of the user log have them too. Nothing here formats or writes a
line.
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
    """What a thread works on. application: the application.id. task: the task id, empty for what is of no task. epoch:
    on Spark its number, on the threads host that of the commit since the start, empty where there is none."""

    application: str = ""
    task: str = ""
    epoch: int | str = ""


_NO_WORK: Final = Work()
_work: Final[ContextVar[Work]] = ContextVar("penstock_work", default=_NO_WORK)


class _Marking:
    """A factory of log records that gives those of another one the attributes."""

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._make(*args, **kwargs)
        record.penstock_application, record.penstock_task, record.penstock_epoch = _work.get()
        return record


def mark_log_records() -> None:
    """Give log records of this process the attributes, from now on."""
    make = logging.getLogRecordFactory()
    if not isinstance(make, _Marking):
        logging.setLogRecordFactory(_Marking(make))


def current_work() -> Work:
    """Return what this thread works on."""
    return _work.get()


class logged_as:  # noqa: N801 - a context manager, which reads as a function does
    """Gives what this thread logs in its block, or in the function that it decorates, the attributes; the arguments are
    those of `Work`."""

    def __init__(self, application: str, task: str = "", epoch: int | str = "") -> None:
        self._work = Work(application, task, epoch)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return `function` in such a block; each call has its own, so that calls may overlap."""

        @wraps(function)
        def logged(*args: P.args, **kwargs: P.kwargs) -> T:
            with logged_as(*self._work):
                return function(*args, **kwargs)

        return logged

    def __enter__(self) -> None:
        self._token = _work.set(self._work)

    def __exit__(self, *_: object) -> None:
        _work.reset(self._token)
