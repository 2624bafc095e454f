"""What all joins share: their types, and the functions of users that make one value of two."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from penstock.processor.first_results import adapting

KeyedJoiner = Callable[[Any, Any, Any], Any]
"""Called with key, value of this side and value of the other side (Kafka class: ValueJoinerWithKey)."""


class JoinType(Enum):
    """Which records have a result that find no other."""

    INNER = "inner"
    LEFT = "left"
    OUTER = "outer"

    @property
    def keeps_left(self) -> bool:
        """Whether records of the left side have a result without one of the right side."""
        return self is not JoinType.INNER

    @property
    def keeps_right(self) -> bool:
        """Whether records of the right side have a result without one of the left side."""
        return self is JoinType.OUTER


def keyed_joiner(joiner: Callable[..., Any], with_key: bool, reverse: bool = False) -> KeyedJoiner:
    """Return the user's joiner as a function of key, this value and other value.

    with_key: the user's takes the key too. reverse: this value is the right one, which the user's takes last.
    """
    if with_key:
        return adapting(joiner, lambda key, this, other: joiner(key, other, this)) if reverse else joiner
    if reverse:
        return adapting(joiner, lambda key, this, other: joiner(other, this))
    return adapting(joiner, lambda key, this, other: joiner(this, other))
