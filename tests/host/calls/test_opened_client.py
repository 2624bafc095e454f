"""A process has one client of an operator, and closes it."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from penstock.host.calls.opened_client import OpenedClient
from penstock.processor.backoff import Backoff
from penstock.processor.call_function import ClientOpenError
from tests.host.calls.support import (
    HOUR,
    LIMIT_SECONDS,
    KeptAnswers,
    Run,
    entries,
    running,
    spec,
    until,
    upper,
)


class Clients:
    """Counts the clients that are open."""

    def __init__(self, failures: int = 0) -> None:
        self.events: list[str] = []
        self.failures = failures

    def _open(self) -> str:
        if self.failures:
            self.failures -= 1
            raise OSError("refused")
        self.events.append("opened")
        return "client"

    @asynccontextmanager
    async def of_coroutines(self) -> AsyncIterator[str]:
        yield self._open()
        self.events.append("closed")

    @contextmanager
    def of_threads(self) -> Iterator[str]:
        yield self._open()
        self.events.append("closed")


async def with_client(value: str, *, client: str) -> str:
    return f"{value} {client}"


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("kind", ["of_coroutines", "of_threads"])
def test_a_process_has_one_client(answers: KeptAnswers, threads: int, kind: str) -> None:
    clients = Clients()

    def blocking(value: str, *, client: str) -> str:
        return f"{value} {client}"

    function = blocking if threads else with_client
    runner = running(answers, spec(function, threads=threads, takes=("client",), open=getattr(clients, kind)))
    for partition in range(2):
        runner.add("risk", partition, entries(("a", "x"), ("b", "x")))
    assert answers.results(4) == ["x client"] * 4
    assert clients.events == ["opened"]
    runner.close()
    assert clients.events == ["opened", "closed"]
    assert answers.is_closed


class Errors:
    """Keeps the errors that end the calls of an operator."""

    def __init__(self) -> None:
        self.found: list[Exception] = []

    def text(self) -> str:
        """Return the text of the only error as soon as there is one."""
        until(lambda: bool(self.found))
        (error,) = self.found
        assert isinstance(error, ClientOpenError)
        return str(error)


def test_a_client_that_cannot_be_opened_costs_no_attempt(run: Run, answers: KeptAnswers) -> None:
    clients, errors = Clients(failures=3), Errors()
    opened = spec(with_client, takes=("client",), open=clients.of_coroutines, attempts=2)
    runner = run(opened, failed=errors.found.append)
    runner.add("risk", 0, entries(("a", "x"), ("a", "y"), ("b", "z")))
    text = errors.text()
    assert text.startswith(
        "The client of risk cannot be opened: Clients.of_coroutines, the open of its Calls, failed 2 "
    )
    assert "at last with OSError: refused" in text
    assert answers.records == []
    runner.drop("risk", 0)
    runner.add("risk", 0, entries(("a", "x"), ("a", "y")))
    assert answers.results(2) == ["x client", "y client"]
    assert {each.answer.attempts for each in answers.records} == {1}
    assert len(errors.found) == 1


def test_the_error_of_open_decides_whether_it_is_tried_again(run: Run, answers: KeptAnswers) -> None:
    clients, errors = Clients(failures=1), Errors()
    opened = spec(with_client, takes=("client",), open=clients.of_coroutines, attempts=2, retry_on=(ValueError,))
    run(opened, failed=errors.found.append).add("risk", 0, entries(("a", "x")))
    assert "failed 1 time, at last with OSError: refused" in errors.text()


def test_the_end_waits_for_no_further_attempt_to_open(answers: KeptAnswers) -> None:
    clients = Clients(failures=9)
    opened = spec(
        with_client, takes=("client",), open=clients.of_coroutines, attempts=9, backoff=Backoff(HOUR, limit=HOUR)
    )
    runner = running(answers, opened, cancel_seconds=0.01)
    runner.add("risk", 0, entries(("a", "x")))
    until(lambda: clients.failures == 8)
    runner.close()
    assert (clients.failures, clients.events) == (8, [])


def test_a_slow_open_takes_no_time_of_a_call_and_outlasts_it(run: Run, answers: KeptAnswers) -> None:
    clients, steps = Clients(), itertools.count()

    @asynccontextmanager
    async def slow() -> AsyncIterator[str]:
        clients.events.append("opening")
        while not (is_dropped.is_set() and next(steps) > 20):  # longer than a call may take
            await asyncio.sleep(0.001)
        yield "client"

    is_dropped = threading.Event()
    runner = run(spec(with_client, takes=("client",), open=slow, timeout_ms=10))
    runner.add("risk", 0, entries(("a", "x")))
    until(lambda: clients.events == ["opening"])
    runner.drop("risk", 0)
    runner.add("risk", 0, entries(("a", "y")))
    is_dropped.set()
    assert answers.results(1) == ["y client"]
    assert clients.events == ["opening"]


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError()])
def test_no_error_of_open_ends_the_loop(run: Run, answers: KeptAnswers, error: BaseException) -> None:
    def bad() -> Any:
        raise error

    errors = Errors()
    runner = run(spec(with_client, takes=("client",), open=bad), spec(upper, node="score"), failed=errors.found.append)
    runner.add("risk", 0, entries(("a", "x")))
    assert f"at last with {type(error).__name__}: " in errors.text()
    runner.add("score", 0, entries(("a", "y")))
    assert answers.results(1) == ["Y"]


def test_an_open_that_hangs_is_logged_by_name(caplog: pytest.LogCaptureFixture) -> None:
    async def opened() -> object:
        @asynccontextmanager
        async def until_logged() -> AsyncIterator[str]:
            while "open of risk has not returned after 1 ms" not in caplog.text:
                await asyncio.sleep(0.001)
            yield "client"

        return await OpenedClient(spec(with_client, open=until_logged), slow_seconds=0.001).get()

    assert asyncio.run(asyncio.wait_for(opened(), LIMIT_SECONDS)) == "client"


def test_a_client_that_is_being_opened_at_the_end_is_closed(answers: KeptAnswers) -> None:
    events: list[str] = []
    opens = threading.Event()

    @contextmanager
    def slow() -> Iterator[str]:
        events.append("opening")
        opens.wait(LIMIT_SECONDS)
        yield "client"
        events.append("closed")

    def blocking(value: str, *, client: str) -> str:
        return value

    runner = running(answers, spec(blocking, threads=1, takes=("client",), open=slow))
    runner.add("risk", 0, entries(("a", "x")))
    until(lambda: events == ["opening"])
    closing = threading.Thread(target=runner.close)
    closing.start()
    opens.set()
    closing.join(LIMIT_SECONDS)
    assert events == ["opening", "closed"]


def test_a_factory_must_make_a_context_manager(run: Run, answers: KeptAnswers) -> None:
    factory: Any = object
    errors = Errors()
    runner = run(spec(with_client, takes=("client",), open=factory), failed=errors.found.append)
    runner.add("risk", 0, entries(("a", "x")))
    assert "expected a context manager" in errors.text()
