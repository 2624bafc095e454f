"""The requests of an application to its host: close and rebalance."""

from __future__ import annotations

import logging
import threading

_log = logging.getLogger(__name__)


class HostRequests:
    """Keeps requests, from any thread, until the supervisor follows them."""

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
        """Request the end of the host."""
        self._closing.set()

    def rebalance(self, reason: str) -> None:
        """Request a rebalance, unless the host is to close. reason: for the log."""
        if not self.closes:
            _log.info("%s rebalances: %s", self._application_id, reason)
            self._rebalancing.set()

    def rebalanced(self) -> None:
        """Take all requests for a rebalance as done."""
        self._rebalancing.clear()

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until the host is to close; return whether it is not."""
        return not self._closing.wait(seconds)
