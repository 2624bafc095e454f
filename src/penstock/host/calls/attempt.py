"""One attempt of a call: a coroutine in the loop, with a limited duration."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from penstock.processor.waiting_records import WaitingRecord

_log = logging.getLogger(__name__)

CANCEL_SECONDS: Final = 5.0
"""The time in which a cancelled coroutine must end; after it, the coroutine is abandoned."""


CALL: Final = "call"
"""The word for the function of an operator in errors."""


def attempt_name(node: str, record: WaitingRecord, more: int, function: str) -> str:
    """Return the name of the `function` of an operator and its record, and of how many more."""
    others = f", and {more} more," if more else ","
    return f"The {function} of {node} for {record.topic}-{record.partition}, offset {record.offset}{others}"


class AttemptOutcome(NamedTuple):
    """The end of an attempt: its result, or its error."""

    result: Any = None
    error: BaseException | None = None


class Attempt:
    """Runs a coroutine in the current loop until it ends, or until its time is over.

    The time begins with `begin`, not before: what precedes the call, such as opening a client, has no part of it.

    Args:
        node: the name of the operator, and of the task.
        name: returns the name of a function and its record, for errors; it takes the word for the function.
        made: the coroutine.
        timeout: its maximum duration in seconds.
        cancel_seconds: the time in which it must end after it is cancelled.
        ended: receives the outcome, once and in the loop.
    """

    def __init__(
        self,
        node: str,
        name: Callable[[str], str],
        made: Coroutine[Any, Any, Any],
        timeout: float,
        cancel_seconds: float,
        ended: Callable[[AttemptOutcome], None],
    ) -> None:
        self._name_of = name
        self._running = CALL
        self._timeout = timeout
        self._cancel_seconds = cancel_seconds
        self._ended: Callable[[AttemptOutcome], None] | None = ended
        self._error: BaseException | None = None
        self._made = made
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._task = self._loop.create_task(outcome_of(made), name=node)
        self._task.add_done_callback(self._done)

    def begin(self, running: str) -> None:
        """Begin the time of the attempt, or begin it again; raises CancelledError if it is over.

        running: the word for the function that runs from now on, for errors.
        """
        if self._error is not None:
            raise asyncio.CancelledError(str(self._error))
        self._running = running
        self._end_timer()
        self._timer = self._loop.call_later(self._timeout, self._time_out)

    @property
    def _name(self) -> str:
        return self._name_of(self._running)  # when it is needed, as most attempts have no error

    def cancel(self) -> None:
        """Cancel the coroutine; the outcome is then an error, unless the coroutine returns regardless."""
        if self._error is None:
            self._stop(asyncio.CancelledError(f"{self._name} was cancelled."))

    def _time_out(self) -> None:
        self._stop(TimeoutError(f"{self._name} did not end within {round(self._timeout * 1000)} ms."))

    def _stop(self, error: BaseException) -> None:
        self._error = error
        self._end_timer()
        self._timer = self._loop.call_later(self._cancel_seconds, self._abandon)
        self._task.cancel()

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _abandon(self) -> None:
        """Go on without a coroutine that does not end."""
        _log.error(
            "%s was cancelled, and still runs after %d ms. It is abandoned and keeps what it uses: a coroutine must "
            "not catch asyncio.CancelledError and go on.",
            self._name,
            round(self._cancel_seconds * 1000),
        )
        self._finish(AttemptOutcome(error=self._error))

    def _done(self, task: asyncio.Task[AttemptOutcome]) -> None:
        self._end_timer()
        self._made.close()  # a coroutine that was cancelled before its first step
        if task.cancelled():
            error = self._error or asyncio.CancelledError(f"{self._name} cancelled itself.")
            self._finish(AttemptOutcome(error=error))
            return
        outcome = task.result()
        # A result counts even if it comes during the cancellation; an error then only follows from it.
        self._finish(
            AttemptOutcome(error=self._error) if outcome.error is not None and self._error is not None else outcome
        )

    def _finish(self, outcome: AttemptOutcome) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(outcome)


async def outcome_of(made: Coroutine[Any, Any, Any]) -> AttemptOutcome:
    """Return the result of a coroutine, or its error: SystemExit must not end the loop."""
    try:
        return AttemptOutcome(await made)
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return AttemptOutcome(error=error)
