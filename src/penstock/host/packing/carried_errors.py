"""Errors of functions on their way from a worker process to the program.

They keep their class if possible, otherwise only their text. A pickled error lacks its cause and its notes, so each
error in a chain of causes is sent separately, with its notes. An error with arguments that cannot be pickled has its
text as argument instead; one whose class cannot be restored becomes a StreamsError with the name of the class.
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
    """Yield `error`, its cause, the cause of the cause, and so on."""
    while error is not None:
        yield error
        error = error.__cause__


def carried(error: BaseException) -> CarriedError:
    """Return `error` in a form that another process can restore."""
    attributes = {name: value for name, value in vars(error).items() if name != "__notes__"}
    text = str(error)
    pickled = _pickled(error, text, error.args, attributes) or _pickled(error, text, (text,), {})
    return CarriedError(pickled, f"{type(error).__name__}: {text}", list(getattr(error, "__notes__", ())))


def made_again(errors: Iterable[CarriedError]) -> BaseException | None:
    """Restore a chain of `errors`, each caused by the next; return the first, if any."""
    made = [_made(*each) for each in errors]
    for error, cause in pairwise(made):
        error.__cause__ = cause
    return made[0] if made else None


def _pickled(error: BaseException, text: str, arguments: tuple[Any, ...], attributes: dict[str, Any]) -> bytes | None:
    try:
        data: bytes = cloudpickle.dumps((type(error), arguments, attributes))
        same = str(_unpickled(data)) == text
    except Exception:  # any error from the object's own pickling
        return None
    return data if same else None


def _unpickled(data: bytes) -> BaseException:
    kind, arguments, attributes = pickle.loads(data)
    error: BaseException = kind.__new__(kind, *arguments)
    if not isinstance(kind.__init__, FunctionType):  # one written in Python may have other arguments, or change them
        kind.__init__(error, *arguments)
    vars(error).update(attributes)
    return error


def _made(pickled: bytes | None, text: str, notes: list[str]) -> BaseException:
    error: BaseException = StreamsError(text)
    if pickled is not None:
        with suppress(Exception):  # its class cannot be restored here
            error = _unpickled(pickled)
    for note in notes:
        error.add_note(note)
    return error
