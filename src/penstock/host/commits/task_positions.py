"""The progress of tasks: committed positions and end offsets of their partitions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from penstock.client.api import Admin
from penstock.errors import StateStoreNotAvailableError
from penstock.host.api import TaskMetadata
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition

ANSWER_MS = 3_000
"""Timeout (ms) of brokers; the caller repeats the request."""

Committed = Callable[[Admin, Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Returns the committed positions of partitions, omitting those without a position."""


class TaskPositions:
    """Requests positions with one client, which connects at the first request and stays open; thread-safe.

    Args:
        make_admin: creates the client.
    """

    def __init__(self, make_admin: Callable[[], Admin]) -> None:
        self._make_admin = make_admin
        self._asking = threading.Lock()  # one thread at a time uses a client
        self._lock = threading.Lock()
        self._admin: Admin | None = None
        self._is_asked = False
        self._closed = threading.Event()

    def metadata(
        self, groups: Mapping[TaskId, Sequence[TopicPartition]], committed: Committed
    ) -> tuple[TaskMetadata, ...]:
        """Return the positions of tasks, ordered by their ids. groups: the partitions of each task.

        Raises:
            StateStoreNotAvailableError: the object is closed.
            KafkaError: the brokers do not answer.
        """
        partitions = sorted({partition for group in groups.values() for partition in group})
        with self._asking, self._client() as admin:
            positions = dict(committed(admin, partitions)) if partitions else {}
            if begin := [partition for partition in partitions if partition not in positions]:
                positions |= admin.beginning_offsets(begin)
            ends = admin.end_offsets(partitions, read_committed=True) if partitions else {}
        return tuple(
            TaskMetadata(task, {each: positions[each] for each in group}, {each: ends[each] for each in group})
            for task, group in sorted(groups.items())
        )

    @contextmanager
    def _client(self) -> Iterator[Admin]:
        """Yield the client, and close it afterwards if `close` was called meanwhile."""
        with self._lock:
            if self._closed.is_set():
                raise StateStoreNotAvailableError("The application does not run in this process: it has no tasks.")
            admin = self._admin = self._admin or self._make_admin()
            self._is_asked = True
        try:
            yield admin
        finally:
            with self._lock:
                self._is_asked = False
                is_closed = self._closed.is_set()
            if is_closed:
                admin.close()

    def close(self) -> None:
        """Refuse further requests and release the connections, without waiting for silent brokers."""
        with self._lock:
            self._closed.set()
            admin = None if self._is_asked else self._admin
        if admin is not None:
            admin.close()
