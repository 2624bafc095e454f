"""The calls of an operator's node: what follows from Calls and its function, and whether they fit together."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard, get_args

from penstock.dsl.arguments import inherited
from penstock.dsl.call_batches import batch_size_of, check_batch, record_function
from penstock.dsl.functions import called_code, checked_form, form_takes_key, name_of_function
from penstock.dsl.park import Park
from penstock.plan import nodes
from penstock.plan.names import INBOX_SUFFIX, check_name
from penstock.plan.processor_calls import ProcessorCalls, no_calls_error
from penstock.processor.calls import CallFailure, CallOrder, CallRules, CallSpec, Reconcile
from penstock.processor.column_functions import ColumnFunction, has_mark, result_annotation, takes_columns_only
from penstock.serdes import Serde
from penstock.serdes.answers import answer_serde_of
from penstock.serdes.sequenced_key import SequencedKeySerde
from penstock.serdes.waiting_value import WaitingValueSerde
from penstock.signatures import signature_of
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import KeyValueBytesStoreSupplier
from penstock_broker.common.durations import milliseconds

if TYPE_CHECKING:
    from penstock.dsl.calls import Calls, Retry

_GIVEN_BY_NAME = ("client", "call")
"""The keyword-only parameters that a called function may have."""

_GIVEN_WITH_COLUMNS = ("client", "calls")
"""The keyword-only parameters that a called function on columns may have."""


def is_calls(given: object) -> TypeGuard[Calls]:
    """Return whether an object is a Calls, which a user may have replaced by something else."""
    return isinstance(given, ProcessorCalls)


def types_of(retry: Retry) -> tuple[type[Exception], ...]:
    """Return the types of the errors that are tried again."""
    return retry.on if isinstance(retry.on, tuple) else (retry.on,)


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
        retry_on=types_of(calls.retry),
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
    if is_calls(calls):
        check_batch(function, role, calls.batch_size, milliseconds(calls.batch_wait, "batch_wait"))


def _check_kind(calls: object, function: Callable[..., Any], role: str) -> None:
    """Raise TypeError unless `calls` is a Calls for this kind of function."""
    name = name_of_function(function)
    if not is_calls(calls):
        raise no_calls_error(name, calls)
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
