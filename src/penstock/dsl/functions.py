"""The checks of user functions when a node is made: that they can be called as they will be, and whether one takes
the key too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from penstock.signatures import signature_of

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def checked(function: Callable[..., Any], form: str) -> Callable[..., Any]:
    """Return `function` if it can be called as `form` shows, such as `predicate(key, value)`; raises TypeError that
    shows the form.

    A callable without a readable signature passes.
    """
    role, _, arguments = form.partition("(")
    if not callable(function):
        raise TypeError(f"Expected a function {form}, got {function!r}.")
    _check_plain(function, role)
    signature = signature_of(function)
    if signature is not None:
        try:
            signature.bind(*filter(None, arguments.rstrip(")").split(", ")))
        except TypeError as error:
            raise TypeError(
                f"The {role} cannot be called as {form}: {_shown(function, signature)} does not fit ({error})."
            ) from None
    return function


def takes_key(function: Callable[..., Any], role: str, values: tuple[str, ...] = ("value",)) -> bool:
    """Return whether `function` takes the key before its `values`, by the number of positional parameters that it
    requires: one more than there are values, or as many.

    A class, or a callable without a readable signature, takes the values alone. Raises TypeError for any other number
    of parameters, showing both forms.
    """
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
    if inspect.iscoroutinefunction(function):
        raise TypeError(
            f"The {role} {function.__qualname__} is a coroutine function, which operators would call and never await: "
            "write `def`, not `async def`."
        )


def _shown(function: Callable[..., Any], signature: inspect.Signature) -> str:
    name = function.__qualname__ if inspect.isroutine(function) else repr(function)
    return f"{name}{signature}"
