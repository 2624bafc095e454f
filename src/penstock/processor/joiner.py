"""Common parts of all joins: their types, and the joiner functions of users."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from penstock.processor.first_results import adapting

KeyedJoiner = Callable[[Any, Any, Any], Any]
"""Called with key, this side's value and the other side's value (Kafka class: ValueJoinerWithKey)."""


class JoinType(Enum):
    """The sides whose records have a result without a match."""

    INNER = "inner"
    LEFT = "left"
    OUTER = "outer"

    @property
    def keeps_left(self) -> bool:
        """Whether records of the left side have a result without a match on the right."""
        return self is not JoinType.INNER

    @property
    def keeps_right(self) -> bool:
        """Whether records of the right side have a result without a match on the left."""
        return self is JoinType.OUTER


def keyed_joiner(joiner: Callable[..., Any], with_key: bool, reverse: bool = False) -> KeyedJoiner:
    """Return the user's joiner as a function of key, this value and other value.

    Args:
        joiner: the user's joiner.
        with_key: whether the user's joiner takes the key too.
        reverse: whether this value is the right one, the last argument of the user's joiner.
    """
    if with_key:
        return adapting(joiner, lambda key, this, other: joiner(key, other, this)) if reverse else joiner
    if reverse:
        return adapting(joiner, lambda key, this, other: joiner(other, this))
    return adapting(joiner, lambda key, this, other: joiner(this, other))
