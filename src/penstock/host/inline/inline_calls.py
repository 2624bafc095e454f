"""Makes the calls of a topology one after another, in this process, for the inline host.

Each call runs to its end: attempts follow one another without waits, and neither the capacity nor the rate has an
effect. A function on columns takes the records that wait together, without a wait for others. Coroutines run in a loop
of a thread of their own, so a program that has a loop can use the host; blocking functions run in threads, which the
end of the time limit leaves. Answers that a test has given are used instead, and then there must be one for each
attempt of a record.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, NamedTuple

from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.calls.attempt import CALL, CANCEL_SECONDS, Attempt, AttemptOutcome, attempt_name
from penstock.host.calls.blocked_loop import called_function
from penstock.host.calls.lines import Call, CallLines
from penstock.plan.subtopology import SubtopologySpec
from penstock.processor.call_batch import Attempted, CallOutcome
from penstock.processor.call_function import (
    CallFunction,
    call_function,
    checked_client,
    client_open_error,
)
from penstock.processor.calls import NOT_CALLED, Answer, CallSpec
from penstock.processor.waiting_records import Waiting

_log = logging.getLogger(__name__)


class NoAnswerLeftError(StreamsError):
    """An operator needs more answers than a test has given (no Kafka class).

    What to do: Give the test driver an answer for each call, by `TopologyTestDriver.answers`.
    """


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
        cancel_seconds: the time in which a cancelled coroutine must end.
    """

    def __init__(self, spec: SubtopologySpec, config: StreamsConfig, cancel_seconds: float = CANCEL_SECONDS) -> None:
        application_id = str(config.required("application.id"))
        defaults = config["default.key.serde"], config["default.value.serde"]
        self._operators = {
            calls.node: _Operator(calls, topic, call_function(calls, topic, application_id, *defaults), cancel_seconds)
            for topic, calls in spec.answers_topics.items()
        }

    def give_answers(self, node: str, answers: Iterable[Any]) -> None:
        """Use `answers` for the next calls of the operator `node` instead of its function.

        An error fails the attempt.

        Raises:
            ValueError: no operator of this name has calls.
            TypeError: `answers` is no list or other iterable of answers, or has the class of an error.
        """
        if node not in self._operators:
            known = ", ".join(sorted(self._operators)) or "no operator"
            raise ValueError(f"Operator {node!r} has no calls; those with calls: {known}.")
        self._operators[node].give(_checked_answers(node, answers))

    def answers(self, calls: Mapping[str, Sequence[Waiting]]) -> Iterable[AnswerRecord]:
        """Make the calls of committed records by operator, and yield their answers in order.

        Raises:
            ClientOpenError: the client of an operator cannot be opened.
            NoAnswerLeftError: a test has given fewer answers than there are attempts.
        """
        for node, records in calls.items():
            yield from self._operators[node].answers(records)

    def close(self) -> None:
        """Leave the clients, and end the threads."""
        for operator in self._operators.values():
            operator.close()


