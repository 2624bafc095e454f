"""Checks of user functions at the creation of a node: their parameters, and the keys among them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.plan.user_lines import at_line
from penstock.processor.column_functions import ColumnFunction, takes_columns_only
from penstock.signatures import misfit, signature_of

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def checked(function: Callable[..., Any], form: str) -> Callable[..., Any]:
    """Return `function` if it is callable in the form `form`, such as `predicate(key, value)`.

    Otherwise raises TypeError that shows the form. A callable without a readable signature passes; a generator function
    raises TypeError.
    """
    _check_no_generator(function, form.partition("(")[0])
    return checked_items(function, form)


def checked_items(function: Callable[..., Any], form: str) -> Callable[..., Any]:
    """Like `checked`, but accepts a generator function, since the result is iterated."""
    _check_plain(function, form.partition("(")[0])
    return checked_form(function, form)


def checked_form(function: Callable[..., Any], form: str) -> Callable[..., Any]:
    """Like `checked`, but also accepts a generator function and a coroutine function."""
    role, _, arguments = form.partition("(")
    if not callable(function):
        raise TypeError(f"Expected a function {form}, got {function!r}{at_line()}.")
    if (why := misfit(function, *filter(None, arguments.rstrip(")").split(", ")))) is not None:
        shown = f"{name_of_function(function)}{signature_of(function)}"
        raise TypeError(f"The {role} cannot be called as {form}: {shown} does not fit ({why}).")
    return function


def takes_key(function: Callable[..., Any], role: str, values: tuple[str, ...] = ("value",)) -> bool:
    """Return whether `function` takes the key before its `values`.

    It does if it requires one positional parameter more than there are values.

    A class, or a callable without a readable signature, takes only the values. Raises TypeError for any other number of
    parameters, showing both forms, and for a generator function.
    """
    _check_no_generator(function, role)
    return items_take_key(function, role, values)


def items_take_key(function: Callable[..., Any], role: str, values: tuple[str, ...] = ("value",)) -> bool:
    """Like `takes_key`, but accepts a generator function, since the result is iterated."""
    _check_plain(function, role)
    return form_takes_key(function, role, values)


def form_takes_key(function: Callable[..., Any], role: str, values: tuple[str, ...] = ("value",)) -> bool:
    """Like `takes_key`, but also accepts a generator function and a coroutine function."""
    what = "the value, or of key and value" if len(values) == 1 else "the two values, or of key and values"
    return _keys_taken(function, role, ("key",), values, what) == 1


def joiner_keys(function: Callable[..., Any]) -> int:
    """Return how many keys the joiner of a stream with a global table takes before the two values.

    0 if it requires two positional parameters, 1 (the key of the record) if three, 2 (also the selected key) if four.
    All else is as in `takes_key`.
    """
    _check_no_generator(function, "joiner")
    _check_plain(function, "joiner")
    what = "the two values, of key and values, or of both keys and values"
    return _keys_taken(function, "joiner", ("key", "mapped_key"), ("value", "table_value"), what)


def _keys_taken(
    function: Callable[..., Any], role: str, keys: tuple[str, ...], values: tuple[str, ...], what: str
) -> int:
    """Return how many of `keys` the function requires before its `values`.

    Raises TypeError for any other number of parameters.

    what: the parameters of all forms in words, for the message.
    """
    written = [f"{role}({', '.join((*keys[:taken], *values))})" for taken in range(len(keys) + 1)]
    forms = f"{', '.join(written[:-1])} or {written[-1]}"
    if not callable(function):
        raise TypeError(f"Expected a function {forms}, got {function!r}{at_line()}.")
    signature = None if isinstance(function, type) else signature_of(function)
    if signature is None:
        return 0
    parameters = signature.parameters.values()
    positional = [p for p in parameters if p.kind in _POSITIONAL]
    required = sum(p.default is p.empty for p in positional)
    accepted = len(positional) >= len(values) or any(p.kind is p.VAR_POSITIONAL for p in parameters)
    keyword_required = any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters)
    if required > len(values) + len(keys) or not accepted or keyword_required:
        raise TypeError(
            f"The {role} must be a function of {what}: write {forms}; {_shown(function, signature)} does not fit."
        )
    return max(0, required - len(values))


def _check_plain(function: object, role: str) -> None:
    if not callable(function):  # which has an error with the forms of the function
        return
    if not isinstance(function, ColumnFunction) and takes_columns_only(function):
        raise TypeError(
            f"The {role} {name_of_function(function)} takes whole columns, but this operator calls it for each record: "
            "write a function of single values. docs/columns.md lists the operators that take columns."
        )
    called = called_code(function)
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        kind = "a coroutine function" if inspect.iscoroutinefunction(called) else "an asynchronous generator function"
        raise TypeError(
            f"The {role} {name_of_function(function)} is {kind}, which operators would call and never await: write "
            "`def`, not `async def`. A stateless operator of a stream awaits it if it is given calls=Calls()."
        )


def _check_no_generator(function: object, role: str) -> None:
    if callable(function) and inspect.isgeneratorfunction(called_code(function)):
        raise TypeError(
            f"The {role} {name_of_function(function)} is a generator function, whose code would not run: operators use "
            "what it returns. Replace `yield` by `return`; flat_map and flat_map_values take generators."
        )


def called_code(function: Callable[..., Any]) -> Any:
    """Return the code that a call of `function` runs: for an object with `__call__`, that method."""
    if isinstance(function, ColumnFunction):
        return called_code(function.function)
    plain = inspect.isroutine(function) or isinstance(function, type | partial)
    return function if plain else type(function).__call__


def name_of_function(function: Callable[..., Any]) -> str:
    """Return the name of `function` for messages: for a partial function, that of the function inside."""
    if isinstance(function, partial):
        return name_of_function(function.func)
    return function.__qualname__ if inspect.isroutine(function) else repr(function)


def _shown(function: Callable[..., Any], signature: inspect.Signature) -> str:
    return f"{name_of_function(function)}{signature}"
