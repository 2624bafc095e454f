"""Functions on columns with calls: an attempt takes several waiting records.

Only a function with the mark of `vectorized` or `model` is such a function, because an array may also be the value of
one record.
"""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any, Final

from penstock.dsl.column_functions import on_columns
from penstock.dsl.functions import name_of_function
from penstock.processor.arrays import list_form
from penstock.processor.column_functions import ColumnFunction, has_mark, result_of, takes_columns_only
from penstock.serdes import Serde
from penstock.signatures import signature_of

DEFAULT_BATCH_SIZE: Final = 64
"""Maximum number of records in an attempt, if neither Calls nor a model names another."""

_AWAITABLES: Final = (collections.abc.Awaitable, collections.abc.Coroutine)


def on_waiting_columns(
    function: Callable[..., Any], key_serde: Serde | None, value_serde: Serde | None, make: type[ColumnFunction]
) -> Callable[..., Any]:
    """Return a marked function on columns as calls use it, made by `make`; any other function itself.

    Args:
        function: the user's function.
        key_serde, value_serde: of the stream, for the types of arrays without a value.
        make: the class of the result.
    """
    if not has_mark(function):
        return function
    found = on_columns(function, key_serde, value_serde, make)
    return found.returning(_answers(found.result)) if isinstance(found, ColumnFunction) else found


def _answers(annotation: Any) -> Any:
    """Return the annotation of a column of answers, without the errors that a function may return in their place."""
    if typing.get_origin(annotation) in _AWAITABLES:
        annotation = typing.get_args(annotation)[-1]
    element = list_form(annotation).element
    parts = typing.get_args(element) if typing.get_origin(element) in (typing.Union, types.UnionType) else ()
    kept = tuple(part for part in parts if not (isinstance(part, type) and issubclass(part, Exception)))
    return types.GenericAlias(list, (reduce(or_, kept),)) if 0 < len(kept) < len(parts) else annotation


def record_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose return annotation is that of one answer of `function`, which selects the serde."""
    if not isinstance(function, ColumnFunction):
        return function

    def answer(*record: Any) -> Any: ...

    answer.__annotations__ = {"return": result_of(function)}
    return answer


def check_batch(function: object, role: str, batch_size: int | None, batch_wait_ms: int) -> None:
    """Raise TypeError if a function does not fit the options of its calls for batches.

    Args:
        function: the user's function, as `on_waiting_columns` returns it.
        role: the name of the argument, for the message.
        batch_size: of Calls; None without one.
        batch_wait_ms: of Calls, in ms.
    """
    if not callable(function):  # which has an error with the forms of the function
        return
    if not isinstance(function, ColumnFunction):
        _check_on_records(function, role, has_batches=batch_size is not None or batch_wait_ms > 0)
        return
    name, signature = name_of_function(function), signature_of(function)
    parameters = {} if signature is None else signature.parameters
    if "call" in parameters and parameters["call"].kind is inspect.Parameter.KEYWORD_ONLY:
        raise TypeError(
            f"The {role} {name}{signature} takes columns, so it gets no single call: write `*, calls`, for a list with "
            "the CallContext of each record."
        )
    if function.batch_size is not None and batch_size is not None:
        raise TypeError(
            f"The {role} {name} is a model with a batch_size of {function.batch_size}: write Calls without batch_size."
        )


def _check_on_records(function: Callable[..., Any], role: str, *, has_batches: bool) -> None:
    """Raise TypeError if a function is on columns that calls do not give, or has no batches where Calls names some."""
    name = name_of_function(function)
    if takes_columns_only(function):
        raise TypeError(
            f"The {role} {name} takes whole columns: mark it with @vectorized, and Calls calls it for several waiting "
            "records."
        )
    if has_batches:
        raise TypeError(
            f"The {role} {name} takes one record, but Calls has a batch_size or a batch_wait: mark a function of lists "
            "with @vectorized, or write Calls without them."
        )


def batch_size_of(function: Callable[..., Any], batch_size: int | None) -> int:
    """Return the maximum number of records in an attempt.

    Args:
        function: the user's function, as `on_waiting_columns` returns it.
        batch_size: of Calls; None without one.
    """
    if not isinstance(function, ColumnFunction):
        return 1
    return function.batch_size or batch_size or DEFAULT_BATCH_SIZE
