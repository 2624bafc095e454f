"""Common parts of all joins: their types, and the joiner functions of users."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from penstock.processor.first_results import adapting

KeyedJoiner = Callable[[Any, Any, Any], Any]
"""Called with key, this side's value and the other side's value (Kafka class: ValueJoinerWithKey)."""

MappedKeyJoiner = Callable[[Any, Any, Any, Any], Any]
"""Called with the stream's key, the table's key, the stream's value and the table's value.

Kafka class: ValueJoinerWithStreamAndMappedKey (KIP-1340).
"""


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


def mapped_key_joiner(joiner: Callable[..., Any], keys: int) -> MappedKeyJoiner:
    """Return the user's joiner as a function of stream key, table key, stream value and table value.

    Args:
        joiner: the user's joiner.
        keys: the number of keys that it takes: 0, 1 for the stream's, 2 for the stream's and the table's.
    """
    if keys == 2:
        return joiner
    if keys == 1:
        return adapting(joiner, lambda key, table_key, value, table_value: joiner(key, value, table_value))
    return adapting(joiner, lambda key, table_key, value, table_value: joiner(value, table_value))
