"""The changes of running tasks that a query sees, by its isolation level (KIP-892).

Kafka Streams keeps uncommitted writes apart only in transactional stores, and otherwise only those in record caches
(Kafka method: ReadOnlyKeyValueStore.readOnly). The stores here always keep them apart. With exactly once, queries have
always made use of that; with at least once, `enable.transactional.statestores` says so.
"""

from __future__ import annotations

from enum import Enum

from penstock.config import StreamsConfig
from penstock.config.isolation_level import IsolationLevel
from penstock.config.kafka_keys import EXACTLY_ONCE_V2


class Visibility(Enum):
    """The changes of a task that a reader of its stores sees."""

    WRITTEN = "written"
    """All of them."""
    FLUSHED = "flushed"
    """Those that have left the record cache."""
    COMMITTED = "committed"
    """Those of the last commit and before."""


def visibility(level: IsolationLevel, config: StreamsConfig) -> Visibility:
    """Return the changes that queries of `level` see."""
    if level is IsolationLevel.READ_UNCOMMITTED:
        return Visibility.WRITTEN
    if config["enable.transactional.statestores"] or config["processing.guarantee"] == EXACTLY_ONCE_V2:
        return Visibility.COMMITTED
    return Visibility.FLUSHED
