"""SIGTERM within and around a block of `terminating`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from penstock.termination import TERMINATED, terminating, undisturbed


class Clock:
    """The time that the module sees, in ms."""

    now_ms = 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("penstock.termination.elapsed_milliseconds", lambda: clock.now_ms)
    return clock


@pytest.fixture
def received() -> Iterator[list[int]]:
    """The signals that reach the handler of the program."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


def test_sigterm_calls_the_previous_handler_and_raises_system_exit(received: list[int]) -> None:
    previous = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, terminating():
        signal.raise_signal(signal.SIGTERM)
    assert (ended.value.code, TERMINATED) == (143, 128 + signal.SIGTERM)
    assert received == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is previous


def test_a_block_without_a_signal_restores_the_handler(received: list[int]) -> None:
    previous = signal.getsignal(signal.SIGTERM)
    with terminating():
        assert signal.getsignal(signal.SIGTERM) is not previous
    assert signal.getsignal(signal.SIGTERM) is previous


def test_a_handler_set_within_the_block_is_kept(received: list[int]) -> None:
    with terminating():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize(("later_ms", "raises"), [(0, False), (499, False), (500, True)])
def test_signals_within_500_ms_are_one_request(received: list[int], clock: Clock, later_ms: int, raises: bool) -> None:
    with terminating():
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        clock.now_ms += later_ms
        with pytest.raises(SystemExit) if raises else nullcontext():
            signal.raise_signal(signal.SIGTERM)
        is_last = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert is_last is raises, "after two requests the next signal ends the process"
    assert received == [signal.SIGTERM], "the previous handler is called once"


def test_an_ignored_signal_stays_ignored(received: list[int]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with terminating():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_other_threads_change_no_handler(received: list[int]) -> None:
    handlers = []

    def run() -> None:
        with terminating():
            handlers.append(signal.getsignal(signal.SIGTERM))

    previous = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert handlers == [previous]


def test_an_undisturbed_block_delays_the_end(received: list[int]) -> None:
    reached = []

    def run() -> None:
        with undisturbed():
            with undisturbed():
                signal.raise_signal(signal.SIGTERM)
                reached.append("inner")
            reached.append("outer")
        reached.append("after")

    with pytest.raises(SystemExit) as ended, terminating():
        run()
    assert reached == ["inner", "outer"]
    assert ended.value.code == TERMINATED
    assert received == [signal.SIGTERM]


def test_an_error_of_an_undisturbed_block_does_not_replace_the_end(received: list[int]) -> None:
    def run() -> None:
        signal.raise_signal(signal.SIGTERM)
        raise ValueError("closed")

    with pytest.raises(SystemExit), terminating(), undisturbed():
        run()
    with undisturbed():
        """Nothing is due any more."""


def test_a_second_signal_interrupts_an_undisturbed_block(received: list[int], clock: Clock) -> None:
    def run() -> None:
        signal.raise_signal(signal.SIGTERM)
        clock.now_ms += 500
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit), terminating(), undisturbed():
        run()


def test_an_undisturbed_block_of_another_thread_delays_nothing(received: list[int]) -> None:
    entered, left = threading.Event(), threading.Event()

    def run() -> None:
        with undisturbed():
            entered.set()
            left.wait(60)

    thread = threading.Thread(target=run)
    thread.start()
    entered.wait(60)
    with pytest.raises(SystemExit), terminating():
        signal.raise_signal(signal.SIGTERM)
    left.set()
    thread.join()
