"""The functions of a processor: their names in the store, and the serdes of arguments and answers."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import CallContext, Serdes
from penstock.errors import SerializationError, StreamsError
from penstock.processor.called_functions import (
    ArgumentSerde,
    CalledFunction,
    CalledFunctions,
    FunctionCall,
    FunctionCallSerde,
)

CALL = CallContext(
    topic="in", partition=0, offset=1, key="k", timestamp=5, headers=(), attempt=1, idempotency_key="in-0-1-p"
)


def plain(argument: Any) -> str:
    return f"plain {argument}"


def given(argument: Any, *, client: Any, call: CallContext) -> str:
    return f"{argument} {client} {call.attempt}"


FUNCTIONS = CalledFunctions(
    "p",
    [
        CalledFunction(
            name="plain",
            function=plain,
            takes=frozenset(),
            argument_serde=Serdes.string(),
            answer_serde=Serdes.string(),
        ),
        CalledFunction(
            name="given",
            function=given,
            takes=frozenset(["client", "call"]),
            argument_serde=Serdes.long(),
            answer_serde=Serdes.long(),
        ),
    ],
)
SERDE = FunctionCallSerde(FUNCTIONS)


def test_each_function_is_called_with_what_it_takes() -> None:
    assert FUNCTIONS(FunctionCall("plain", 7), client="c", call=CALL) == "plain 7"
    assert FUNCTIONS(FunctionCall("given", 7), client="c", call=CALL) == "7 c 1"


def test_a_call_names_its_function() -> None:
    assert FUNCTIONS.call_of(given, 7) == FunctionCall("given", 7)
    with pytest.raises(StreamsError, match="calls <built-in function print>, but declares only given, plain"):
        FUNCTIONS.call_of(print, 7)


async def asked(text: str) -> str:
    return text


def test_only_the_function_itself_can_be_called() -> None:
    other: Any = asked("x")
    with pytest.raises(
        TypeError, match=r"p gives call\(\) the coroutine asked\(...\): .* not what the function returns"
    ):
        FUNCTIONS.call_of(other, "x")
    other = "plain"
    with pytest.raises(TypeError, match=r"p gives call\(\) 'plain' in place of a function: .* itself, not its name"):
        FUNCTIONS.call_of(other, "x")


@pytest.mark.parametrize("call", [FunctionCall("plain", "x"), FunctionCall("given", 7), FunctionCall("given", None)])
def test_a_call_survives_the_round_trip(call: FunctionCall) -> None:
    assert SERDE.deserialize("t", SERDE.serialize("t", call)) == call


def test_a_waiting_call_tells_the_serde_of_its_answer() -> None:
    data = SERDE.serialize("t", FunctionCall("given", 7))
    assert FUNCTIONS.answer_serde_of(data) is FUNCTIONS.named("given").answer_serde
    FUNCTIONS.check_entry(data)


def test_a_function_that_is_not_declared_is_told_with_what_to_do() -> None:
    renamed = CalledFunctions("p", [FUNCTIONS.named("plain")])
    data = SERDE.serialize("t", FunctionCall("given", 7))
    with pytest.raises(StreamsError, match="A call of the function given waits for processor p, which declares only"):
        renamed.check_entry(data)
    with pytest.raises(StreamsError, match="Name a function given in its call_functions"):
        FunctionCallSerde(renamed).deserialize("t", data)


@pytest.mark.parametrize("data", [None, b"", b"\x01", b"no call"])
def test_a_value_of_another_operator_is_no_call(data: bytes | None) -> None:
    with pytest.raises(SerializationError, match="is no call of a function"):
        FUNCTIONS.check_entry(data)


def test_a_dead_letter_has_the_argument_alone() -> None:
    serde = ArgumentSerde(FUNCTIONS)
    assert serde.serialize("t", FunctionCall("plain", "x")) == b"x"
    assert serde.serialize("t", FunctionCall("plain", None)) == b""
