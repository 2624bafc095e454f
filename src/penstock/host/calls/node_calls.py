"""The calls of one operator in one process, in the loop of the runner.

Rules:
- An attempt takes a place of the capacity from its start to its end. A pause between attempts takes no place.
- An answer that waits for earlier ones keeps its place, because it is lost if the process ends. Only another attempt of
  an earlier call starts without that place, or the line would stand still.
- No attempt starts while as many answers as the capacity are not written: a broker that does not answer must not cost
  further calls.
- If the client cannot be opened, all calls wait, and their attempts do not count. A drop ends this state.
- A dropped call is cancelled, and its answer is not written, unless it has left its line before.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.host.calls.answer_writer import AnswerWriter, CallAnswer
from penstock.host.calls.attempt import CANCEL_SECONDS, Attempt, AttemptOutcome
from penstock.host.calls.blocking import BlockingThreads
from penstock.host.calls.lines import Call, CallLines
from penstock.host.calls.measuring import CallCounters
from penstock.host.calls.opened_client import OpenedClient, at_once
from penstock.host.calls.rate import RateLimiter
from penstock.host.crashpoints import crash_point
from penstock.processor.call_function import CallFunction, ClientOpenError
from penstock.processor.calls import NOT_CALLED, Answer, CallSpec
from penstock.processor.waiting_records import Waiting
from penstock.record import TopicPartition


class NodeCalls:
    """Makes the calls of one operator. All methods run in the loop.

    Args:
        spec: the operator.
        topic: the name of its answers topic.
        function: calls the function of the operator.
        writer: writes the answers.
        failed: receives the error by which no call can be made.
        cancel_seconds: the time in which a cancelled coroutine must end.
    """

    def __init__(
        self,
        spec: CallSpec,
        topic: str,
        function: CallFunction,
        writer: AnswerWriter,
        failed: Callable[[Exception], None],
        cancel_seconds: float = CANCEL_SECONDS,
    ) -> None:
        self.counters = CallCounters()
        self._spec = spec
        self._topic = topic
        self._function = function
        self._writer = writer
        self._failed = failed
        self._cancel_seconds = cancel_seconds
        self._loop = asyncio.get_running_loop()
        self._lines = CallLines(spec.rules.order)
        self._limiter = None if spec.rules.rate is None else RateLimiter(spec.rules.rate)
        self._threads = BlockingThreads(f"penstock-{spec.node}", spec.rules.threads, self._pump)
        self._client = OpenedClient(spec, self._threads.run if spec.rules.threads else at_once)
        self._attempts: dict[Call, Attempt] = {}
        self._pauses: dict[Call, asyncio.TimerHandle] = {}
        self._unwritten: Counter[int] = Counter()
        self._when_written: defaultdict[int, list[Callable[[], None]]] = defaultdict(list)
        self._made = 0
        self._later: asyncio.TimerHandle | None = None
        self._is_paused = self._has_failed = False
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, partition: int, entries: Sequence[Waiting]) -> None:
        """Add waiting records of a partition, in order; known ones are ignored."""
        for sequence, record in entries:
            self._lines.add(partition, sequence, record)
        self._pump()

    def drop(self, partition: int) -> None:
        """Cancel the calls of a partition."""
        self._has_failed = False
        for call in self._lines.drop(partition):
            if call in self._attempts:
                self._attempts[call].cancel()
            if call in self._pauses:
                self._pauses.pop(call).cancel()
        self._count()

    def pause(self) -> None:
        """Start no attempt until `resume`."""
        self._is_paused = True

    def resume(self) -> None:
        """Start attempts again."""
        self._is_paused = False
        self._pump()

    async def close(self, partitions: Sequence[int]) -> None:
        """Cancel all calls, those of `partitions`, wait until they end or are abandoned, and close the client."""
        self._is_paused = True
        for partition in partitions:
            self.drop(partition)
        await self._idle.wait()
        await self._client.close()
        self._threads.close()

    def _has_place(self) -> bool:
        rules = self._spec.rules
        places = min(rules.capacity, rules.threads) - self._threads.lost if rules.threads else rules.capacity
        in_flight = len(self._attempts)
        if self._has_failed or in_flight >= places or self._unwritten.total() >= rules.capacity:
            return False
        return in_flight + self._lines.held < rules.capacity or self._lines.has_begun_next()

    def _pump(self) -> None:
        """Start the attempts that may start now."""
        while not self._is_paused and self._has_place() and self._lines.has_next():
            if self._limiter is not None:
                now = self._loop.time()
                wait = self._limiter.wait(now)
                if wait > 0:
                    self._pump_in(wait)
                    break
                self._limiter.start(now)
            self._start(self._lines.next())
        self._count()

    def _pump_in(self, seconds: float) -> None:
        if self._later is None:
            self._later = self._loop.call_later(seconds, self._pump_late)

    def _pump_late(self) -> None:
        self._later = None
        self._pump()

    def _count(self) -> None:
        self.counters.set(len(self._attempts), len(self._lines))

    # ---------------------------------------- attempts

    def _start(self, call: Call) -> None:
        self._made += 1
        crash_point("call.made", self._made)
        if call.attempts:
            self.counters.retried()
        call.attempts += 1
        ended = partial(self._ended, call, self._loop.time())
        timeout = self._spec.rules.timeout_ms / 1000
        self._idle.clear()
        self._attempts[call] = Attempt(self._name_of(call), self._made_call(call), timeout, self._cancel_seconds, ended)

    def _name_of(self, call: Call) -> str:
        record = call.record
        return f"The call of {self._spec.node} for {record.topic}-{record.partition}, offset {record.offset},"

    async def _made_call(self, call: Call) -> Any:
        """Call the function for the record and return its result, or the one that the service has already."""
        attempt, number = self._attempts[call], call.attempts
        client = await self._client.get()
        reconciling = self._function.reconciling(call.record, number, client)
        if reconciling is not None:
            attempt.begin()
            found = await self._result(call, reconciling)
            if found is not NOT_CALLED:
                return found
        attempt.begin()
        return await self._result(call, self._function.bound(call.record, number, client))

    async def _result(self, call: Call, function: Callable[[], Any]) -> Any:
        if self._spec.rules.threads:
            return await self._threads.run(self._name_of(call), function)
        return await function()

    def _ended(self, call: Call, began: float, outcome: AttemptOutcome) -> None:
        del self._attempts[call]
        if not self._attempts:
            self._idle.set()
        self.counters.attempted((self._loop.time() - began) * 1000)
        if not call.is_dropped:
            self._go_on(call, outcome)
        self._pump()

    def _go_on(self, call: Call, outcome: AttemptOutcome) -> None:
        """Write the answer of an attempt, or try again."""
        function, about = self._function, (call.sequence, call.record, call.attempts)
        if outcome.error is None:
            crash_point("call.answered", self._made)
            self._answer(call, function.answer(*about, outcome.result))
        elif isinstance(outcome.error, ClientOpenError):
            call.attempts -= 1
            self._lines.again(call)
            self._fail(outcome.error)
        elif function.tries_again(outcome.error, call.attempts):
            wait = self._spec.rules.backoff.wait_ms(call.attempts) / 1000
            self._pauses[call] = self._loop.call_later(wait, self._again, call)
        else:
            self._answer(call, function.failure(*about, outcome.error))

    def _fail(self, error: Exception) -> None:
        """Report the error by which no call can be made, once."""
        if not self._has_failed:
            self._has_failed = True
            self._failed(error)

    def _again(self, call: Call) -> None:
        del self._pauses[call]
        self._lines.again(call)
        self._pump()

    # ---------------------------------------- answers

    def _answer(self, call: Call, answer: Answer) -> None:
        call.answer = answer
        leaving = self._lines.answered(call)
        self._count()
        for each in leaving:
            assert each.answer is not None
            self.counters.answered(1 if each.answer.failure else 0)
            self._unwritten[each.partition] += 1
            record = CallAnswer(
                TopicPartition(self._topic, each.partition),
                each.sequence.to_bytes(8, "big"),
                each.answer,
                max(each.record.timestamp, 0),
            )
            self._writer.write(record, partial(_in, self._loop, partial(self._settled, each.partition)))

    def _settled(self, partition: int) -> None:
        """Note that an answer of a partition needs no memory any more."""
        self._unwritten[partition] -= 1
        if not self._unwritten[partition]:
            del self._unwritten[partition]
            for done in self._when_written.pop(partition, ()):
                done()
        self._pump()

    def when_written(self, partition: int, done: Callable[[], None]) -> None:
        """Call `done` when no answer of a partition is on its way to brokers, perhaps at once."""
        if partition in self._unwritten:
            self._when_written[partition].append(done)
        else:
            done()


def _in(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:  # the loop is closed
        return
