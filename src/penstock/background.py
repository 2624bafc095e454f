"""Calls that may not return, for a caller that waits for them no longer than he wants."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def in_background(name: str, call: Callable[[], T]) -> Future[T]:
    """Run `call` in its own daemon thread, which the caller may abandon; the end of the program does not wait for it
    either.

    Args:
        name: of the thread.
        call: what is run, once.

    Returns:
        The future of what `call` returns or raises, which cannot be cancelled.
    """
    returned: Future[T] = Future()
    returned.set_running_or_notify_cancel()  # whoever waits may give up; the call goes on
    Thread(target=_run, args=(returned, call), name=name, daemon=True).start()
    return returned


def _run(returned: Future[T], call: Callable[[], T]) -> None:
    try:
        returned.set_result(call())
    except BaseException as error:
        returned.set_exception(error)
    finally:
        del returned, call  # else the error keeps them, by the frame: a reference cycle
