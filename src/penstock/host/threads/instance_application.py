"""Reports changes and errors of an instance to its application, from the polling thread."""

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
    """Reports to the application through its listener.

    Args:
        listener: the listener of the application.
        rebalances: begins a rebalance if topics have changed, and returns whether they have.
    """

    def __init__(self, listener: HostListener, rebalances: Callable[[], bool]) -> None:
        self._listener = listener
        self._rebalances = rebalances
        self.is_running = False
        """Whether all tasks are being processed."""

    def running(self) -> None:
        """Report that all tasks are being processed."""
        self.is_running = True
        self._listener.on_running()

    def rebalancing(self) -> None:
        """Report that tasks are being set up."""
        self.is_running = False
        self._listener.on_rebalancing()

    def ask(self, error: BaseException) -> v.Decided:
        """Return the response to an error. The handler of uncaught exceptions decides, except after changes of topics,
        and after the death of a worker process, unless such deaths continue with the same task."""
        if isinstance(error, KafkaError | IncompatibleMemberError) and self._rebalances():
            return v.Decided(StreamThreadExceptionResponse.REPLACE_THREAD)
        if isinstance(error, WorkerDiedError) and error.is_first:
            _log.warning("%s", error)
            return v.Decided(StreamThreadExceptionResponse.REPLACE_THREAD)
        return v.Decided(self._listener.on_failure(error))
