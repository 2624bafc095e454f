"""A user's processor that calls functions outside of its task.

Rules:
- It is one node below its parents and below the node that receives its answers (`StreamCallAnswers`), so answers and
  failures come in the context of their records, and only if they count.
- A call waits in the store of the processor, as the records of an operator with calls do.
- The start fails while a call waits whose function is not declared, so that no such call fails or is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from penstock.processor.api import Processor, ProcessorContext, ProcessorSupplier
from penstock.processor.call_inbox import CallsContext, keep_record, opened_inbox
from penstock.processor.called_functions import CalledFunctions, FunctionCall
from penstock.processor.calls import CallSpec, FailedCall
from penstock.record import Record
from penstock.state.api import StoreBuilder


class AnsweredCall(NamedTuple):
    """The value of a record on its way to the processor that made the call.

    Args:
        function: the name of the function.
        argument: its argument.
        answer: its result.
    """

    function: str
    argument: Any
    answer: Any


class AnswerOfCall(Processor):
    """Forwards a call together with its answer.

    Args:
        answer: returns the answer.
    """

    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer

    def process(self, record: Record[Any, FunctionCall]) -> None:
        """Forward the call of `record` with its answer."""
        function, argument = record.value
        self.context.forward(record.with_value(AnsweredCall(function, argument, self._answer())))


class CallingProcessor(Processor):
    """Runs a user's processor, which may call functions and receives their answers.

    Args:
        inner: the processor.
        spec: its calls.
        functions: the functions that it may call.
    """

    def __init__(self, inner: Processor, spec: CallSpec, functions: CalledFunctions) -> None:
        self.inner = inner
        self._spec = spec
        self._functions = functions

    def init(self, context: ProcessorContext) -> None:
        """Open the inbox, and prepare the processor.

        Raises ConfigError if a serde is missing, and StreamsError if a call of an unknown function waits.
        """
        super().init(context)
        self._engine = cast(CallsContext, context)
        self._inbox = opened_inbox(self._engine, self._spec)
        for value in self._inbox.values():
            self._functions.check_entry(value)
        self._engine.set_caller(self._call)
        self.inner.init(context)

    def process(self, record: Record[Any, Any]) -> None:
        """Pass on an input record, an answer, or a failure."""
        match record.value:
            case AnsweredCall(_, argument, answer):
                self.inner.answered(record.with_value(argument), answer)
            case FailedCall(FunctionCall(_, argument), error):
                self.inner.failed(record.with_value(argument), error)
            case _:
                self.inner.process(record)

    def close(self) -> None:
        """Close the processor."""
        self.inner.close()

    def _call(self, function: Callable[..., Any], record: Record[Any, Any]) -> None:
        """Keep a call, whose argument is the value of `record`; raises the errors of `ProcessorContext.call`."""
        call = self._functions.call_of(function, record.value)
        keep_record(self._engine, self._inbox, record.with_value(call))


class CallingSupplier(ProcessorSupplier):
    """Makes processors that call functions.

    Args:
        inner: makes the user's processors.
        spec: their calls.
        functions: the functions that they may call.
        store: the store of waiting calls.
    """

    def __init__(
        self, inner: ProcessorSupplier, spec: CallSpec, functions: CalledFunctions, store: StoreBuilder
    ) -> None:
        self.inner = inner
        self._spec = spec
        self._functions = functions
        self._store = store

    def get(self) -> Processor:
        """Return a new processor."""
        return CallingProcessor(self.inner.get(), self._spec, self._functions)

    def stores(self) -> Sequence[StoreBuilder]:
        """Return the stores of the user's processors, and that of waiting calls."""
        return (*self.inner.stores(), self._store)

    def around(self, inner: ProcessorSupplier) -> CallingSupplier:
        """Return this supplier with other processors of the user."""
        return CallingSupplier(inner, self._spec, self._functions, self._store)
