"""Extremes of columns that mostly have few rows: numpy takes as long for one row as Python for dozens."""

from __future__ import annotations

from typing import Final

from penstock.record import Int64Array

_FEW: Final = 16
"""Most rows for which Python is quicker."""


def least(values: Int64Array) -> int:
    """Return the smallest of one or more values."""
    return min(values.tolist()) if len(values) <= _FEW else int(values.min())


def most(values: Int64Array) -> int:
    """Return the largest of one or more values."""
    return max(values.tolist()) if len(values) <= _FEW else int(values.max())
