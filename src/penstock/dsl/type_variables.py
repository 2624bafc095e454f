"""The type variables of the DSL: keys and values of streams and tables.

Each defaults to Any, so a `KStream` without type arguments works like any other.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import TypeVar

K = TypeVar("K", default=Any)
"""The keys."""

V = TypeVar("V", default=Any)
"""The values."""

KR = TypeVar("KR", default=Any)
"""The keys of a result."""

VR = TypeVar("VR", default=Any)
"""The values of a result."""

KO = TypeVar("KO", default=Any)
"""The keys of the other side of a join."""

VO = TypeVar("VO", default=Any)
"""The values of the other side of a join."""
