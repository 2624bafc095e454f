"""Errors of functions on their way from a worker process to the program: themselves with their class, or their text.

A pickle of an error lacks its cause and its notes, so each of a chain of causes travels alone, with its notes. One
whose arguments cannot be pickled arrives with its text in their place; one of a class that cannot be made again is a
StreamsError that names the class.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from types import FunctionType
from typing import Any, NamedTuple

import cloudpickle

from penstock.errors import StreamsError


class CarriedError(NamedTuple):
    """An error without its cause. pickled: None if its class cannot be pickled; text: its class and message."""

    pickled: bytes | None
    text: str
    notes: list[str]


def with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield `error`, its cause, the cause of that and so on."""
    while error is not None:
        yield error
        error = error.__cause__


def carried(error: BaseException) -> CarriedError:
    """Return `error` as another process can make it again."""
    attributes = {name: value for name, value in vars(error).items() if name != "__notes__"}
    text = str(error)
    pickled = _pickled(error, text, error.args, attributes) or _pickled(error, text, (text,), {})
    return CarriedError(pickled, f"{type(error).__name__}: {text}", list(getattr(error, "__notes__", ())))


def made_again(errors: Iterable[CarriedError]) -> BaseException | None:
    """Return the first of `errors`, each with the next one as its cause; None if there are none."""
    made = [_made(*each) for each in errors]
    for error, cause in pairwise(made):
        error.__cause__ = cause
    return made[0] if made else None


def _pickled(error: BaseException, text: str, arguments: tuple[Any, ...], attributes: dict[str, Any]) -> bytes | None:
    try:
        data: bytes = cloudpickle.dumps((type(error), arguments, attributes))
        same = str(_unpickled(data)) == text
    except Exception:  # whatever an object's own pickling raises
        return None
    return data if same else None


def _unpickled(data: bytes) -> BaseException:
    kind, arguments, attributes = pickle.loads(data)
    error: BaseException = kind.__new__(kind, *arguments)
    if not isinstance(kind.__init__, FunctionType):  # one in Python may take other arguments, or change them
        kind.__init__(error, *arguments)
    vars(error).update(attributes)
    return error


def _made(pickled: bytes | None, text: str, notes: list[str]) -> BaseException:
    error: BaseException = StreamsError(text)
    if pickled is not None:
        with suppress(Exception):  # of a class that cannot be made here
            error = _unpickled(pickled)
    for note in notes:
        error.add_note(note)
    return error
