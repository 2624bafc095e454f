"""Comparison of classes with the protocols that they implement."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import Parameter, isfunction, signature
from typing import Any

_OWN = ("__init__", "__subclasshook__")  # of every protocol


def differences(protocol: type, implementation: type) -> list[str]:
    """Return the methods of `protocol` that `implementation` lacks or declares with other parameters."""
    return [
        name
        for name, declared in _methods(protocol)
        if _parameters(getattr(implementation, name, None)) != _parameters(declared)
    ]


def _methods(protocol: type) -> Iterator[tuple[str, Any]]:
    for kind in protocol.__mro__:
        if getattr(kind, "_is_protocol", False):
            yield from ((name, each) for name, each in vars(kind).items() if isfunction(each) and name not in _OWN)


def _parameters(method: Any) -> list[tuple[str, Any, Any]] | None:
    """Return name, kind and default of each parameter, without self and the names of special methods' parameters."""
    if method is None:
        return None
    given: list[Parameter] = list(signature(method).parameters.values())[1:]
    return [("" if each.name.startswith("_") else each.name, each.kind, each.default) for each in given]
