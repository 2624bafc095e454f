"""The second node of an operator with calls: it receives answers and forwards the results of their records.

Rules:
- The first answer of a record counts. Without a waiting record, an answer is ignored.
- The operator runs as without calls, in the context of the record, with a function that returns the answer.
- A failed answer is an error of the record, which the handler, the topic of dead letters, a count or the processor that
  made the call takes.
- A failure that ended an earlier run is ignored: the record still waits, and the host makes its call again.
- An answer that comes before one that must precede it is ignored, and comes again or its call is made again.
- All results are known before the first is forwarded, so an error after that is no error of the operator.
- The record leaves the inbox with the commit of its results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

from penstock.errors import CallFailedError, StreamsError
from penstock.metrics.drop_reasons import DropReason
from penstock.processor.api import Processor, ProcessorContext
from penstock.processor.call_inbox import CallsContext, opened_inbox
from penstock.processor.calls import Answer, CallFailure, CallSpec, FailedCall, unpack_answer
from penstock.processor.first_results import NeedsResults, UsesResults, adapting, no_result_error
from penstock.processor.kept_results import KeptResults
from penstock.processor.waiting_records import WaitingRecord
from penstock.record import NO_METADATA, Record


class _Turn(NamedTuple):
    """The record that is processed with its answer.

    Args:
        sequence: its number.
        waiting: its entry.
        answer: the answer.
        is_repeated: whether the call is made again if it has failed.
        unreadable: the error of a serde that cannot read the record; None if it is readable.
    """

    sequence: int
    waiting: WaitingRecord
    answer: Answer
    is_repeated: bool
    unreadable: Exception | None


class _Result:
    """A function of the operator whose result is known."""

    def __init__(self) -> None:
        self.value: Any = None

    def __call__(self, *arguments: Any) -> Any:
        return self.value


class StreamCallAnswers(Processor, UsesResults):
    """Forwards the results of an operator whose function is called outside of the task.

    Args:
        spec: the operator.
        make: makes the operator with a function.
        topic: the name of the answers topic, without prefix.
    """

    held = ()

    def __init__(self, spec: CallSpec, make: Callable[[Callable[..., Any]], Processor], topic: str) -> None:
        self._spec = spec
        self._topic = topic
        self._result = _Result()
        if spec.columns is None:  # a function on columns returns a column, or fails
            adapting(spec.function, self._result)
        self._operator = make(self._result)
        self._results = KeptResults()
        self._turn: _Turn | None = None

    def init(self, context: ProcessorContext) -> None:
        """Open the inbox; raises ConfigError if a serde is missing."""
        super().init(context)
        self._engine = cast(CallsContext, context)
        self._inbox = opened_inbox(self._engine, self._spec)
        self._operator.init(cast(ProcessorContext, self._results))

    def process(self, record: Record[Any, Any]) -> None:
        """Use an answer, or forward the results for its record.

        Raises CallFailedError for the answer of a failed call, and the errors of the operator.
        """
        turn, self._turn = self._turn, None
        if turn is None:
            self._receive(record.value)
            return
        try:
            results = self._results_of(turn, record)
        except Exception as error:
            self._results.take()
            if turn.is_repeated and self._spec.on_failure is CallFailure.RAISE:
                return
            self._inbox.remove(turn.sequence)
            self._failed(error, record)
            return
        self._inbox.remove(turn.sequence)
        for result in results:
            self.context.forward(result)

    def users(self) -> Iterable[UsesResults]:
        """Return the operator, if it uses the results of calls."""
        return (self._operator,) if isinstance(self._operator, UsesResults) else ()

    def close(self) -> None:
        """Close the operator."""
        self._operator.close()

    def _receive(self, data: bytes) -> None:
        """Process the record of an answer, if it still waits."""
        answer = unpack_answer(data, self._answers_topic)
        waiting = self._inbox.get(answer.sequence)
        if waiting is None or not answer.answers(answer.sequence, waiting):
            return
        record, unreadable = self._record_of(waiting)
        if self._inbox.is_overtaking(answer.sequence):
            return  # brokers refused an earlier answer, which follows, or an earlier call is made again; then this one
        is_repeated = self._engine.is_repeated(self.context.record_metadata or NO_METADATA)
        self._turn = _Turn(answer.sequence, waiting, answer, is_repeated, unreadable)
        self._engine.process_answered(record, waiting)

    def _record_of(self, waiting: WaitingRecord) -> tuple[Record[Any, Any], Exception | None]:
        """Return the record of an entry; with its bytes and the error if a serde cannot read them."""
        try:
            return self._inbox.serdes.record_of(waiting), None
        except StreamsError as error:
            return Record(waiting.key, waiting.value, max(waiting.timestamp, 0), waiting.headers), error

    @property
    def _answers_topic(self) -> str:
        return f"{self.context.application_id}-{self._topic}"

    def _results_of(self, turn: _Turn, record: Record[Any, Any]) -> list[Record[Any, Any]]:
        """Return the results for the record of an answer."""
        answer = turn.answer
        if turn.unreadable is not None:
            raise turn.unreadable
        if answer.failure:
            raise CallFailedError(self._spec.node, answer.failure, answer.attempts, answer.details)
        self._result.value = None if answer.result is None else self._deserialized(answer.result, turn.waiting)
        if self._result.value is None and isinstance(self._operator, NeedsResults):
            raise no_result_error(self._result, self._spec.node, self._operator)
        self._operator.process(record)
        return self._results.take()

    def _deserialized(self, result: bytes, waiting: WaitingRecord) -> Any:
        serde = self._spec.answer_serde_of(waiting)
        try:
            return serde.deserialize(self._answers_topic, result)
        except Exception as error:
            raise StreamsError(
                f"Topic {self._answers_topic!r} has an answer for offset {waiting.offset} of "
                f"{waiting.topic}-{waiting.partition} that {type(serde).__name__} cannot "
                f"read ({error}): run the program with the answer_serde of Calls, or the annotation, that wrote it."
            ) from error

    def _failed(self, error: Exception, record: Record[Any, Any]) -> None:
        """Handle the failure of the call for `record`; raises all other errors."""
        if not isinstance(error, CallFailedError):
            raise error
        match self._spec.on_failure:
            case CallFailure.RAISE:
                raise error
            case CallFailure.SKIP:
                self._engine.count_dropped(DropReason.PROCESSING)
            case CallFailure.BURY:
                self._engine.bury(error)
            case CallFailure.FORWARD:
                self.context.forward(record.with_value(FailedCall(record.value, error)))
