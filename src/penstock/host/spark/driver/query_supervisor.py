"""The supervisor of an application on Spark: a thread that runs one query after another."""

from __future__ import annotations

import threading
import time

from penstock.host.api import HostListener
from penstock.host.spark.checkpoints.lock import CheckpointLock
from penstock.host.spark.driver.current_query import CurrentQuery
from penstock.host.spark.driver.host_requests import HostRequests
from penstock.host.spark.driver.hosted_application import HostedApplication
from penstock.host.spark.driver.query_attempts import QueryAttempts
from penstock.host.spark.driver.query_follower import QueryFollower
from penstock.host.spark.driver.query_starter import QueryStarter
from penstock.host.spark.driver.running_query import LOOK_SECONDS
from penstock.host.spark.worker.bases import seal_bases
from penstock.log_context import logged_as


class QuerySupervisor:
    """Runs queries until the host closes, or a query fails or reaches its planned end.

    Args:
        application: the application of the queries.
        requests: of the application.
        current: the newest query.
        starter: starts the queries.
        follower: follows them.
        attempts: decides about restarts after errors.
        lock: released after an error, and at a planned end.
    """

    def __init__(
        self,
        application: HostedApplication,
        requests: HostRequests,
        current: CurrentQuery,
        starter: QueryStarter,
        follower: QueryFollower,
        attempts: QueryAttempts,
        lock: CheckpointLock,
    ) -> None:
        self._application = application
        self._requests = requests
        self._current = current
        self._starter = starter
        self._follower = follower
        self._attempts = attempts
        self._lock = lock
        self._thread: threading.Thread | None = None

    def start_query(self) -> None:
        """Start the first query; raise the error of the last attempt."""
        self._attempts.run_first(self._starter.start)

    def follow(self, listener: HostListener) -> None:
        """Follow the first query and run its successors, in the background."""
        self._thread = threading.Thread(
            target=logged_as(self._application.id)(self._run),
            args=(listener,),
            name=f"penstock-{self._application.id}",
            daemon=True,
        )
        self._thread.start()

    def close(self, timeout_ms: int) -> bool:
        """Stop after the running epoch; return whether query and thread ended within `timeout_ms`."""
        deadline = time.monotonic() + timeout_ms / 1000
        self._requests.close()
        stopped = self._current.stop(lambda: time.monotonic() >= deadline)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(deadline - time.monotonic(), 1.0))
            stopped = stopped and not thread.is_alive()
        if stopped and thread is not None:
            seal_bases(self._application.directory, self._application.process_id)
        return stopped

    def _run(self, listener: HostListener) -> None:
        """Follow one query after another, and always notify the listener of the end."""
        try:
            error = self._attempts.error_of(self._follow_to_end)
            while self._goes_on(listener, error):
                listener.on_rebalancing()
                error = self._attempts.error_of(lambda: self._run_next(listener))
        except Exception as raised:
            error = raised
        self._current.stop(lambda: True)  # a query may have started after `close` looked for one
        if self._requests.closes:
            return
        self._lock.release()  # so that another program can take over before this one is closed
        if error is not None:
            listener.on_error(error)
        else:
            listener.on_stopped()

    def _goes_on(self, listener: HostListener, error: Exception | None) -> bool:
        """Return whether another query follows the last one.

        Args:
            listener: decides after an error.
            error: the error that ended the last query; None without an error.
        """
        if self._requests.closes:
            return False
        if error is not None:
            return self._attempts.restarts_after(listener, error)
        query = self._current.query
        is_paused = query is not None and query.ended_by_pause and not self._follower.is_asked_to_end
        if is_paused and not self._requests.rebalances:
            while self._current.is_paused and self._requests.wait(LOOK_SECONDS):
                pass
            return not self._requests.closes
        return self._requests.rebalances

    def _run_next(self, listener: HostListener) -> None:
        """Start the next query and follow it."""
        self._requests.rebalanced()
        self._starter.start()
        listener.on_running()
        self._follow_to_end()

    def _follow_to_end(self) -> None:
        """Follow the query until it ends, then run the DataFrame sinks to the end."""
        query = self._current.query
        assert query is not None
        self._follower.follow(query)
        self._starter.run_sinks_to_end()
