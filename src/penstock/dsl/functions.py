"""Checks of user functions at the creation of a node: their parameters, and whether they include the key."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

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
    role, _, arguments = form.partition("(")
    if not callable(function):
        raise TypeError(f"Expected a function {form}, got {function!r}.")
    _check_plain(function, role)
    if (why := misfit(function, *filter(None, arguments.rstrip(")").split(", ")))) is not None:
        raise TypeError(
            f"The {role} cannot be called as {form}: {_name(function)}{signature_of(function)} does not fit ({why})."
        )
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
    listed = ", ".join(values)
    forms = f"{role}({listed}) or {role}(key, {listed})"
    if not callable(function):
        raise TypeError(f"Expected a function {forms}, got {function!r}.")
    _check_plain(function, role)
    signature = None if isinstance(function, type) else signature_of(function)
    if signature is None:
        return False
    parameters = signature.parameters.values()
    positional = [p for p in parameters if p.kind in _POSITIONAL]
    required = sum(p.default is p.empty for p in positional)
    accepted = len(positional) >= len(values) or any(p.kind is p.VAR_POSITIONAL for p in parameters)
    keyword_required = any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters)
    if required > len(values) + 1 or not accepted or keyword_required:
        what = "the value, or of key and value" if len(values) == 1 else "the two values, or of key and values"
        raise TypeError(
            f"The {role} must be a function of {what}: write {forms}; {_shown(function, signature)} is neither."
        )
    return required == len(values) + 1


def _check_plain(function: Callable[..., Any], role: str) -> None:
    called = _called(function)
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        kind = "a coroutine function" if inspect.iscoroutinefunction(called) else "an asynchronous generator function"
        raise TypeError(
            f"The {role} {_name(function)} is {kind}, which operators would call and never await: write `def`, not "
            "`async def`."
        )


def _check_no_generator(function: Callable[..., Any], role: str) -> None:
    if inspect.isgeneratorfunction(_called(function)):
        raise TypeError(
            f"The {role} {_name(function)} is a generator function, whose code would not run: operators use what it "
            "returns. Replace `yield` by `return`; flat_map and flat_map_values take generators."
        )


def _called(function: Callable[..., Any]) -> Any:
    """Return the code that a call of `function` runs: for an object with `__call__`, that method."""
    plain = inspect.isroutine(function) or isinstance(function, type | partial)
    return function if plain else type(function).__call__


def _name(function: Callable[..., Any]) -> str:
    return function.__qualname__ if inspect.isroutine(function) else repr(function)


def _shown(function: Callable[..., Any], signature: inspect.Signature) -> str:
    return f"{_name(function)}{signature}"
