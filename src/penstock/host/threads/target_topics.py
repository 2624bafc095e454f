"""The partition counts of output topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.client.api import Admin


class PartitionCounts(dict[str, int]):
    """The number of partitions by topic, for one thread.

    A missing topic is looked up: it was created after the start, and a function returned its name.

    Args:
        known: the topics known at the start.
        make_admin: returns the client for the first lookup.
    """

    def __init__(self, known: Mapping[str, int], make_admin: Callable[[], Admin]) -> None:
        super().__init__(known)
        self._make_admin = make_admin
        self._admin: Admin | None = None

    def __missing__(self, topic: str) -> int:
        """Return the partition count of `topic`.

        Raises KeyError if it does not exist, KafkaError if no broker answers.
        """
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
