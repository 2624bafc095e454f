"""A call of an operator's function for a waiting record, and the answer that follows from its end.

Each way to make calls uses it, so that all of them pass the same arguments and write the same answers.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Final

from penstock.errors import SerializationError, StreamsError
from penstock.processor.call_batch import Attempted, BatchCall, MadeCall, RecordCall
from penstock.processor.calls import NOT_CALLED, Answer, CallContext, CallSpec, NotCalled
from penstock.processor.waiting_records import WaitingRecord
from penstock.processor.waiting_serdes import RecordSerdes, record_serdes
from penstock.serdes import Serde
from penstock.serdes.sequenced_key import SequencedKeySerde
from penstock.serdes.waiting_value import WaitingValueSerde

_LONGEST_FAILURE: Final = 1_000
_LONGEST_DETAILS: Final = 10_000
_RECONCILE_FAILED: Final = "reconcile failed"


class ClientOpenError(StreamsError):
    """The client of an operator cannot be opened; its cause is the last error of `open`.

    What to do: Correct the cause that the message names, such as an address or a password. The records wait, and the
    next start opens the client again.
    """


class CallFunction:
    """The function of one operator, for its waiting records.

    Args:
        spec: the operator.
        topic: the full name of its answers topic.
        serdes: of its waiting records.
    """

    def __init__(self, spec: CallSpec, topic: str, serdes: RecordSerdes) -> None:
        self._spec = spec
        self._topic = topic
        self._serdes = serdes

    def made(self, attempted: Sequence[Attempted], client: Any) -> MadeCall:
        """Return the call of an attempt with its arguments.

        Args:
            attempted: its records: several only for a function on columns.
            client: the object that `open` made, None without it.

        Raises:
            StreamsError: a serde cannot read its part of the only record.
        """
        if self._spec.columns is not None:
            return BatchCall(self._spec, self._spec.columns, self._serdes, attempted, client)
        ((waiting, attempt),) = attempted
        return RecordCall(self.bound(waiting, attempt, client))

    def bound(self, waiting: WaitingRecord, attempt: int, client: Any) -> Callable[[], Any]:
        """Return the function with the arguments of an attempt.

        Args:
            waiting: the record.
            attempt: the number of the attempt, from 1.
            client: the object that `open` made, None without it.

        Raises:
            StreamsError: a serde cannot read its part of the record.
        """
        return self._bound(self._spec.function, self._spec.takes, waiting, attempt, client)

    def reconciling(self, attempted: Sequence[Attempted], client: Any) -> Callable[[], Any] | None:
        """Return the function to ask before an attempt, with the same arguments; None if the call is made at once.

        It returns the answer of the call, or NOT_CALLED. A record that needs it has an attempt of its own. Args and
        Raises as in `made`.
        """
        reconcile, (waiting, attempt) = self._spec.reconcile, attempted[0]
        if reconcile is None or not waiting.may_have_been_called(attempt - 1):
            return None
        asking = self._bound(reconcile.function, reconcile.takes, waiting, attempt, client)
        return partial(self._asked if self._spec.rules.threads else self._awaited, asking)

    def _asked(self, asking: Callable[[], Any]) -> Any:
        """Return what a blocking `reconcile` found."""
        with _reconciling():
            return self._found(asking())

    async def _awaited(self, asking: Callable[[], Any]) -> Any:
        """Return what a coroutine function for `reconcile` found."""
        with _reconciling():
            return self._found(await asking())

    def _found(self, found: Any) -> Any:
        """Return what `reconcile` found; raises TypeError for the type of NOT_CALLED and for a forgotten result."""
        if found is NotCalled:
            raise TypeError(
                f"The reconcile of {self._spec.node} returned the class NotCalled, which is for annotations: return "
                "NOT_CALLED."
            )
        if found is None and self._spec.reconcile is not None and not self._spec.reconcile.may_be_none:
            raise TypeError(
                f"The reconcile of {self._spec.node} returned None: return NOT_CALLED if the service knows no call, or "
                "annotate the result with None if that is an answer."
            )
        return found

    def _bound(
        self, function: Callable[..., Any], takes: frozenset[str], waiting: WaitingRecord, attempt: int, client: Any
    ) -> Callable[[], Any]:
        record = self._serdes.record_of(waiting)
        arguments = (record.key, record.value) if self._spec.with_key else (record.value,)
        keywords: dict[str, Any] = {"client": client} if "client" in takes else {}
        if "call" in takes:
            keywords["call"] = CallContext.of(waiting, record.key, attempt)
        return partial(function, *arguments, **keywords)

    def answer(self, sequence: int, waiting: WaitingRecord, attempts: int, result: Any) -> Answer:
        """Return the answer with a result; one that cannot be written is a failure, and paid only once."""
        if inspect.isawaitable(result):
            return self.failure(sequence, waiting, attempts, self._not_awaited(result))
        if result is NOT_CALLED or result is NotCalled:
            return self.failure(sequence, waiting, attempts, self._without_result())
        try:
            serde = self._spec.answer_serde_of(waiting)
            data = None if result is None else serde.serialize(self._topic, result)
        except Exception as error:
            raised = SerializationError(
                f"The result {result!r:.100} of {self._spec.node} cannot be an answer: {_sentence(str(error))} "
                "Annotate the result of the function, or name its serde in Calls, with answer_serde=."
            )
            raised.__cause__ = error
            return self.failure(sequence, waiting, attempts, raised)
        return Answer(sequence, waiting.digest(), attempts, data)

    def _without_result(self) -> TypeError:
        """Return the error of a called function that returned NOT_CALLED, or its type."""
        return TypeError(
            f"The function of {self._spec.node} returned NOT_CALLED, which only the reconcile of Calls returns: return "
            "the answer of the service, or raise an error if it has none."
        )

    def _not_awaited(self, result: Any) -> TypeError:
        """Return the error of a blocking function that returned a coroutine."""
        if inspect.iscoroutine(result):
            result.close()  # without a warning that it was never awaited
        return TypeError(
            f"The function of {self._spec.node} returned a {type(result).__name__}, which is not awaited: write "
            "`async def`, and Calls without threads=, or give the coroutine function itself in place of a lambda."
        )

    def failure(self, sequence: int, waiting: WaitingRecord, attempts: int, error: BaseException) -> Answer:
        """Return the answer of a call whose last attempt failed."""
        where = f"{_RECONCILE_FAILED}: " if _RECONCILE_FAILED in getattr(error, "__notes__", ()) else ""
        text = _short(f"{where}{type(error).__name__}: {error}", _LONGEST_FAILURE)
        details = _short("".join(traceback.format_exception(error)), _LONGEST_DETAILS)
        return Answer(sequence, waiting.digest(), attempts, None, text, details)

    def tries_again(self, error: BaseException, attempts: int) -> bool:
        """Return whether another attempt follows the error of the last one of `attempts`."""
        return tries_again(self._spec, error, attempts)


def client_open_error(spec: CallSpec, attempts: int, error: BaseException) -> ClientOpenError:
    """Return the error for an operator whose client could not be opened in `attempts` attempts."""
    factory = getattr(spec.open, "__qualname__", None) or repr(spec.open)
    last = _sentence(f"{type(error).__name__}: {error}")
    return ClientOpenError(
        f"The client of {spec.node} cannot be opened: {factory}, the open of its Calls, failed {attempts} "
        f"time{'s' if attempts > 1 else ''}, at last with {last} Correct it, or give Calls a retry with more attempts, "
        "which also limits those of open. The records still wait, and no attempt of them is used up."
    )


def tries_again(spec: CallSpec, error: BaseException, attempts: int) -> bool:
    """Return whether another attempt follows the error of the last one of `attempts`, of a call or of `open`."""
    return attempts < spec.rules.attempts and isinstance(error, spec.rules.retry_on)


def call_function(
    spec: CallSpec, topic: str, application_id: str, key_serde: Serde | None, value_serde: Serde | None
) -> CallFunction:
    """Return the function of an operator.

    Args:
        spec: the operator.
        topic: the full name of its answers topic.
        application_id: of the application.
        key_serde: the default serde of keys.
        value_serde: the default serde of values.

    Raises:
        ConfigError: a serde of its records is missing.
    """
    keys = SequencedKeySerde(spec.key_serde).with_defaults(key_serde, value_serde)
    values = WaitingValueSerde(spec.value_serde).with_defaults(key_serde, value_serde)
    return CallFunction(spec, topic, record_serdes("Calls", spec.store, application_id, keys, values))


def checked_client(node: str, made: object) -> AbstractAsyncContextManager[Any] | AbstractContextManager[Any]:
    """Return what `open` of an operator made; raises TypeError if it is no context manager."""
    if isinstance(made, AbstractAsyncContextManager | AbstractContextManager):
        return made
    raise TypeError(f"open of {node} returned {made!r:.100}: expected a context manager, such as httpx.AsyncClient().")


@contextmanager
def _reconciling() -> Iterator[None]:
    """Mark an error as one of `reconcile`, whose type decides whether it is tried again."""
    try:
        yield
    except Exception as error:
        if _RECONCILE_FAILED not in getattr(error, "__notes__", ()):
            error.add_note(_RECONCILE_FAILED)
        raise


def _sentence(text: str) -> str:
    """Return a text with a full stop, unless it ends with a mark of its own."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _short(text: str, length: int) -> str:
    """Return the beginning of a text, as UTF-8 can encode it."""
    return text[:length].encode(errors="backslashreplace").decode()
