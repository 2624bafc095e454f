"""Calls: the function of an operator is called outside of its task, while other records go on.

Immutable: `with_...` returns a changed copy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal, get_args

from penstock.dsl.arguments import check_number, check_serdes, inherited
from penstock.dsl.call_batches import batch_size_of, check_batch, record_function
from penstock.dsl.functions import called_code, checked_form, form_takes_key, name_of_function
from penstock.dsl.park import Park
from penstock.plan import nodes
from penstock.plan.internal_topics import check_topic_name
from penstock.plan.names import INBOX_SUFFIX, check_name
from penstock.processor.backoff import Backoff
from penstock.processor.calls import CallFailure, CallOrder, CallRules, CallSpec, ClientFactory, Reconcile
from penstock.processor.column_functions import ColumnFunction, has_mark, result_annotation, takes_columns_only
from penstock.serdes import Serde
from penstock.serdes.answers import answer_serde_of
from penstock.serdes.sequenced_key import SequencedKeySerde
from penstock.serdes.waiting_value import WaitingValueSerde
from penstock.signatures import signature_of
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import KeyValueBytesStoreSupplier
from penstock_broker.common.durations import Duration, milliseconds

_GIVEN_BY_NAME = ("client", "call")
"""The keyword-only parameters that a called function may have."""

_GIVEN_WITH_COLUMNS = ("client", "calls")
"""The keyword-only parameters that a called function on columns may have."""


_SMALLEST_NUMBER_MS = 100
"""The smallest timeout as a bare number: a smaller one was probably meant in seconds."""


_BACKOFF = Backoff(100, limit=10_000)
"""The waits of a Retry that names no others."""


@dataclass(frozen=True, kw_only=True)
class Retry:
    """The attempts of a call, for `Calls` (no Kafka class).

    A record that waits for its next attempt takes no place of the capacity. In the order of keys, later records of its
    key wait with it.

    Args:
        attempts: maximum number of attempts for a record, including the first.
        backoff: the waits between the attempts.
        on: the type of the errors that are tried again, or a tuple of types.

    Raises:
        TypeError: an argument has another type.
        ValueError: `attempts` is below 1.
    """

    attempts: int
    backoff: Backoff = _BACKOFF
    on: type[Exception] | tuple[type[Exception], ...] = Exception

    def __post_init__(self) -> None:
        check_number("attempts of Retry", self.attempts)
        if not isinstance(self.backoff, Backoff):
            raise TypeError(
                f"Expected a Backoff for Retry, got {self.backoff!r}: write Backoff(timedelta(seconds=1)), for example."
            )
        kinds: tuple[object, ...] = _types_of(self)
        for each in kinds:
            if not (isinstance(each, type) and issubclass(each, Exception)):
                raise TypeError(f"Expected types of errors for on of Retry, got {each!r}.")


def _types_of(retry: Retry) -> tuple[type[Exception], ...]:
    """Return the types of the errors that are tried again."""
    return retry.on if isinstance(retry.on, tuple) else (retry.on,)


@dataclass(frozen=True, kw_only=True)
class Calls:
    """Calls the function of an operator outside of its task, for `calls` (no Kafka class).

    The function is a coroutine function (`async def`), or a blocking function with `threads`. Each record waits in a
    store of the operator until the answer of its call comes; meanwhile the task takes further records, and commits. The
    results have the timestamp, headers and context of the record. With exactly-once, each answer is used once, also
    after a crash. A call is made again if the process ends before its answer is in the answers topic, unless
    `reconcile` finds that answer at the service.

    The function may have two keyword-only parameters: `client`, the object that `open` made, and `call`, a CallContext
    with the origin of the record, the number of the attempt and a key for idempotent services.

    A function on columns, with the mark of `vectorized` or `model`, takes several waiting records in one attempt, and
    returns an answer for each. An exception among the answers fails its record. If an attempt fails, each of its
    records has failed once; the last of several attempts of a record is made for it alone. It may have the keyword-only
    parameter `calls`, a list of CallContext, instead of `call`.

    Args:
        capacity: maximum number of attempts in flight, for each process.
        timeout: maximum duration of an attempt, as a timedelta or a number of ms from 100 on; after it, the attempt is
            cancelled and has failed.
        retry: the attempts.
        rate: maximum number of attempts started per second, for each process; None for no limit.
        order: "key": a key has one call at a time, in order of its records. "partition": calls run side by side, and
            the results have the order of the records. "unordered": the results have the order of the answers.
        threads: number of threads that run a blocking function; 0 for a coroutine function.
        open: a function that returns a context manager, asynchronous or not. Its object is the `client` of all calls of
            a process, which leaves it at the end. It is tried as often as `retry` says, at the cost of no record's
            attempts; then its error ends the program.
        on_failure: "raise": a record whose last attempt failed goes to `processing.exception.handler`, with a
            CallFailedError. "skip": it is counted as dropped.
        then: an existing topic for the records whose last attempt failed, as dead letters, instead of `on_failure`.
        max_records: number of waiting records of a task from which on it reads only answers.
        max_bytes: size of the waiting records of a task in bytes from which on it reads only answers.
        batch_size: maximum number of records in an attempt of a function on columns; None for 64, or for that of the
            model.
        batch_wait: maximum time (ms, or a timedelta), from its arrival, that a record waits for others to fill an
            attempt.
        key_serde: of the records' keys in the store; None for the stream's.
        value_serde: of the records' values in the store; None for the stream's.
        answer_serde: of the results; None for MessagePack of the annotated return type.
        store_name: the name of the store; None for that of the operator with the suffix "-calls".
        reconcile: a function of one record with the parameters of the called one, a coroutine function or a blocking
            one as that is. It asks the service for the answer of a call that may have been made already, and returns
            it, or NOT_CALLED, after which the call is made. It is called before each attempt but the first one of a
            record that has just arrived, and such an attempt is for one record; its error fails the attempt, and
            `timeout` limits it like the call. None: calls are made again.

    Raises:
        TypeError: an argument has another type.
        ValueError: a number is out of range, a name is unknown, or both `on_failure` and `then` are given.
        TopologyError: a name is illegal.
    """

    capacity: int = 100
    timeout: Duration = timedelta(seconds=30)
    retry: Retry = Retry(attempts=1)
    rate: float | None = None
    order: Literal["key", "partition", "unordered"] = "key"
    threads: int = 0
    open: ClientFactory | None = None
    on_failure: Literal["raise", "skip"] = "raise"
    then: str | None = None
    max_records: int = 10_000
    max_bytes: int = 67_108_864
    batch_size: int | None = None
    batch_wait: Duration = 0
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    answer_serde: Serde | None = None
    store_name: str | None = None
    reconcile: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        check_serdes(self, "key_serde", "value_serde", "answer_serde", made_by="")
        for name in ("capacity", "max_records", "max_bytes"):
            check_number(f"{name} of Calls", getattr(self, name))
        check_number("threads of Calls", self.threads, smallest=0)
        self._check_timeout()
        if self.batch_size is not None:
            check_number("batch_size of Calls", self.batch_size)
        if milliseconds(self.batch_wait, "the batch_wait of Calls") < 0:
            raise ValueError(f"The batch_wait of Calls must not be negative, got {self.batch_wait!r}.")
        if not isinstance(self.retry, Retry):
            raise TypeError(f"Expected a Retry for Calls, got {self.retry!r}: write Retry(attempts=5), for example.")
        if self.rate is not None and type(self.rate) not in (int, float):
            raise TypeError(f"Expected the rate of Calls as a number per second, got {self.rate!r}.")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise ValueError(f"The rate of Calls must be larger than 0, got {self.rate!r}.")
        if self.open is not None and not callable(self.open):
            raise TypeError(
                f"Expected a function for open of Calls, which returns a context manager, got {self.open!r}."
            )
        _check_choice("order", self.order, [each.value for each in CallOrder])
        _check_choice("on_failure", self.on_failure, [CallFailure.RAISE.value, CallFailure.SKIP.value])
        self._check_names()

    def _check_timeout(self) -> None:
        if milliseconds(self.timeout, "the timeout of Calls") < 1:
            raise ValueError(f"The timeout of Calls must be at least 1 ms, got {self.timeout!r}.")
        if not isinstance(self.timeout, timedelta) and self.timeout < _SMALLEST_NUMBER_MS:
            raise ValueError(
                f"The timeout of Calls is a number of ms, so {self.timeout!r} is {self.timeout!r} ms: write "
                f"timedelta(seconds={self.timeout!r}), or timedelta(milliseconds={self.timeout!r}) if it is meant."
            )

    def _check_names(self) -> None:
        if self.then is not None:
            if not isinstance(self.then, str):
                raise TypeError(f"Expected the name of a topic for then of Calls, got {self.then!r}.")
            if self.on_failure != CallFailure.RAISE.value:
                raise ValueError("Give Calls either on_failure or then: a record is skipped, or a dead letter.")
            check_topic_name(self.then)
        if self.store_name is not None:
            check_name(self.store_name)

    def with_key_serde(self, key_serde: Serde | None) -> Calls:
        """Return a copy with this key serde."""
        return replace(self, key_serde=key_serde)

    def with_value_serde(self, value_serde: Serde | None) -> Calls:
        """Return a copy with this value serde."""
        return replace(self, value_serde=value_serde)

    def with_answer_serde(self, answer_serde: Serde | None) -> Calls:
        """Return a copy with this serde of the results."""
        return replace(self, answer_serde=answer_serde)

    def with_store_name(self, store_name: str) -> Calls:
        """Return a copy with the name of the store; raises TopologyError if it is illegal."""
        return replace(self, store_name=store_name)


def failure_of(calls: Calls) -> CallFailure:
    """Return what becomes of a record whose last attempt failed."""
    return CallFailure(calls.on_failure) if calls.then is None else CallFailure.BURY


def rules_of(calls: Calls, function: Callable[..., Any]) -> CallRules:
    """Return the limits of `calls` for a function."""
    return CallRules(
        capacity=calls.capacity,
        timeout_ms=milliseconds(calls.timeout, "timeout"),
        attempts=calls.retry.attempts,
        backoff=calls.retry.backoff,
        retry_on=_types_of(calls.retry),
        rate=calls.rate,
        order=CallOrder(calls.order),
        threads=calls.threads,
        max_records=calls.max_records,
        max_bytes=calls.max_bytes,
        batch_size=batch_size_of(function, calls.batch_size),
        batch_wait_ms=milliseconds(calls.batch_wait, "batch_wait"),
    )


def checked_call(calls: object, function: Callable[..., Any], form: str) -> Callable[..., Any]:
    """Return `function` if `calls` can call it in the form `form`, such as `predicate(key, value)`.

    Raises TypeError for another function, and if `calls` is no Calls.
    """
    role = form.partition("(")[0]
    _check_batch(calls, function, role)
    _check_form(calls, function, form)
    return function


def _check_form(calls: object, function: Callable[..., Any], form: str) -> None:
    role = form.partition("(")[0]
    _check_keywords(function, role)
    checked_form(_without_given(function), form)
    _check_kind(calls, function, role)


def call_takes_key(calls: object, function: Callable[..., Any], role: str) -> bool:
    """Return whether `function` takes the key before the value; raises TypeError as `checked_call` does."""
    _check_batch(calls, function, role)
    _check_keywords(function, role)
    takes = form_takes_key(_without_given(function), role)
    _check_kind(calls, function, role)
    return takes


def calling(
    given: Calls,
    operator: str,
    function: Callable[..., Any],
    serdes: tuple[Serde | None, Serde | None],
    answers: Serde | None = None,
    *,
    with_key: bool = True,
) -> nodes.Calling:
    """Return the calls of an operator's node.

    Args:
        given: the calls as the user gave them.
        operator: the name of the operator.
        function: its function, already checked.
        serdes: of the keys and values of its stream.
        answers: the serde of the results without one of the user; None for that of the annotation.
        with_key: whether the function takes the key.

    Raises:
        TypeError: one of the serdes of `given` does not fit the stream, or `reconcile` does not fit the function.
        TopologyError: the name of the store would be illegal.
    """
    options = inherited(operator, given, *serdes)
    store = options.store_name or check_name(operator + INBOX_SUFFIX)
    columns = function if isinstance(function, ColumnFunction) else None
    return nodes.Calling(
        store=StoreBuilder(
            KeyValueBytesStoreSupplier(store, in_memory=None),
            SequencedKeySerde(options.key_serde),
            WaitingValueSerde(options.value_serde),
        ),
        spec=CallSpec(
            node=operator,
            store=store,
            function=function if columns is None else columns.function,
            with_key=with_key,
            takes=given_parameters(function),
            open=options.open,
            rules=rules_of(options, function),
            on_failure=failure_of(options),
            key_serde=options.key_serde,
            value_serde=options.value_serde,
            answer_serde=options.answer_serde or answers or answer_serde_of(record_function(function)),
            reconcile=_reconcile_of(given, with_key),
            columns=columns,
        ),
        dead_letters=options.then,
    )


def _reconcile_of(calls: Calls, with_key: bool) -> Reconcile | None:
    """Return the function that asks for earlier answers; raises TypeError if it does not fit."""
    asking = calls.reconcile
    if asking is None:
        return None
    if has_mark(asking) or takes_columns_only(asking):
        raise TypeError(
            f"The reconcile {name_of_function(asking)} takes columns, but Calls asks for one record at a time: write a "
            "function of single values."
        )
    _check_form(calls, asking, f"reconcile({'key, value' if with_key else 'value'})")
    annotation, none = result_annotation(asking), type(None)
    return Reconcile(asking, given_parameters(asking), annotation is none or none in get_args(annotation))


def check_no_park(operator: str, on_error: Park | None) -> None:
    """Raise TypeError if an operator with calls also parks records."""
    if on_error is not None:
        raise TypeError(
            f"{operator} has both calls and on_error: give Calls a retry with a long backoff, which keeps the records "
            "of a key in order, and then= for dead letters."
        )


def _check_batch(calls: object, function: Callable[..., Any], role: str) -> None:
    """Raise TypeError if `calls` has options for batches that do not fit `function`."""
    if isinstance(calls, Calls):
        check_batch(function, role, calls.batch_size, milliseconds(calls.batch_wait, "batch_wait"))


def _check_kind(calls: object, function: Callable[..., Any], role: str) -> None:
    """Raise TypeError unless `calls` is a Calls for this kind of function."""
    name = name_of_function(function)
    if not isinstance(calls, Calls):
        raise TypeError(f"Expected Calls as calls of {name}, got {calls!r}: write Calls(capacity=100), for example.")
    code = called_code(function)
    _check_given(calls, function, role)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise TypeError(
            f"The {role} {name} is a generator function; a function with Calls returns a list of its items."
        )
    is_coroutine = inspect.iscoroutinefunction(code)
    if is_coroutine and calls.threads:
        raise TypeError(
            f"The {role} {name} is a coroutine function, which needs no threads: write Calls without threads=."
        )
    if not is_coroutine and not calls.threads:
        raise TypeError(
            f"The {role} {name} is no coroutine function: write `async def`, or give it threads, such as "
            "Calls(threads=8), if it blocks. In place of a lambda that calls a coroutine function, give that function."
        )


def _check_given(calls: Calls, function: Callable[..., Any], role: str) -> None:
    """Raise TypeError if a call would give another argument, or no client, to a parameter `client` or `call`."""
    name, signature = name_of_function(function), signature_of(function)
    parameters = [] if signature is None else [*signature.parameters.values()]
    given = _given_names(function)
    for place, each in enumerate(parameters):
        if place and each.name in given and each.kind is each.POSITIONAL_OR_KEYWORD:
            raise TypeError(
                f"The {role} {name}{signature} takes {each.name} by position, where it gets a part of the record: "
                f"write `*, {each.name}`, or give the parameter another name."
            )
        is_required = each.kind is each.KEYWORD_ONLY and each.default is each.empty
        if each.name == "client" and is_required and calls.open is None:
            raise TypeError(
                f"The {role} {name}{signature} takes a client, but Calls has no open: write Calls(open=...), with a "
                "function that returns a context manager, such as httpx.AsyncClient."
            )


def _check_keywords(function: object, role: str) -> None:
    """Raise TypeError if a function requires a keyword-only parameter that no call gives."""
    signature = signature_of(function) if callable(function) else None
    given = _given_names(function)
    for each in () if signature is None else signature.parameters.values():
        required = each.kind is each.KEYWORD_ONLY and each.default is each.empty
        if callable(function) and required and each.name not in given:
            meant = "".join(f" Did you mean {near}?" for near in get_close_matches(each.name, given, 1))
            raise TypeError(
                f"The {role} {name_of_function(function)}{signature} takes {each.name} by keyword, which no call "
                f"gives: client is the object that open made, and {given[-1]} the context. Give another parameter a "
                f"default, or bind it with functools.partial.{meant}"
            )


def _given_names(function: object) -> tuple[str, ...]:
    return _GIVEN_WITH_COLUMNS if isinstance(function, ColumnFunction) else _GIVEN_BY_NAME


def given_parameters(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of the keyword-only parameters that each call gives."""
    signature = signature_of(function)
    parameters = {} if signature is None else signature.parameters
    return frozenset(
        name
        for name in _given_names(function)
        if name in parameters and parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    )


def _without_given(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` without the parameters that each call gives."""
    given = given_parameters(function)
    return partial(function, **dict.fromkeys(given)) if given else function


def _check_choice(what: str, given: object, known: list[str]) -> None:
    if given not in known:
        raise ValueError(f"Expected {what} of Calls as one of {', '.join(map(repr, known))}, got {given!r}.")
