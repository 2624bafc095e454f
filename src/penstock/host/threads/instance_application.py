"""The application that an instance belongs to, as its polling thread tells it of changes and errors."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.errors import KafkaError
from penstock.host.api import HostListener, StreamThreadExceptionResponse
from penstock.host.threads import vocabulary as v
from penstock.host.threads.subscription import IncompatibleMemberError
from penstock.host.threads.workers.worker_process import WorkerDiedError

_log = logging.getLogger(__name__)


class InstanceApplication:
    """Tells the application, by its listener.

    Args:
        listener: of the application.
        rebalances: begins a rebalance if topics have changed, and returns whether they have.
    """

    def __init__(self, listener: HostListener, rebalances: Callable[[], bool]) -> None:
        self._listener = listener
        self._rebalances = rebalances
        self.is_running = False
        """Whether all tasks are being processed."""

    def running(self) -> None:
        """Tell that all tasks are being processed."""
        self.is_running = True
        self._listener.on_running()

    def rebalancing(self) -> None:
        """Tell that tasks are being set up."""
        self.is_running = False
        self._listener.on_rebalancing()

    def ask(self, error: BaseException) -> v.Decided:
        """Return the answer of the handler of uncaught exceptions; it is not asked about topics that have changed, nor
        about a worker process that has died, unless that goes on with the same task."""
        if isinstance(error, KafkaError | IncompatibleMemberError) and self._rebalances():
            return v.Decided(StreamThreadExceptionResponse.REPLACE_THREAD)
        if isinstance(error, WorkerDiedError) and error.is_first:
            _log.warning("%s", error)
            return v.Decided(StreamThreadExceptionResponse.REPLACE_THREAD)
        return v.Decided(self._listener.on_failure(error))
