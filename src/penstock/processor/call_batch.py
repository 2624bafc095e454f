"""One attempt for the waiting records of an operator with calls, and its outcome for each of them.

A function on columns takes several records in one attempt, any other function takes one.

Rules:
- A record that its serde cannot read fails, and the others are called without it.
- A function on columns returns a column with one answer for each record, in their order. An exception among the
  answers fails its record. A column of another length fails all records.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.errors import StreamsError
from penstock.processor.calls import CallContext, CallSpec
from penstock.processor.column_functions import ColumnFunction
from penstock.processor.columns import ColumnError
from penstock.processor.waiting_records import WaitingRecord
from penstock.processor.waiting_serdes import RecordSerdes
from penstock.record import Record


class Attempted(NamedTuple):
    """A waiting record, and the number of its attempt from 1."""

    waiting: WaitingRecord
    attempt: int


class CallOutcome(NamedTuple):
    """The end of an attempt for one record: its result, or its error."""

    result: Any = None
    error: Exception | None = None


class MadeCall(Protocol):
    """A call with its arguments."""

    def __call__(self) -> Any:
        """Call the function; returns its result, or its coroutine."""
        ...

    def outcomes(self, returned: Any) -> list[CallOutcome]:
        """Return the outcome of each record; raises ColumnError if the function has not returned one for each."""
        ...


class RecordCall:
    """A call for one record (implements MadeCall).

    Args:
        function: the function with its arguments.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    def __call__(self) -> Any:
        """Call the function; returns its result, or its coroutine."""
        return self._function()

    def outcomes(self, returned: Any) -> list[CallOutcome]:
        """Return the result as the outcome of the record."""
        return [CallOutcome(returned)]


class BatchCall:
    """A call of a function on columns for several records (implements MadeCall).

    Args:
        spec: the operator.
        columns: its function.
        serdes: of its waiting records.
        attempted: the records.
        client: the object that `open` made, None without it.

    Raises:
        StreamsError: no record can be read by its serde.
    """

    def __init__(
        self,
        spec: CallSpec,
        columns: ColumnFunction,
        serdes: RecordSerdes,
        attempted: Sequence[Attempted],
        client: Any,
    ) -> None:
        self._spec = spec
        self._columns = columns
        self._client = client
        self._unreadable: dict[int, StreamsError] = {}
        self._records: list[Record[Any, Any]] = []
        self._contexts: list[CallContext] = []
        for place, (waiting, attempt) in enumerate(attempted):
            try:
                record = serdes.record_of(waiting)
            except StreamsError as error:
                self._unreadable[place] = error
                continue
            self._records.append(record)
            self._contexts.append(CallContext.of(waiting, record.key, attempt))
        if not self._records:
            raise self._unreadable[0]

    def __call__(self) -> Any:
        """Call the function with columns; returns its result, or its coroutine."""
        values = [record.value for record in self._records]
        rows = [[record.key for record in self._records], values] if self._spec.with_key else [values]
        keywords: dict[str, Any] = {"client": self._client} if "client" in self._spec.takes else {}
        if "calls" in self._spec.takes:
            keywords["calls"] = self._contexts
        return self._columns.function(*self._columns.arguments(rows), **keywords)

    def outcomes(self, returned: Any) -> list[CallOutcome]:
        """Return the outcome of each record; raises ColumnError if the function has not returned one for each."""
        if inspect.iscoroutine(returned):
            returned.close()  # without a warning that it was never awaited
        try:
            results = iter(self._columns.results(returned, len(self._records)))
        except ColumnError as error:
            raise ColumnError(f"The calls of {self._spec.node} have no answers: {error}") from error
        outcomes = []
        for place in range(len(self._records) + len(self._unreadable)):
            result = self._unreadable[place] if place in self._unreadable else next(results)
            is_failure = isinstance(result, Exception)
            outcomes.append(CallOutcome(error=result) if is_failure else CallOutcome(result))
        return outcomes
