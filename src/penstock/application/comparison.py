"""What the program of an application would change if it started now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Comparison(NamedTuple):
    """A comparison of a program with its application. what: what was compared, as a sentence. lines: what would change,
    as `penstock diff` shows it; none if nothing would."""

    what: str
    lines: Sequence[str] = ()


Compare = Callable[[], Comparison]
"""Compares a program with its application; raises StreamsError if that is not possible now."""
