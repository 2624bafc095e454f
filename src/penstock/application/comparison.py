"""The differences between a program and its application if it started now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Comparison(NamedTuple):
    """A comparison of a program with its application.

    Args:
        what: a sentence that names the compared objects.
        lines: the changes in the format of `penstock diff`; empty if nothing would change.
    """

    what: str
    lines: Sequence[str] = ()


Compare = Callable[[], Comparison]
"""Compares a program with its application; raises StreamsError if that is currently impossible."""
