"""Calls of the inline host: one after another, in a thread, with clients and time limits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest

from penstock import NOT_CALLED, Backoff, Calls, Consumed, Retry, Serdes, StreamsBuilder, vectorized
from penstock.config import StreamsConfig
from penstock.host.inline.inline_calls import InlineCalls, NoAnswerLeftError
from penstock.host.inline.inline_host import whole_topology
from penstock.processor.call_function import ClientOpenError
from penstock.processor.calls import unpack_answer
from penstock.processor.waiting_records import WaitingRecord
from penstock.serdes.answers import PlainAnswerSerde

STRING = Serdes.string()
PLACE = "for in-2, offset 17,"
WAITING = WaitingRecord(b"k", b"v", -1, (), "in", 2, 17)


@pytest.fixture
def make() -> Iterator[Callable[..., InlineCalls]]:
    made: list[InlineCalls] = []

    def calls_of(function: Any, cancel_seconds: float = 5.0, **options: Any) -> InlineCalls:
        builder = StreamsBuilder()
        builder.stream("in", Consumed.with_(STRING, STRING)).map_values(function, "call", calls=Calls(**options))
        spec = whole_topology(builder.build().build("app"))
        config = StreamsConfig({"application.id": "app"}, environment={})
        made.append(InlineCalls(spec, config, cancel_seconds))
        return made[-1]

    yield calls_of
    for each in made:
        each.close()


Make = Callable[..., InlineCalls]


def outcome(calls: InlineCalls) -> tuple[int, Any]:
    """Return the attempts, and the result or the error of a call."""
    (record,) = calls.answers({"call": [(3, WAITING)]})
    assert (record.topic, record.key, record.timestamp) == ("app-call-answers", b"\0\0\0\0\0\0\0\3", 0)
    answer = unpack_answer(record.value, record.topic)
    assert answer.answers(3, WAITING)
    if answer.failure:
        return answer.attempts, answer.failure
    return answer.attempts, None if answer.result is None else PlainAnswerSerde().deserialize("", answer.result)


def test_an_object_that_is_no_context_manager_is_an_error(make: Make) -> None:
    async def asked(value: str, *, client: str) -> Any:
        return value

    with pytest.raises(ClientOpenError, match="TypeError: open of call returned 5: expected a context manager"):
        outcome(make(asked, open=lambda: 5))


def test_calls_of_other_operators_are_made_in_their_order(make: Make) -> None:
    made: list[str] = []

    async def note(value: str) -> Any:
        made.append(value)

    calls = make(note)
    records = [(number, WaitingRecord(None, text, 0, (), "in", 0, number)) for number, text in enumerate([b"x", b"y"])]
    assert [record.key[-1] for record in calls.answers({"call": records})] == [0, 1]
    assert made == ["x", "y"]


def test_a_program_with_a_loop_can_make_calls(make: Make) -> None:
    async def thread(value: str) -> Any:
        return threading.current_thread() is threading.main_thread()

    async def program() -> tuple[int, Any]:
        return outcome(make(thread))

    assert asyncio.run(program()) == (1, False)


@pytest.mark.parametrize("kind", [asynccontextmanager, contextmanager])
def test_a_client_is_opened_once_and_left_at_the_end(make: Make, kind: Any) -> None:
    events: list[str] = []

    if kind is asynccontextmanager:

        @asynccontextmanager
        async def client() -> Any:
            events.append("opened")
            yield "client"
            events.append("left")

    else:

        @contextmanager
        def client() -> Any:
            events.append("opened")
            yield "client"
            events.append("left")

    async def asked(value: str, *, client: str) -> Any:
        return client

    calls = make(asked, open=client)
    assert [outcome(calls), outcome(calls)] == [(1, "client"), (1, "client")]
    calls.close()
    calls.close()
    assert events == ["opened", "left"]


def test_a_client_that_cannot_be_opened_is_an_error_after_the_last_attempt(make: Make) -> None:
    failures = [OSError("no service")] * 3

    @contextmanager
    def client() -> Iterator[str]:
        if failures:
            raise failures.pop()
        yield "client"

    async def asked(value: str, *, client: str) -> Any:
        return client

    calls = make(asked, open=client, retry=Retry(attempts=2))
    with pytest.raises(ClientOpenError, match=r"client of call .* failed 2 times, at last with OSError: no service"):
        outcome(calls)
    assert outcome(calls) == (1, "client")


def test_a_blocking_function_that_takes_too_long_is_left(make: Make) -> None:
    end = threading.Event()

    def wait(value: str) -> Any:
        end.wait(60)

    assert outcome(make(wait, threads=1, timeout=100)) == (
        1,
        f"TimeoutError: The call of call {PLACE} did not end within 100 ms.",
    )
    end.set()


def test_a_look_up_that_takes_too_long_is_named(make: Make) -> None:
    async def charge(value: str) -> Any:
        raise OSError("closed")

    async def known(value: str) -> Any:
        await asyncio.sleep(60)

    calls = make(charge, reconcile=known, timeout=100, retry=Retry(attempts=2, backoff=Backoff(1)))
    assert outcome(calls) == (2, f"TimeoutError: The reconcile of call {PLACE} did not end within 100 ms.")


def test_a_coroutine_that_does_not_end_at_its_time_out_is_abandoned(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async def stays(value: str) -> Any:
        end = asyncio.Event()
        with suppress(asyncio.CancelledError):
            await end.wait()
        await end.wait()

    calls = make(stays, cancel_seconds=0.02, timeout=100)
    assert outcome(calls) == (1, f"TimeoutError: The call of call {PLACE} did not end within 100 ms.")
    assert "It is abandoned" in caplog.text


def test_a_coroutine_function_that_blocks_beyond_its_time_is_named(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async def blocks(value: str) -> Any:
        threading.Event().wait(0.11)  # longer than its time
        return value

    assert outcome(make(blocks, timeout=100)) == (1, "v")
    assert "blocks (" in caplog.text
    assert "of node call blocked its loop for" in caplog.text


def test_a_time_out_of_the_function_is_its_own(make: Make) -> None:
    async def late(value: str) -> Any:
        raise TimeoutError("of the service")

    assert outcome(make(late)) == (1, "TimeoutError: of the service")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_an_exit_of_a_function_fails_its_call(make: Make, kind: type[BaseException]) -> None:
    def leave(value: str) -> Any:
        raise kind

    async def leave_loop(value: str) -> Any:
        raise kind

    expected = (1, f"StreamsError: The function of call ended with {kind.__name__}.")
    assert outcome(make(leave, threads=1)) == expected
    assert outcome(make(leave_loop)) == expected


def test_the_end_of_an_iteration_fails_its_call(make: Make) -> None:
    attempts, failure = outcome(make(lambda value: next(iter(())), threads=1))
    assert (attempts, "StopIteration" in failure) == (1, True)


def test_a_coroutine_that_cancels_itself_fails(make: Make) -> None:
    async def cancelled(value: str) -> Any:
        raise asyncio.CancelledError

    assert outcome(make(cancelled)) == (1, "StreamsError: The function of call ended with CancelledError.")


def test_given_answers_are_used(make: Make) -> None:
    async def asked(value: str) -> Any:
        return "asked"

    calls = make(asked, retry=Retry(attempts=2))
    assert outcome(calls) == (1, "asked")
    calls.give_answers("call", [OSError("x"), "given"])
    calls.give_answers("call", iter(["next"]))
    assert [outcome(calls), outcome(calls)] == [(2, "given"), (1, "next")]
    with pytest.raises(ValueError, match="Operator 'x' has no calls; those with calls: call"):
        calls.give_answers("x", [])


def test_a_service_is_asked_before_a_call_that_may_be_made_again(make: Make) -> None:
    charged: list[str] = []

    async def charge(value: str) -> Any:
        charged.append(value)
        raise OSError("no answer")

    async def known(value: str) -> Any:
        return f"{value} known" if value in charged else NOT_CALLED

    assert outcome(make(charge, reconcile=known, retry=Retry(attempts=3))) == (2, "v known")
    assert charged == ["v"]


@pytest.mark.parametrize(("number", "text"), [(0, "0 answers"), (1, "1 answer")])
def test_a_call_without_an_answer_that_was_given_is_an_error(make: Make, number: int, text: str) -> None:
    async def asked(value: str) -> Any:
        raise AssertionError("The function is not called.")

    calls = make(asked)
    calls.give_answers("call", ["given"] * number)
    for _ in range(number):
        assert outcome(calls) == (1, "given")
    with pytest.raises(NoAnswerLeftError, match=rf"Operator call was given {text}, .* for offset 17 of in needs"):
        outcome(calls)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (5, r"Expected a list of answers for call, one for each attempt, got 5: write answers\('call', \[...\]\)"),
        ("text", "Expected a list of answers for call, one for each attempt, got 'text'"),
        ({"price": 5}, "Expected a list of answers for call"),
        (OSError("x"), "Expected a list of answers for call"),
        (OSError, "Expected a list of answers for call"),
        ([OSError], r"an error for call, got the class OSError: write OSError\(...\)"),
    ],
)
def test_answers_are_a_list_of_answers(make: Make, answers: Any, message: str) -> None:
    async def asked(value: str) -> Any: ...

    with pytest.raises(TypeError, match=message):
        make(asked).give_answers("call", answers)


def batch(calls: InlineCalls, *texts: bytes) -> list[tuple[int, Any]]:
    """Return the attempts, and the result or the error of each call of records that wait together."""
    records = [(number, WaitingRecord(text, text, 0, (), "in", 0, number)) for number, text in enumerate(texts)]
    found = []
    for record in calls.answers({"call": records}):
        answer = unpack_answer(record.value, record.topic)
        result = None if answer.result is None else PlainAnswerSerde().deserialize("", answer.result)
        found.append((answer.attempts, answer.failure or result))
    return found


def test_a_function_on_columns_takes_records_that_wait_together(make: Make) -> None:
    seen: list[list[str]] = []

    @vectorized
    async def asked(values: list[str]) -> Any:
        seen.append(values)
        return [ValueError("no") if value == "b" else value.upper() for value in values]

    calls = make(asked, batch_size=2, retry=Retry(attempts=2))
    assert batch(calls, b"a", b"b", b"a", b"c") == [(1, "A"), (2, "ValueError: no"), (1, "A"), (1, "C")]
    assert seen == [["a", "b"], ["b"], ["a", "c"]]


def test_a_failed_batch_fails_each_of_its_records(make: Make) -> None:
    @vectorized
    def asked(values: list[str]) -> Any:
        raise OSError(f"down for {len(values)}")

    calls = make(asked, threads=1, retry=Retry(attempts=2))
    assert batch(calls, b"a", b"b") == [(2, "OSError: down for 1")] * 2


def test_given_answers_are_for_each_record_of_a_batch(make: Make) -> None:
    @vectorized
    async def asked(values: list[str]) -> Any:
        return [value.upper() for value in values]

    calls = make(asked)
    calls.give_answers("call", ["given", OSError("x"), "third"])
    assert batch(calls, b"a", b"b", b"c") == [(1, "given"), (1, "OSError: x"), (1, "third")]
