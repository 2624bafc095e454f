"""Methods of a view that forward to a store, declared once by its protocol."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Method = Callable[Concatenate[Any, P], R]


def method_that(call: Callable[..., Any], declared: Method[P, R]) -> Method[P, R]:
    """Return a method with the signature and docstring of `declared` that returns `call(view, read)`.

    read: a function of a store that calls the store's method of the same name with the caller's arguments.
    """
    name = declared.__name__

    @wraps(declared)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return call(self, lambda store: getattr(store, name)(*args, **kwargs))

    return method


def method_of(attribute: str, declared: Method[P, R]) -> Method[P, R]:
    """Return a method with the signature and docstring of `declared`, forwarded to `attribute`.

    The view's `attribute` is the store. For methods with an unchanged result: it costs a third of a `method_that`.
    """
    name = declared.__name__

    @wraps(declared)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return getattr(getattr(self, attribute), name)(*args, **kwargs)

    return method


def needs_key(method: Method[P, R]) -> Method[P, R]:
    """Return a method like `method` that rejects None as its first argument, the key."""
    key = list(signature(method).parameters)[1]

    @wraps(method)
    def checked(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if args or key in kwargs:  # without a key, the store's own method raises Python's error
            self._check_key(args[0] if args else kwargs[key])
        return method(self, *args, **kwargs)

    return checked
