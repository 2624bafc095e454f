"""The records of a task whose calls may be made since a commit: part of the vocabulary of an instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.processor.waiting_records import Waiting


@dataclass(frozen=True)
class NewCalls:
    """The calls of a task after a commit, or when it is opened.

    Args:
        added: the waiting records whose calls may be made from now on, by operator.
        waiting: the number of all committed records that wait for answers.
    """

    added: Mapping[str, Sequence[Waiting]] = field(default_factory=dict)
    waiting: int = 0


NO_CALLS: Final = NewCalls()
"""A task without operators with calls."""
