"""Work in a thread of its own: its result, its error, and its end after an interruption."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from penstock.host.spark.frames import interruptible as module
from penstock.host.spark.frames.interruptible import interruptible
from tests.host.support import wait_for


@pytest.fixture(autouse=True)
def plain_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Need no JVM: a thread that inherits nothing of it."""

    def thread(target: Any, session: Any, daemon: bool) -> threading.Thread:
        return threading.Thread(target=target, daemon=daemon)

    monkeypatch.setattr(module, "InheritableThread", thread)
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.001)


def never() -> None:
    raise AssertionError("Nothing is interrupted.")


def test_work_has_a_result_or_an_error() -> None:
    session: Any = None
    assert interruptible(session, lambda: threading.current_thread(), never) is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        interruptible(session, lambda: 1 / 0, never)


@pytest.mark.parametrize("interruption", [SystemExit(143), KeyboardInterrupt()])
def test_interrupted_work_is_cancelled_until_it_ends(
    interruption: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Any = None
    begun, cancelled = threading.Event(), threading.Event()
    cancels: list[int] = []

    def work() -> None:
        begun.set()
        assert cancelled.wait(60)

    def cancel() -> None:
        cancels.append(1)
        if len(cancels) == 1:
            raise ConnectionError("Spark does not answer.")
        if len(cancels) == 3:
            cancelled.set()

    class Interrupted(Future[None]):
        def result(self, timeout: float | None = None) -> None:
            wait_for(begun.is_set)
            raise interruption

    monkeypatch.setattr(module, "Future", Interrupted)
    with pytest.raises(type(interruption)) as raised:
        interruptible(session, work, cancel)
    assert raised.value is interruption
    assert cancelled.is_set()


def test_work_that_does_not_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = None
    ends = threading.Event()

    class Interrupted(Future[None]):
        def result(self, timeout: float | None = None) -> None:
            raise SystemExit(143)

    monkeypatch.setattr(module, "_CANCEL_SECONDS", 0.01)
    monkeypatch.setattr(module, "Future", Interrupted)
    with pytest.raises(SystemExit):
        interruptible(session, lambda: ends.wait(60), lambda: None)
    ends.set()
