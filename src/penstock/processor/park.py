"""The operator that parks records: it keeps those that fail, and later ones of their keys, for another attempt.

Rules:
- A record whose function raises waits in the store, and so do later records of its key, which are not tried meanwhile.
- When the first record of a key is due, its function is called again. If it succeeds, its results are forwarded in the
  context of the record, and the next record of the key has its turn at once.
- After the last attempt, the record is a dead letter, or the task handles its error as without this operator. Then the
  next record of the key has its turn.
- A function may have more than one result, so none is forwarded before all of them are known.
- No record waits longer than the limit of the backoff, even if the wall clock has gone back since its last attempt.
- If the store is full, the task handles the error of a record, as without this operator.
- The operator also receives requests about parked records (`parked_requests`). A retry makes first records due at once,
  and their attempts begin again. A drop makes records dead letters, or drops them without a topic for these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from penstock.errors import StreamsError, counted
from penstock.metrics.drop_reasons import DropReason
from penstock.processor.api import EngineContext, Processor, ProcessorContext
from penstock.processor.backoff import Backoff
from penstock.processor.first_results import UsesResults
from penstock.processor.kept_results import KeptResults
from penstock.processor.parked_requests import ParkedAction, ParkedRequest
from penstock.processor.waiting_records import Waiting, WaitingRecord, WaitingRecords
from penstock.processor.waiting_serdes import serdes_of_store
from penstock.record import NO_METADATA, Record, RecordMetadata

_log = logging.getLogger(__name__)

_MOST_AT_ONCE = 1_000
"""Maximum number of attempts in one punctuation; the next one follows 1 ms later."""

_LONGEST_FAILURE = 1_000
"""Maximum number of characters of the first error in the store."""


@dataclass(frozen=True)
class ParkRules:
    """The rules of one operator that parks records.

    Args:
        backoff: the waits between attempts.
        attempts: maximum number of attempts for a record, including the first.
        writes_dead_letters: whether the record is a dead letter after the last attempt.
        max_records: maximum number of records in the store of a task.
        max_bytes: size in bytes from which on the store of a task takes no more records.
    """

    backoff: Backoff
    attempts: int
    writes_dead_letters: bool
    max_records: int
    max_bytes: int


class _Turn(NamedTuple):
    """The parked record that is processed.

    Args:
        sequence: its number.
        given_up: the error with which it leaves the store unprocessed; None for another attempt.
    """

    sequence: int
    given_up: StreamsError | None = None


class StreamPark(Processor, UsesResults):
    """Runs an operator of a stream, and parks the records on which its function fails.

    Args:
        make: makes the operator, which forwards nothing but the results of its function.
        store_name: the name of the store.
        rules: the rules.
    """

    held = ()

    def __init__(self, make: Callable[[], Processor], store_name: str, rules: ParkRules) -> None:
        self._operator = make()
        self._store_name = store_name
        self._rules = rules
        self._results = KeptResults()
        self._turn: _Turn | None = None

    @property
    def operator(self) -> Processor:
        """The operator, with the function of the user."""
        return self._operator

    def users(self) -> Iterable[UsesResults]:
        """Return the operator, which holds the function."""
        return (self._operator,) if isinstance(self._operator, UsesResults) else ()

    def init(self, context: ProcessorContext) -> None:
        """Read the waiting records, and set the alarm for the first of them.

        Raises ConfigError if a serde is missing.
        """
        super().init(context)
        self._engine = cast(EngineContext, context)
        self._operator.init(cast(ProcessorContext, self._results))
        store = context.get_state_store(self._store_name)
        self._serdes = serdes_of_store("Park", store, context.application_id)
        self._metadata = self._engine.processor_metadata()
        self._next_name = f"{self._store_name}/next"
        self._records = WaitingRecords(store, self._metadata.get(self._next_name, 1))
        self._alarm = self._engine.alarm(self._retry)
        now = self.context.current_system_time_ms()
        self._alarm.ring_at(now if self._later_than_any_wait(now) else self._records.next_due())

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the results of the operator, or park the record. A request concerns records that are parked.

        Raises the error of the function after the last attempt without dead letters, or if the store is full.
        """
        turn, self._turn = self._turn, None
        if isinstance(record.value, ParkedRequest):
            self._serve(record.value)
            return
        if turn is not None and turn.given_up is not None:
            self._drop(turn.sequence, turn.given_up)
            return
        self._attempt(record, None if turn is None else turn.sequence)

    def _attempt(self, record: Record[Any, Any], turn: int | None) -> None:
        """Process a record; `turn` is its number if it is parked."""
        if turn is None and len(self._records) and self._records.waits(self._serdes.key_of(record)):
            self._check_room(record)
            self._park(self._waiting(record))
            return
        try:
            self._operator.process(record)
        except Exception as error:
            self._results.take()
            self._failed(record, turn, error)
            return
        if turn is not None:
            self._records.remove(turn)
        for result in self._results.take():
            self.context.forward(result)

    @property
    def parked_records(self) -> int:
        """The number of records in the store."""
        return len(self._records)

    def close(self) -> None:
        """Close the operator."""
        self._operator.close()

    def _failed(self, record: Record[Any, Any], turn: int | None, error: Exception) -> None:
        """Park the record until the next attempt, or give it up."""
        before = None if turn is None else self._records.get(turn)
        attempts = 1 if before is None else before.attempts + 1
        if attempts >= self._rules.attempts:
            if turn is not None:
                self._records.remove(turn)
            self._give_up(error, attempts)
            return
        due = self.context.current_system_time_ms() + self._rules.backoff.wait_ms(attempts)
        if turn is not None and before is not None:
            failure = before.failure or _text(error)
            self._records.replace(turn, replace(before, attempts=attempts, due=due, failure=failure))
            return
        if self._is_full:
            error.add_note(f"Store {self._store_name!r} is full and cannot keep the record: {self._sizes()}.")
            raise error
        self._park(replace(self._waiting(record), attempts=attempts, due=due, failure=_text(error)))
        self._alarm.ring_at(self._records.next_due())

    def _give_up(self, error: Exception, attempts: int) -> None:
        if attempts > 1:
            error.add_note(f"This was the last of {attempts} attempts (on_error).")
        if not self._rules.writes_dead_letters:
            raise error
        self._engine.bury(error)

    def _retry(self, now: int) -> None:
        """Try the records that are due, and those that follow them."""
        for sequence, record in self._later_than_any_wait(now):
            self._records.replace(sequence, replace(record, due=now))
        left = _MOST_AT_ONCE
        for sequence, record in self._records.due(now):
            left = self._retry_line(sequence, record, now, left)
        due = self._records.next_due()
        self._alarm.ring_at(None if due is None else max(due, now + 1))

    def _later_than_any_wait(self, now: int) -> list[Waiting]:
        """Return the heads of keys that are due later than any backoff allows: the wall clock has gone back."""
        return self._records.due_after(now + self._rules.backoff.limit_ms)

    def _retry_line(self, sequence: int, record: WaitingRecord, now: int, left: int) -> int:
        """Try a record and, while they succeed or are given up, those of its key that follow.

        `left` is the maximum number of attempts. Returns the number that is left after that.
        """
        while left:
            left -= 1
            again = self._serdes.record_of(record)
            self._process_again(_Turn(sequence), again, record)
            following = self._records.first(record.key)
            if following is None or following[1].due > now:
                break
            sequence, record = following
        return left

    def _process_again(self, turn: _Turn, again: Record[Any, Any], waiting: WaitingRecord) -> None:
        """Process a parked record in its own context."""
        self._turn = turn
        place = RecordMetadata(waiting.topic, waiting.partition, waiting.offset)
        self._engine.process_again(again, place, waiting.source)

    # ---------------------------------------- requests

    def _serve(self, request: ParkedRequest) -> None:
        """Do what a request says with the records that it concerns."""
        concerned = [each for each in self._records.waiting() if request.concerns(each[0], each[1].key)]
        if not concerned:
            self._tell_no_record(request)
            return
        match request.action:
            case ParkedAction.RETRY:
                self._make_due([each for each in concerned if self._records.leads(each[0])])
            case ParkedAction.DROP:
                self._give_up_all(concerned)
        self._alarm.ring_at(self._records.next_due())

    def _tell_no_record(self, request: ParkedRequest) -> None:
        """Log that a request concerns no record: they have left the store, or wait only since the request."""
        which = "" if request.keys is None else f" of the keys {[*request.keys]!s:.500}"
        what = f"no parked record{which} that waited at the time of the request"
        _log.warning("%s has %s to %s: it changes nothing.", self._place(), what, request.action)

    def _make_due(self, heads: Sequence[Waiting]) -> None:
        now = self.context.current_system_time_ms()
        for sequence, waiting in heads:
            self._records.replace(sequence, replace(waiting, attempts=0, due=now))
        _log.info("%s, as requested, tries %s again.", self._place(), counted(len(heads), "parked record"))

    def _give_up_all(self, concerned: Sequence[Waiting]) -> None:
        for sequence, waiting in concerned:
            self._process_again(_Turn(sequence, _dropped(waiting)), self._readable(waiting), waiting)
        kept = " (they are dead letters)" if self._rules.writes_dead_letters else ""
        _log.warning("%s, as requested, drops %s%s.", self._place(), counted(len(concerned), "parked record"), kept)

    def _place(self) -> str:
        return f"{self.context.application_id}: store {self._store_name!r} of task {self.context.task_id}"

    def _readable(self, waiting: WaitingRecord) -> Record[Any, Any]:
        """Return a parked record; with its bytes if a serde cannot read them, which may be why it is dropped."""
        try:
            return self._serdes.record_of(waiting)
        except StreamsError:
            return Record(waiting.key, waiting.value, max(waiting.timestamp, 0), waiting.headers)

    def _drop(self, sequence: int, error: StreamsError) -> None:
        self._records.remove(sequence)
        if self._rules.writes_dead_letters:
            self._engine.bury(error)
        else:
            self._engine.count_dropped(DropReason.PROCESSING)

    # ---------------------------------------- the store

    def _park(self, waiting: WaitingRecord) -> None:
        """Add a record. Its number never occurs again, since requests that come later may name it."""
        self._metadata[self._next_name] = self._records.append(waiting) + 1

    def _waiting(self, record: Record[Any, Any]) -> WaitingRecord:
        return self._serdes.waiting(record, self.context.record_metadata or NO_METADATA, self._engine.source_record())

    @property
    def _is_full(self) -> bool:
        return len(self._records) >= self._rules.max_records or self._records.size_bytes >= self._rules.max_bytes

    def _check_room(self, record: Record[Any, Any]) -> None:
        if self._is_full:
            raise StreamsError(
                f"Store {self._store_name!r} is full: {self._sizes()}. The record with key {record.key!r:.100} cannot "
                "wait in it for an earlier one of its key. Correct the cause of the failures, or give Park a larger "
                "max_records or max_bytes."
            )

    def _sizes(self) -> str:
        records, size, rules = len(self._records), self._records.size_bytes, self._rules
        return f"it has {records} of {rules.max_records} records and {size} of {rules.max_bytes} bytes"


def _dropped(waiting: WaitingRecord) -> StreamsError:
    """Return the error with which a record is dropped on request."""
    if not waiting.attempts and not waiting.failure:
        return StreamsError("Dropped on request; the record waited for an earlier one of its key.")
    return StreamsError(
        f"Dropped on request after {counted(waiting.attempts, 'failed attempt')}. The first error was: "
        f"{waiting.failure}"
    )


def _text(error: Exception) -> str:
    """Return an error as a short text that UTF-8 can encode."""
    text = f"{type(error).__name__}: {error}"[:_LONGEST_FAILURE]
    return text.encode(errors="backslashreplace").decode()
