"""Coroutines that a user's function returned and nothing awaits.

A lambda that calls a coroutine function returns them.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Final

_REMEDY: Final = (
    "a coroutine that nothing awaits. Give the operator the coroutine function itself, in place of a lambda that calls "
    "it, and calls=Calls()."
)


def check_awaited(result: Any, role: str) -> None:
    """Raise TypeError if the result of a function is a coroutine, which has not run.

    Args:
        result: of the function.
        role: the name of the function in the documentation, such as "predicate".
    """
    if inspect.iscoroutine(result):
        result.close()  # without a warning that it was never awaited
        raise TypeError(f"The {role} returned {_REMEDY}")


def check_first_awaited(results: Sequence[Any], role: str) -> None:
    """Raise TypeError if the first of the results is a coroutine; see `check_awaited`."""
    if len(results):
        check_awaited(results[0], role)


def not_awaited_hint(part: Any) -> str:
    """Return the end of a message about a key or value that is a coroutine; empty for others."""
    return f" It is {_REMEDY}" if inspect.iscoroutine(part) else ""
