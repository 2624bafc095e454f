"""The partitions of the topics that tasks write to."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.client.api import Admin


class PartitionCounts(dict[str, int]):
    """The number of partitions by topic; looks up a topic that it does not know: one that was made since the start, and
    that a function names. For one thread."""

    def __init__(self, known: Mapping[str, int], make_admin: Callable[[], Admin]) -> None:
        """Know the topics of `known`. make_admin: connects, when a topic is looked up for the first time."""
        super().__init__(known)
        self._make_admin = make_admin
        self._admin: Admin | None = None

    def __missing__(self, topic: str) -> int:
        """Return the partitions of `topic`; raises KeyError if there is none, KafkaError if no broker answers."""
        if self._admin is None:
            self._admin = self._make_admin()
        found = self._admin.topics()
        if topic not in found:
            raise KeyError(topic)
        self[topic] = found[topic]
        return found[topic]

    def close(self) -> None:
        """Release the connection."""
        if self._admin is not None:
            self._admin.close()
