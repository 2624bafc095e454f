"""The requests of an application to its host: close and rebalance."""

from __future__ import annotations

import logging
import threading

_log = logging.getLogger(__name__)


class HostRequests:
    """Keeps requests until the supervisor handles them. Thread-safe."""

    def __init__(self, application_id: str) -> None:
        self._application_id = application_id
        self._closing = threading.Event()
        self._rebalancing = threading.Event()

    @property
    def closes(self) -> bool:
        """Whether the host is to close."""
        return self._closing.is_set()

    @property
    def rebalances(self) -> bool:
        """Whether another query is to follow the running one."""
        return self._rebalancing.is_set()

    def close(self) -> None:
        """Request that the host closes."""
        self._closing.set()

    def rebalance(self, reason: str) -> None:
        """Request a rebalance, unless the host is to close; `reason` is logged."""
        if not self.closes:
            _log.info("%s rebalances: %s", self._application_id, reason)
            self._rebalancing.set()

    def rebalanced(self) -> None:
        """Mark all requests for a rebalance as handled."""
        self._rebalancing.clear()

    def wait(self, seconds: float) -> bool:
        """Wait for `seconds`, or until the host is to close; return False if it is."""
        return not self._closing.wait(seconds)
