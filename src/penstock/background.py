"""Calls that may block forever, for callers with a limited wait."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def in_background(name: str, call: Callable[[], T]) -> Future[T]:
    """Run `call` in its own daemon thread.

    The caller may abandon the thread, and the interpreter does not wait for it on exit.

    Args:
        name: of the thread.
        call: the function to run, once.

    Returns:
        The future of the result or error of `call`; it cannot be cancelled.
    """
    returned: Future[T] = Future()
    returned.set_running_or_notify_cancel()  # the caller may give up; the call goes on
    Thread(target=_run, args=(returned, call), name=name, daemon=True).start()
    return returned


def _run(returned: Future[T], call: Callable[[], T]) -> None:
    try:
        returned.set_result(call())
    except BaseException as error:
        returned.set_exception(error)
    finally:
        del returned, call  # otherwise the error keeps them through its frame: a reference cycle