class _Operator:
    """The calls of one operator."""

    def __init__(self, spec: CallSpec, topic: str, function: CallFunction, cancel_seconds: float) -> None:
        self._cancel_seconds = cancel_seconds
        self._spec = spec
        self._topic = topic
        self._function = function
        self._thread: _LoopThread | None = None
        self._opened: Any = None
        self._client: Any = None
        self._given: deque[Any] = deque()
        self._given_number: int | None = None

    def give(self, answers: Sequence[Any]) -> None:
        """Use answers instead of the function from now on."""
        self._given.extend(answers)
        self._given_number = (self._given_number or 0) + len(answers)

    def answers(self, records: Sequence[Waiting]) -> Iterator[AnswerRecord]:
        """Make the calls of records, and yield their answers in order."""
        rules = self._spec.rules
        lines = CallLines(rules.order, rules.attempts, reconciles=self._spec.reconcile is not None)
        for sequence, waiting in records:
            lines.add(0, sequence, waiting)
        while lines.has_next():
            calls = lines.next(rules.batch_size)
            for call in calls:
                call.attempts += 1
            for call, outcome in zip(calls, self._outcomes(calls), strict=True):
                if outcome.error is not None and self._function.tries_again(outcome.error, call.attempts):
                    lines.again(call)
                    continue
                call.answer = self._answer(call, outcome)
                for each in lines.answered(call):
                    yield self._record(each)

    def _record(self, call: Call) -> AnswerRecord:
        assert call.answer is not None
        key, timestamp = call.sequence.to_bytes(8, "big"), max(call.record.timestamp, 0)
        return AnswerRecord(self._topic, key, call.answer.pack(), timestamp)

    def _answer(self, call: Call, outcome: CallOutcome) -> Answer:
        about = call.sequence, call.record, call.attempts
        if outcome.error is not None:
            return self._function.failure(*about, outcome.error)
        return self._function.answer(*about, outcome.result)

    def _outcomes(self, calls: Sequence[Call]) -> list[CallOutcome]:
        """Return the outcome of an attempt for each of its calls."""
        if self._given_number is not None:
            return [self._next_given(self._given_number, call) for call in calls]
        client = self._opened_client()
        attempted = [Attempted(call.record, call.attempts) for call in calls]
        try:
            name = partial(attempt_name, self._spec.node, calls[0].record, len(calls) - 1)
            reconciling = self._function.reconciling(attempted, client)
            if reconciling is not None:
                found = self._loop_thread.run(self._limited(reconciling, "reconcile", name))
                if found is not NOT_CALLED:
                    return [CallOutcome(found)]
            made = self._function.made(attempted, client)
            return made.outcomes(self._loop_thread.run(self._limited(made, CALL, name)))
        except Exception as error:
            return [CallOutcome(error=error)] * len(calls)

    def _next_given(self, number: int, call: Call) -> CallOutcome:
        if not self._given:
            raise NoAnswerLeftError(
                f"Operator {self._spec.node} was given {number} answer{'' if number == 1 else 's'}, and all are used: "
                f"attempt {call.attempts} of its call for offset {call.record.offset} of {call.record.topic} needs "
                f"another one. Give driver.answers({self._spec.node!r}, [...]) one for each attempt, retries included."
            )
        given = self._given.popleft()
        if isinstance(given, Exception):
            return CallOutcome(error=given)
        if isinstance(given, BaseException):
            raise given
        return CallOutcome(given)

    async def _limited(self, function: Callable[[], Any], which: str, name: Callable[[str], str]) -> Any:
        """Return the result of the function `which`, or raise its error; its time is limited as on hosts."""
        rules, loop = self._spec.rules, asyncio.get_running_loop()
        made = _in_thread(function) if rules.threads else function()
        ended: asyncio.Future[AttemptOutcome] = loop.create_future()
        seconds = rules.timeout_ms / 1000
        Attempt(self._spec.node, name, made, seconds, self._cancel_seconds, ended.set_result).begin(which)
        began = loop.time()
        outcome = await ended
        if outcome.error is not None:
            raise outcome.error
        if loop.time() - began > seconds:
            _log.warning(
                "%s blocked its loop for %d ms, and its timeout of %d ms could not end it. On a host, it holds up all "
                "calls of the process: write def in place of async def, and give Calls threads=.",
                called_function(self._spec),
                round((loop.time() - began) * 1000),
                rules.timeout_ms,
            )
        return outcome.result

    @property
    def _loop_thread(self) -> _LoopThread:
        if self._thread is None:
            self._thread = _LoopThread(self._spec.node)
        return self._thread

    def _opened_client(self) -> Any:
        if self._spec.open is None or self._opened is not None:
            return self._client
        attempts = 0
        while self._opened is None:
            attempts += 1
            try:
                opened = checked_client(self._spec.node, self._spec.open())
                self._client = self._loop_thread.run(_enter(opened))
                self._opened = opened
            except Exception as error:
                if not self._function.tries_again(error, attempts):
                    raise client_open_error(self._spec, attempts, error) from error
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
    ended: asyncio.Future[AttemptOutcome] = loop.create_future()

    def call() -> None:
        try:
            outcome = AttemptOutcome(function())
        except BaseException as error:  # SystemExit must not end a thread unseen
            outcome = AttemptOutcome(error=error)
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


def _checked_answers(node: str, answers: object) -> Sequence[Any]:
    """Return the answers of a test as a list; raises TypeError for a single answer, and for classes of errors."""
    if isinstance(answers, str | bytes | Mapping) or not isinstance(answers, Iterable):
        raise TypeError(
            f"Expected a list of answers for {node}, one for each attempt, got {answers!r:.100}: write "
            f"answers({node!r}, [...])."
        )
    found = list(answers)
    for each in found:
        if isinstance(each, type) and issubclass(each, BaseException):
            raise TypeError(
                f"Expected an answer or an error for {node}, got the class {each.__name__}: write {each.__name__}(...)."
            )
    return found
