"""Makes the calls of a topology one after another, in this process, for the inline host.

Each call runs to its end: attempts follow one another without waits, and neither the capacity nor the rate has an
effect. Coroutines run in a loop of a thread of their own, so a program that has a loop can use the host; blocking
functions run in threads, which the end of the time limit leaves. Answers that a test has given are used instead.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, NamedTuple

from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.plan.subtopology import SubtopologySpec
from penstock.processor.call_function import CallFunction, call_function, checked_client
from penstock.processor.calls import NOT_CALLED, Answer, CallSpec
from penstock.processor.waiting_records import Waiting, WaitingRecord


class AnswerRecord(NamedTuple):
    """A record of an answers topic."""

    topic: str
    key: bytes
    value: bytes
    timestamp: int


class InlineCalls:
    """The calls of one topology.

    Args:
        spec: the nodes of the topology.
        config: the configuration with the default serdes.
    """

    def __init__(self, spec: SubtopologySpec, config: StreamsConfig) -> None:
        application_id = str(config.required("application.id"))
        defaults = config["default.key.serde"], config["default.value.serde"]
        self._operators = {
            calls.node: _Operator(calls, topic, call_function(calls, topic, application_id, *defaults))
            for topic, calls in spec.answers_topics.items()
        }

    def give_answers(self, node: str, answers: Iterable[Any]) -> None:
        """Use `answers` for the next calls of the operator `node` instead of its function.

        An error fails the attempt. Raises ValueError if no operator of this name has calls.
        """
        if node not in self._operators:
            known = ", ".join(sorted(self._operators)) or "no operator"
            raise ValueError(f"Operator {node!r} has no calls; those with calls: {known}.")
        self._operators[node].given.extend(answers)

    def answers(self, calls: Mapping[str, Sequence[Waiting]]) -> Iterable[AnswerRecord]:
        """Make the calls of committed records by operator, and yield their answers in order."""
        for node, records in calls.items():
            for sequence, waiting in records:
                yield self._operators[node].answered(sequence, waiting)

    def close(self) -> None:
        """Leave the clients, and end the threads."""
        for operator in self._operators.values():
            operator.close()


class _Operator:
    """The calls of one operator."""

    def __init__(self, spec: CallSpec, topic: str, function: CallFunction) -> None:
        self._spec = spec
        self._topic = topic
        self._function = function
        self._thread: _LoopThread | None = None
        self._opened: Any = None
        self._client: Any = None
        self.given: deque[Any] = deque()

    def answered(self, sequence: int, waiting: WaitingRecord) -> AnswerRecord:
        """Return the answer of the call of a record, after its last attempt."""
        answer = self._answer(sequence, waiting)
        return AnswerRecord(self._topic, sequence.to_bytes(8, "big"), answer.pack(), max(waiting.timestamp, 0))

    def _answer(self, sequence: int, waiting: WaitingRecord) -> Answer:
        attempts = 0
        while True:
            attempts += 1
            try:
                result = self._result(waiting, attempts)
            except Exception as error:
                if not self._function.tries_again(error, attempts):
                    return self._function.failure(sequence, waiting, attempts, error)
            else:
                return self._function.answer(sequence, waiting, attempts, result)

    def _result(self, waiting: WaitingRecord, attempt: int) -> Any:
        if self.given:
            given = self.given.popleft()
            if isinstance(given, BaseException):
                raise given
            return given
        client = self._opened_client()
        reconciling = self._function.reconciling(waiting, attempt, client)
        if reconciling is not None:
            found = self._loop_thread.run(self._limited(reconciling))
            if found is not NOT_CALLED:
                return found
        return self._loop_thread.run(self._limited(self._function.bound(waiting, attempt, client)))

    async def _limited(self, function: Callable[[], Any]) -> Any:
        seconds = self._spec.rules.timeout_ms / 1000
        coroutine = _in_thread(function) if self._spec.rules.threads else function()
        try:
            async with asyncio.timeout(seconds) as limit:
                return await coroutine
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(f"No answer within {self._spec.rules.timeout_ms} ms.") from error
            raise

    @property
    def _loop_thread(self) -> _LoopThread:
        if self._thread is None:
            self._thread = _LoopThread(self._spec.node)
        return self._thread

    def _opened_client(self) -> Any:
        if self._spec.open is None or self._opened is not None:
            return self._client
        opened = checked_client(self._spec.node, self._spec.open())
        self._client = self._loop_thread.run(_enter(opened))
        self._opened = opened
        return self._client

    def close(self) -> None:
        """Leave the client, and end the thread."""
        if self._thread is None:
            return
        try:
            if self._opened is not None:
                self._thread.run(_leave(self._opened))
        finally:
            self._opened = self._client = None
            self._thread.close()
            self._thread = None


class _Outcome(NamedTuple):
    """The result of a function, or its error."""

    result: Any = None
    error: BaseException | None = None


class _LoopThread:
    """A thread with a loop, which runs one coroutine at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"penstock-calls-{name}", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of a coroutine; raises its error."""
        future: Future[Any] = asyncio.run_coroutine_threadsafe(self._contained(coroutine), self._loop)
        return future.result()

    async def _contained(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await coroutine
        except (SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:  # which would end the loop
            raise StreamsError(f"The function of {self._name} ended with {type(error).__name__}.") from error

    def close(self) -> None:
        """End the loop and the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Return the result of a blocking function, which has a daemon thread of its own."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[_Outcome] = loop.create_future()

    def call() -> None:
        try:
            outcome = _Outcome(function())
        except BaseException as error:  # SystemExit must not end a thread unseen
            outcome = _Outcome(error=error)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_result(outcome))

    threading.Thread(target=call, name="penstock-call", daemon=True).start()
    result, error = await ended
    if error is not None:
        raise error
    return result


async def _enter(opened: Any) -> Any:
    return await opened.__aenter__() if isinstance(opened, AbstractAsyncContextManager) else opened.__enter__()


async def _leave(opened: Any) -> None:
    if isinstance(opened, AbstractAsyncContextManager):
        await opened.__aexit__(None, None, None)
    else:
        opened.__exit__(None, None, None)
