"""The calls of one operator in one process, in the loop of the runner.

Rules:
- An attempt takes a place of the capacity from its start to its end. A pause between attempts takes no place.
- The attempt of a function on columns is for up to `batch_size` calls, also of several partitions. It starts when it is
  full, or when its first call is due. Each of its calls has an answer of its own; if it fails, each of them has failed.
- An answer that waits for earlier ones keeps its share of a place, because it is lost if the process ends. Only another
  attempt of an earlier call starts without that place, or the line would stand still.
- No attempt starts while as many answers as the capacity allows are not written: a broker that does not answer must not
  cost further calls.
- If the client cannot be opened, all calls wait, and their attempts do not count. A drop ends this state.
- If the process stands still after an attempt has started, its calls wait and the attempt does not count. Meanwhile
  another process may have made a call that `reconcile` has not found.
- A dropped call is cancelled with the last call of its attempt, and its answer is not written, unless it has left its
  line before.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.host.calls.answer_writer import AnswerWriter
from penstock.host.calls.attempt import CALL, CANCEL_SECONDS, Attempt, AttemptOutcome, attempt_name
from penstock.host.calls.blocking import BlockingThreads
from penstock.host.calls.leaving_answers import LeavingAnswers
from penstock.host.calls.lines import Call, CallLines
from penstock.host.calls.measuring import CallCounters
from penstock.host.calls.opened_client import OpenedClient, at_once
from penstock.host.calls.pauses import CallPauses
from penstock.host.calls.rate import RateLimiter
from penstock.host.calls.standstill import Standstill, StandstillError
from penstock.host.crashpoints import crash_point
from penstock.processor.call_batch import Attempted, CallOutcome
from penstock.processor.call_function import CallFunction, ClientOpenError
from penstock.processor.calls import NOT_CALLED, Answer, CallSpec
from penstock.processor.waiting_records import Waiting


class _Batch:
    """The calls of one attempt.

    Args:
        calls: at least one.
        began: the time of its start in seconds.
    """

    def __init__(self, calls: Sequence[Call], began: float) -> None:
        self.calls = calls
        self.began = began
        self.attempt: Attempt | None = None

    def begin(self, running: str) -> None:
        """Begin the time of the attempt; running: as in `Attempt.begin`."""
        if self.attempt is not None:
            self.attempt.begin(running)

    def cancel_if_dropped(self) -> None:
        """Cancel the attempt if no call of it needs an answer."""
        if self.attempt is not None and all(call.is_dropped for call in self.calls):
            self.attempt.cancel()


class NodeCalls:
    """Makes the calls of one operator. All methods run in the loop.

    Args:
        spec: the operator.
        topic: the name of its answers topic.
        function: calls the function of the operator.
        writer: writes the answers.
        failed: receives the error by which no call can be made.
        standstill: holds attempts back after the process stood still.
        cancel_seconds: the time in which a cancelled coroutine must end.
    """

    def __init__(
        self,
        spec: CallSpec,
        topic: str,
        function: CallFunction,
        writer: AnswerWriter,
        failed: Callable[[Exception], None],
        standstill: Standstill,
        cancel_seconds: float = CANCEL_SECONDS,
    ) -> None:
        self.counters = CallCounters()
        self._spec = spec
        self._function = function
        self._failed = failed
        self._standstill = standstill
        self._cancel_seconds = cancel_seconds
        self._loop = asyncio.get_running_loop()
        self._lines = CallLines(spec.rules.order, spec.rules.attempts, reconciles=spec.reconcile is not None)
        self._limiter = None if spec.rules.rate is None else RateLimiter(spec.rules.rate)
        self._threads = BlockingThreads(f"penstock-{spec.node}", spec.rules.threads, self._pump)
        self._client = OpenedClient(spec, self._threads.run if spec.rules.threads else at_once)
        self._attempts: set[_Batch] = set()
        self._called: dict[Call, _Batch] = {}
        self._pauses = CallPauses(self._again)
        self._leaving = LeavingAnswers(topic, writer, self._pump)
        self._made = 0
        self._later: asyncio.TimerHandle | None = None
        self._is_paused = self._has_failed = False
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, partition: int, entries: Sequence[Waiting]) -> None:
        """Add waiting records of a partition, in order; known ones are ignored."""
        due = self._loop.time() + self._spec.rules.batch_wait_ms / 1000
        for sequence, record in entries:
            self._lines.add(partition, sequence, record, due)
        self._pump()

    def drop(self, partition: int) -> None:
        """Cancel the calls of a partition."""
        self._has_failed = False
        for call in self._lines.drop(partition):
            if call in self._called:
                self._called[call].cancel_if_dropped()
            self._pauses.cancel(call)
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
        self._leaving.hand_over()
        await self._client.close()
        self._threads.close()

    def _room(self) -> int:
        """Return the maximum number of calls of the next attempt, 0 if no attempt has a place."""
        rules = self._spec.rules
        places = min(rules.capacity, rules.threads) - self._threads.lost if rules.threads else rules.capacity
        most = rules.capacity * rules.batch_size
        if self._has_failed or len(self._attempts) >= places or len(self._leaving) >= most:
            return 0
        room = min(rules.batch_size, most - len(self._called) - self._lines.held)
        return room if room > 0 else int(self._lines.has_begun_next())

    def _pump(self) -> None:
        """Start the attempts that may start now."""
        while not self._is_paused and self._lines.has_next() and (room := self._room()):
            now = self._loop.time()
            wait = max(self._standstill.look(), self._lines.due(room) - now)
            if self._limiter is not None:
                wait = max(wait, self._limiter.wait(now))
            if wait > 0:
                self._pump_at(now + wait)
                break
            if self._limiter is not None:
                self._limiter.start(now)
            self._start(_Batch(self._lines.next(room), now))
        self._count()

    def _pump_at(self, when: float) -> None:
        if self._later is not None:
            if self._later.when() <= when:
                return
            self._later.cancel()
        self._later = self._loop.call_at(when, self._pump_late)

    def _pump_late(self) -> None:
        self._later = None
        self._pump()

    def _count(self) -> None:
        self.counters.set(len(self._attempts), len(self._lines))

    # ---------------------------------------- attempts

    def _start(self, batch: _Batch) -> None:
        self._made += 1
        crash_point("call.made", self._made)
        if any(call.attempts for call in batch.calls):
            self.counters.retried()
        for call in batch.calls:
            call.attempts += 1
            self._called[call] = batch
        self._idle.clear()
        self._attempts.add(batch)
        timeout = self._spec.rules.timeout_ms / 1000
        ended = partial(self._ended, batch)
        name = self._name_of(batch)
        batch.attempt = Attempt(self._spec.node, name, self._made_call(batch), timeout, self._cancel_seconds, ended)

    def _name_of(self, batch: _Batch) -> Callable[[str], str]:
        return partial(attempt_name, self._spec.node, batch.calls[0].record, len(batch.calls) - 1)

    async def _made_call(self, batch: _Batch) -> dict[Call, CallOutcome]:
        """Call the function for the records and return their outcomes, or the one that the service has already."""
        client = await self._client.get()
        calls = [call for call in batch.calls if not call.is_dropped]
        attempted = [Attempted(call.record, call.attempts) for call in calls]
        reconciling = self._function.reconciling(attempted, client)
        if reconciling is not None:
            found = await self._result(batch, "reconcile", reconciling)
            if found is not NOT_CALLED:
                return {calls[0]: CallOutcome(found)}
        self._standstill.check()
        made = self._function.made(attempted, client)
        return dict(zip(calls, made.outcomes(await self._result(batch, CALL, made)), strict=True))

    async def _result(self, batch: _Batch, which: str, function: Callable[[], Any]) -> Any:
        """Return the result of the function `which`, whose time begins now."""
        batch.begin(which)
        if self._spec.rules.threads:
            return await self._threads.run(self._name_of(batch)(which), function)
        return await function()

    def _ended(self, batch: _Batch, outcome: AttemptOutcome) -> None:
        self._attempts.discard(batch)
        for call in batch.calls:
            del self._called[call]
        if not self._attempts:
            self._idle.set()
        self.counters.attempted((self._loop.time() - batch.began) * 1000)
        if outcome.error is None:
            crash_point("call.answered", self._made)
        self._go_on(batch, outcome)
        self._pump()

    def _go_on(self, batch: _Batch, ended: AttemptOutcome) -> None:
        """Write the answers of an attempt, or try again."""
        failed = defaultdict[int, list[Call]](list)
        for call in batch.calls:
            if call.is_dropped:
                continue
            outcome = ended if ended.error is not None else ended.result[call]
            about = (call.sequence, call.record, call.attempts)
            if outcome.error is None:
                self._answer(call, self._function.answer(*about, outcome.result))
            elif isinstance(outcome.error, ClientOpenError | StandstillError):
                call.attempts -= 1
                self._lines.again(call)
                if isinstance(outcome.error, ClientOpenError):
                    self._fail(outcome.error)
            elif self._function.tries_again(outcome.error, call.attempts):
                failed[call.attempts].append(call)
            else:
                self._answer(call, self._function.failure(*about, outcome.error))
        for attempts, calls in failed.items():
            self._pauses.begin(calls, self._spec.rules.backoff.wait_ms(attempts) / 1000)

    def _fail(self, error: Exception) -> None:
        """Report the error by which no call can be made, once."""
        if not self._has_failed:
            self._has_failed = True
            self._failed(error)

    def _again(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self._lines.again(call)
        self._pump()

    # ---------------------------------------- answers

    def _answer(self, call: Call, answer: Answer) -> None:
        call.answer = answer
        leaving = self._lines.answered(call)
        for each in leaving:
            assert each.answer is not None
            self.counters.answered(1 if each.answer.failure else 0)
            self._leaving.write(each)

    def when_written(self, partition: int, done: Callable[[], None]) -> None:
        """Call `done` when no answer of a partition is on its way to brokers, perhaps at once."""
        self._leaving.when_written(partition, done)
