"""The function of a call with its arguments, and the answers that follow from its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from penstock import Backoff, Calls, Retry, Serdes
from penstock.dsl.call_nodes import calling
from penstock.errors import ConfigError, StreamsError
from penstock.processor.call_batch import Attempted
from penstock.processor.call_function import CallFunction, call_function, checked_client, client_open_error
from penstock.processor.calls import NOT_CALLED, Answer, NotCalled
from penstock.processor.waiting_records import WaitingRecord
from penstock.serdes.answers import NoAnswerSerde

STRING = Serdes.string()
WAITING = WaitingRecord(b"k", b"v", 5, (), "in", 2, 17)


async def asked(key: str, value: str, *, client: Any, call: Any) -> list[int]:
    return []


async def asked_nothing(key: str, value: str) -> None: ...


def function_of(function: Any = asked, *, with_key: bool = True, **options: Any) -> CallFunction:
    spec = calling(Calls(**options), "call", function, (None, None), with_key=with_key).spec
    return call_function(spec, "app-call-answers", "app", STRING, STRING)


def test_a_function_gets_the_record_the_client_and_the_call() -> None:
    seen = []
    function = function_of(lambda key, value, *, client, call: seen.append((key, value, client, call.attempt)))
    function.bound(WAITING, 3, "client")()
    assert seen == [("k", "v", "client", 3)]


def test_a_function_of_the_value_gets_nothing_else() -> None:
    seen: list[Any] = []
    function_of(seen.append, with_key=False).bound(WAITING, 1, "client")()
    assert seen == ["v"]


def test_a_service_is_asked_before_each_attempt_that_may_repeat_a_call() -> None:
    async def known(key: str, value: str, *, client: Any, call: Any) -> tuple[str, str, Any, int]:
        return key, value, client, call.attempt

    function = function_of(asked_nothing, reconcile=known, open=nullcontext)
    assert function.reconciling([Attempted(WAITING, 1)], "client") is None
    for waiting, attempt in ((WAITING, 2), (WAITING.that_waited(), 1)):
        asking = function.reconciling([Attempted(waiting, attempt)], "client")
        assert asking is not None
        assert asyncio.run(asking()) == ("k", "v", "client", attempt)
    assert function_of().reconciling([Attempted(WAITING.that_waited(), 2)], None) is None


def test_a_look_up_that_forgets_its_result_has_found_nothing() -> None:
    async def known(key: str, value: str) -> str | NotCalled:
        return results[0]

    async def known_or_none(key: str, value: str) -> str | NotCalled | None:
        return results[0]

    def look_up(reconcile: Callable[..., Any]) -> Any:
        asking = function_of(reconcile=reconcile).reconciling([Attempted(WAITING, 2)], None)
        assert asking is not None
        return asyncio.run(asking())

    results: list[Any] = [None]
    with pytest.raises(TypeError, match="The reconcile of call returned None: return NOT_CALLED if"):
        look_up(known)
    assert look_up(known_or_none) is None
    for results[0] in (NOT_CALLED, "paid"):
        assert look_up(known) is results[0]


def test_a_record_that_cannot_be_read_fails_with_the_store() -> None:
    function = function_of(value_serde=Serdes.long())
    with pytest.raises(StreamsError, match="Store 'call-calls' has a waiting record whose value LongSerde cannot read"):
        function.bound(WAITING, 1, None)


def test_a_serde_is_necessary() -> None:
    spec = calling(Calls(), "call", asked, (None, None)).spec
    with pytest.raises(ConfigError, match="Store 'call-calls' of waiting records has no key serde: name one in Calls"):
        call_function(spec, "app-call-answers", "app", None, STRING)


def test_a_result_is_written_by_its_annotation() -> None:
    assert function_of().answer(4, WAITING, 2, [1, 2]) == Answer(4, WAITING.digest(), 2, b"\x92\x01\x02")
    assert function_of().answer(4, WAITING, 1, None).result is None


def test_a_result_that_cannot_be_written_is_a_failure() -> None:
    answer = function_of().answer(4, WAITING, 1, {"no": "list"})
    assert answer.result is None
    assert answer.failure.startswith("SerializationError: The result {'no': 'list'} of call cannot be an answer: ")


def test_a_result_that_nothing_awaits_is_a_failure() -> None:
    async def later() -> None: ...

    answer = function_of(answer_serde=NoAnswerSerde()).answer(4, WAITING, 1, later())
    assert answer.failure.startswith("TypeError: The function of call returned a coroutine, which is not awaited")


@pytest.mark.parametrize("result", [NOT_CALLED, NotCalled])
def test_only_reconcile_returns_that_a_call_was_not_made(result: Any) -> None:
    answer = function_of().answer(4, WAITING, 1, result)
    assert answer.failure.startswith("TypeError: The function of call returned NOT_CALLED, which only the reconcile")
    assert answer.result is None


async def class_returned(key: str, value: str) -> Any:
    return NotCalled


def class_returned_by_thread(key: str, value: str) -> Any:
    return NotCalled


def blocking(key: str, value: str) -> str:
    return value


@pytest.mark.parametrize("threads", [0, 1])
def test_the_failure_of_a_look_up_names_it(threads: int) -> None:
    reconcile, called = (class_returned_by_thread, blocking) if threads else (class_returned, asked_nothing)
    function = function_of(called, reconcile=reconcile, threads=threads)
    asking = function.reconciling([Attempted(WAITING, 2)], None)
    assert asking is not None
    with pytest.raises(
        TypeError, match=r"reconcile of call returned the class NotCalled, .*: return NOT_CALLED"
    ) as caught:
        asking() if threads else asyncio.run(asking())
    assert function.failure(1, WAITING, 2, caught.value).failure.startswith(
        "reconcile failed: TypeError: The reconcile"
    )


@pytest.mark.parametrize(("text", "shown"), [("VAULT", "VAULT."), ("Down.", "Down."), ("Who?", "Who?")])
def test_the_error_of_a_client_is_a_sentence(text: str, shown: str) -> None:
    spec = calling(Calls(open=nullcontext), "call", asked, (None, None)).spec
    assert f"failed 1 time, at last with OSError: {shown} Correct it" in str(client_open_error(spec, 1, OSError(text)))


def test_a_client_is_a_context_manager() -> None:
    manager = nullcontext()
    assert checked_client("call", manager) is manager
    with pytest.raises(TypeError, match="open of call returned 5: expected a context manager, such as httpx"):
        checked_client("call", 5)


def test_a_failure_has_the_text_and_the_traceback_of_the_error() -> None:
    try:
        raise OSError("no \udcff answer")
    except OSError as error:
        answer = function_of().failure(4, WAITING, 3, error)
    assert (answer.sequence, answer.attempts, answer.failure) == (4, 3, "OSError: no \\udcff answer")
    assert "test_a_failure_has_the_text" in answer.details
    assert len(function_of().failure(1, WAITING, 1, OSError("x" * 5_000)).failure) == 1_000


def test_errors_of_the_named_types_are_tried_again() -> None:
    function = function_of(retry=Retry(attempts=2, backoff=Backoff(1), on=OSError))
    assert function.tries_again(TimeoutError(), 1)
    assert not function.tries_again(TimeoutError(), 2)
    assert not function.tries_again(ValueError(), 1)
