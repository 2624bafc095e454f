"""The functions that a user's processor calls outside of its task, each known by its name.

Rules:
- A waiting call is the value of an entry of the processor's store: the name of its function, and the argument. So a
  program that is started again finds the function.
- The argument and the answer have the serdes of their function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import msgspec

from penstock.errors import SerializationError, StreamsError
from penstock.processor.calls import CallContext
from penstock.record import Headers
from penstock.serdes import Serde


class FunctionCall(NamedTuple):
    """A call that waits for its answer.

    Args:
        function: the name of the function.
        argument: its argument.
    """

    function: str
    argument: Any


@dataclass(frozen=True, kw_only=True)
class CalledFunction:
    """A function that a processor may call.

    Args:
        name: the name in the store.
        function: a coroutine function, or a blocking function. It takes the argument; the keyword-only parameters
            `client` and `call` are optional.
        takes: the names of its keyword-only parameters among `client` and `call`.
        argument_serde: of the arguments.
        answer_serde: of the results.
    """

    name: str
    function: Callable[..., Any]
    takes: frozenset[str]
    argument_serde: Serde
    answer_serde: Serde


_DECODER = msgspec.msgpack.Decoder(tuple[str, bytes | None])


class CalledFunctions:
    """The functions of one processor, which are called as one.

    Args:
        node: the name of the processor.
        functions: the functions, each with another name.
    """

    def __init__(self, node: str, functions: Sequence[CalledFunction]) -> None:
        self.node = node
        self._by_name = {each.name: each for each in functions}

    def __call__(self, made: FunctionCall, *, client: Any, call: CallContext) -> Any:
        """Return what the function of a call returns: a coroutine, or the result of a blocking function."""
        found = self.named(made.function)
        given = {"client": client, "call": call}
        return found.function(made.argument, **{name: given[name] for name in found.takes})

    def call_of(self, function: Callable[..., Any], argument: Any) -> FunctionCall:
        """Return a call of `function`; raises StreamsError if it is not declared, TypeError if it is none."""
        if not callable(function):
            self._refuse(function)
        for each in self._by_name.values():
            if each.function == function:
                return FunctionCall(each.name, argument)
        raise StreamsError(
            f"Processor {self.node} calls {function!r:.100}, but declares only {self._names()}: name the function in "
            "its call_functions, so that a program that is started again finds it."
        )

    def _refuse(self, given: object) -> NoReturn:
        """Raise TypeError for an object in place of a function."""
        if inspect.iscoroutine(given):
            given.close()  # without a warning that it was never awaited
            raise TypeError(
                f"Processor {self.node} gives call() the coroutine {given.__qualname__}(...): give it the function "
                "itself, not what the function returns, as in call(function, argument)."
            )
        raise TypeError(
            f"Processor {self.node} gives call() {given!r:.100} in place of a function: give it the function itself, "
            "not its name or what it returns, as in call(function, argument)."
        )

    def named(self, name: str) -> CalledFunction:
        """Return the function of a name; raises StreamsError if it is not declared."""
        if name not in self._by_name:
            raise StreamsError(
                f"A call of the function {name} waits for processor {self.node}, which declares only {self._names()}. "
                f"Name a function {name} in its call_functions until its calls are answered."
            )
        return self._by_name[name]

    def check_entry(self, value: bytes | None) -> None:
        """Raise StreamsError if the function of an entry with this value is not declared.

        Raises SerializationError if the value is no call.
        """
        self.named(_decoded(value)[0])

    def answer_serde_of(self, value: bytes | None) -> Serde:
        """Return the serde of the answer for an entry with this value; raises the errors of `check_entry`."""
        return self.named(_decoded(value)[0]).answer_serde

    def _names(self) -> str:
        return ", ".join(sorted(self._by_name))


class FunctionCallSerde(Serde[FunctionCall]):
    """Converts calls: an array of MessagePack with the name of the function and the serialised argument.

    Args:
        functions: the functions with the serdes of their arguments.
    """

    def __init__(self, functions: CalledFunctions) -> None:
        self._functions = functions

    def serialize(self, topic: str, value: FunctionCall, headers: Headers = ()) -> bytes:
        """Serialise a call; raises the errors of the argument's serde."""
        name, argument = value
        serde = self._functions.named(name).argument_serde
        return msgspec.msgpack.encode((name, None if argument is None else serde.serialize(topic, argument, headers)))

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> FunctionCall:
        """Deserialise a call.

        Raises SerializationError if it is none, StreamsError if its function is not declared, and the errors of the
        argument's serde.
        """
        name, argument = _decoded(data)
        serde = self._functions.named(name).argument_serde
        return FunctionCall(name, None if argument is None else serde.deserialize(topic, argument, headers))


class ArgumentSerde(Serde[Any]):
    """Writes the argument of a call alone, for dead letters.

    Args:
        functions: the functions with the serdes of their arguments.
    """

    def __init__(self, functions: CalledFunctions) -> None:
        self._functions = functions

    def serialize(self, topic: str, value: FunctionCall, headers: Headers = ()) -> bytes:
        """Serialise the argument, None as no bytes; raises the errors of its serde."""
        name, argument = value
        if argument is None:
            return b""
        return self._functions.named(name).argument_serde.serialize(topic, argument, headers)


def _decoded(data: bytes | None) -> tuple[str, bytes | None]:
    try:
        return _DECODER.decode(data or b"")
    except msgspec.DecodeError as error:
        raise SerializationError(f"The value {data!r:.100} of a waiting record is no call of a function.") from error
