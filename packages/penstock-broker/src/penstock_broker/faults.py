"""Faults injected by a test into the next requests of an API.

Requests fail, are late, or lose their answer.

Contains the faults and the answers to failed requests. Not here: the commands that inject them (commands.py).

Rule: a fault replaces the handler of its API until it is over, so unused faults cost the broker nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final

from penstock_broker.answers import LaterAnswer
from penstock_broker.apis import APIS, Api, Handler
from penstock_broker.errors import BrokerError, ConnectionClosingError
from penstock_broker.state import BrokerState, Request
from penstock_broker.wire.api_schemas import request_schema, response_schema
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.schema import Structure

FETCH: Final = 1

Fault = Callable[[Handler, BrokerState, Request], Message | LaterAnswer | None]
"""Handles a request instead of its handler."""


class Faults:
    """The faults of a running broker, in the order of their injection.

    Args:
        apis: the table of the broker's APIs, in which faults replace handlers.
    """

    def __init__(self, apis: dict[int, Api]) -> None:
        self._apis = apis
        self._waiting: dict[int, deque[tuple[Fault, int]]] = {}

    def add(self, key: int, fault: Fault, times: int) -> None:
        """Apply a fault to the next requests of an API, after its earlier faults.

        Args:
            key: the API.
            fault: the fault.
            times: number of affected requests.
        """
        self._waiting.setdefault(key, deque()).append((fault, times))
        self._apis[key] = dataclasses.replace(APIS[key], handler=partial(self._handle, key))

    def clear(self) -> None:
        """Remove all faults that have not happened yet."""
        self._waiting.clear()
        self._apis.update(APIS)

    def _handle(self, key: int, state: BrokerState, request: Request) -> Message | LaterAnswer | None:
        waiting = self._waiting[key]
        fault, times = waiting.popleft()
        if times > 1:
            waiting.appendleft((fault, times - 1))
        if not waiting:
            self._apis[key] = APIS[key]
        return fault(APIS[key].handler, state, request)


def failing(key: int, code: ErrorCode) -> Fault:
    """Return a fault that answers with an error; the request has no effect.

    Args:
        key: the API.
        code: the error.
    """
    return lambda handler, state, request: error_response(key, request.version, request.body, code)


def late(delay_ms: int) -> Fault:
    """Return a fault that delays an answer; the request takes effect at once.

    Args:
        delay_ms: the delay (ms).
    """

    def fault(handler: Handler, state: BrokerState, request: Request) -> Message | LaterAnswer | None:
        answer = handler(state, request)
        return None if answer is None else _LateAnswer(answer, delay_ms)

    return fault


def dropping(handler: Handler, state: BrokerState, request: Request) -> Message | LaterAnswer | None:
    """Close the connection; the request has no effect."""
    raise ConnectionClosingError("a test asked for it, before the request was handled")


def losing_answer(handler: Handler, state: BrokerState, request: Request) -> Message | LaterAnswer | None:
    """Handle the request and close the connection instead of answering."""
    answer = handler(state, request)
    if isinstance(answer, LaterAnswer):
        answer.cancel()
    raise ConnectionClosingError("a test asked for it, after the request was handled")


def killing(handler: Handler, state: BrokerState, request: Request) -> Message | LaterAnswer | None:
    """Handle the request and kill the broker instead of answering."""
    handler(state, request)
    os.kill(os.getpid(), signal.SIGKILL)
    return None


class _LateAnswer(LaterAnswer):
    """A delayed answer.

    Args:
        answer: the answer.
        delay_ms: the delay (ms) once the answer is available.
    """

    __slots__ = ("_answer", "_delay_ms", "_timer")

    def __init__(self, answer: Message | LaterAnswer, delay_ms: int) -> None:
        self._answer = answer
        self._delay_ms = delay_ms
        self._timer: asyncio.TimerHandle | None = None

    def start(self, done: Callable[[Message], None]) -> None:
        """Wait for the answer, then for the delay."""

        def hold_back(response: Message) -> None:
            self._timer = asyncio.get_running_loop().call_later(self._delay_ms / 1000, done, response)

        if isinstance(self._answer, LaterAnswer):
            self._answer.start(hold_back)
        else:
            hold_back(self._answer)

    def cancel(self) -> None:
        """Stop waiting."""
        if self._timer is not None:
            self._timer.cancel()
        elif isinstance(self._answer, LaterAnswer):
            self._answer.cancel()


def error_response(key: int, version: int, body: Message, code: ErrorCode) -> Message:
    """Return Kafka's response to a request that fails as a whole.

    Args:
        key: the API.
        version: its version.
        body: the request.
        code: the error.

    Raises:
        BrokerError: the response has no field for an error.
    """
    response = response_schema(key).at(version)
    if not _has_error(response):
        raise BrokerError(f"{api_name(key)} {version} has no errors")
    # The top-level error of a Fetch concerns its session; tests want the errors of its partitions.
    return _failed(response, body, code, is_whole=key != FETCH)


def _failed(structure: Structure, source: Any, code: ErrorCode, is_whole: bool = True) -> Message:
    """Return a message with an error for each name in a part of the request.

    Args:
        structure: the structure of the message.
        source: the part of the request: a message, or one name or number.
        code: the error.
        is_whole: whether an error of the message itself covers its parts.
    """
    codes = {field.name for field in structure.fields if field.is_error_code}
    if codes and is_whole:
        message: Message = dict.fromkeys(codes, code)
    else:
        message = {
            field.name: [_failed(inner, each, code) for each in _first_list(source)]
            for field in structure.fields
            if (inner := structure.inner(field)) is not None and _has_error(inner)
        }
    plain = {
        field.name: field.element
        for field in structure.fields
        if structure.inner(field) is None and field.name not in codes
    }
    if isinstance(source, dict):
        names = {"partition_index": "partition"} | {name: name for name in plain if name in source}
        return message | {name: source[of] for name, of in names.items() if of in source}
    named = next(name for name, type in plain.items() if (type == "string") == isinstance(source, str))
    return message | {named: source}


def _first_list(source: Any) -> list[Any]:
    return next((value for value in source.values() if isinstance(value, list)), [])


def _has_error(structure: Structure) -> bool:
    return any(
        field.is_error_code or ((inner := structure.inner(field)) is not None and _has_error(inner))
        for field in structure.fields
    )


def api_name(key: int) -> str:
    """Return Kafka's name of a supported API."""
    return request_schema(key).name.removesuffix("Request")


@cache
def api_keys() -> Mapping[str, int]:
    """Return the keys of the supported APIs by Kafka's names."""
    return {api_name(key): key for key in APIS}
