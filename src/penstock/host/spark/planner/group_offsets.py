"""Commits an application's positions to the brokers, as the offsets of a consumer group.

Kafka's tools show its lag by them. Nothing depends on these offsets, and no epoch waits for them: a separate thread
commits the newest positions. Their metadata says that the changelog topics do not have the matching state.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from penstock.client.api import Admin, OffsetAndMetadata
from penstock.errors import AuthorizationError, KafkaError
from penstock.host.api import STATE_ELSEWHERE
from penstock.record import TopicPartition

_log = logging.getLogger(__name__)

_ATTEMPTS = 30
"""Attempts of the thread to commit the same positions to brokers that refuse them."""

_LINGER_SECONDS = 30.0
"""How long the thread keeps its client without positions to commit."""


class GroupOffsets:
    """Commits the offsets of one consumer group in the background; not thread-safe.

    At most one position of each partition waits, the newest. The thread lives while there are positions to commit.

    Args:
        group: the group, which must have no members.
        open_admin: creates the client of the thread, in the thread.
        interval_ms: time in ms between two commits; the next one includes all positions that arrive in between.
    """

    def __init__(self, group: str, open_admin: Callable[[], Admin], interval_ms: int = 1_000) -> None:
        self._group = group
        self._open_admin = open_admin
        self._interval = interval_ms / 1000
        self._changed = threading.Condition()
        self._waiting: Mapping[TopicPartition, int] | None = None
        self._hurried = False
        self._told_refusal = False
        self._thread: threading.Thread | None = None

    def tell(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit `positions` within the interval, replacing the waiting ones; return immediately."""
        with self._changed:
            self._waiting = dict(positions)
            self._hurried = False
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-group-offsets", daemon=True)
                self._thread.start()

    def finish(self, timeout_ms: int) -> bool:
        """Wait until the newest positions are committed or given up.

        Return False if `timeout_ms` passes before that.
        """
        with self._changed:
            self._hurried = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._thread is None, timeout_ms / 1000)

    def _run(self) -> None:
        admin: Admin | None = None
        failures = 0
        try:
            while (positions := self._next(failures)) is not None:
                try:
                    admin = admin or self._open_admin()
                    told = {tp: OffsetAndMetadata(at, STATE_ELSEWHERE) for tp, at in positions.items()}
                    admin.commit_offsets(self._group, told)
                    failures = 0
                except KafkaError as error:
                    failures += 1
                    if isinstance(error, AuthorizationError) and not self._told_refusal:
                        self._told_refusal = True
                        _log.warning("Tools cannot show how far the application has read: %s", error)
                    _log.debug("The offsets of the group %s are not committed: %s", self._group, error)
                    self._again(positions)
                self._pause()
        finally:
            with self._changed:
                if self._thread is threading.current_thread():
                    self._thread = None
                    self._changed.notify_all()
            if admin is not None:
                admin.close()

    def _next(self, failures: int) -> Mapping[TopicPartition, int] | None:
        """Return the positions to commit next, or None after a while without any.

        The thread then ends, and the next positions start another.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._hurried, _LINGER_SECONDS)
            positions, self._waiting = self._waiting, None
            if positions is None or failures >= _ATTEMPTS or (failures and self._hurried):
                self._thread = None
                self._changed.notify_all()
                return None
            return positions

    def _again(self, positions: Mapping[TopicPartition, int]) -> None:
        with self._changed:
            self._waiting = self._waiting or positions

    def _pause(self) -> None:
        """Wait for the interval, unless in a hurry."""
        with self._changed:
            self._changed.wait_for(lambda: self._hurried, self._interval)
