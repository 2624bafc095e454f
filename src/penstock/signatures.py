"""Signatures of users' functions. Annotations stay unevaluated, since their names may exist for type checkers only."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cache
from types import BuiltinFunctionType, MethodDescriptorType, ModuleType
from typing import Any

if sys.version_info >= (3, 14):
    from annotationlib import Format


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of `function`; None for a built-in without a signature."""
    return _of_built_in(function) if _is_built_in(function) else _inspected(function)


def _is_built_in(function: object) -> bool:
    """Return whether `function` is one such as `len` or `str.upper`, which lasts as long as the process."""
    if isinstance(function, BuiltinFunctionType):
        return isinstance(function.__self__, ModuleType)  # otherwise it is a method of an object
    return isinstance(function, MethodDescriptorType)


@cache
def _of_built_in(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a built-in: Python compiles its text each time, and each operator asks several times."""
    return _inspected(function)


def _inspected(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        if sys.version_info >= (3, 14):  # annotations are evaluated on access (PEP 649)
            return inspect.signature(function, annotation_format=Format.FORWARDREF)
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def misfit(function: Callable[..., Any], *arguments: Any) -> str | None:
    """Return the reason why `function` cannot be called with `arguments`.

    None if it can, or if it is a built-in without a signature.
    """
    signature = signature_of(function)
    try:
        if signature is not None:
            signature.bind(*arguments)
    except TypeError as error:
        return str(error)
    return None
