"""Attempts to run a query: their errors, and the decision about another attempt."""

from __future__ import annotations

import logging
from collections.abc import Callable

from py4j.protocol import Py4JJavaError

from penstock.errors import LockError, StreamsError, TaskMigratedError
from penstock.host.api import HostListener, StreamThreadExceptionResponse
from penstock.host.spark.driver.figures import ManifestFigures
from penstock.host.spark.driver.host_requests import HostRequests
from penstock.host.spark.driver.hosted_application import HostedApplication
from penstock.host.spark.driver.query_starter import QueryStarter
from penstock.host.spark.driver.session_errors import JVM_IS_GONE, connect_errors
from penstock.host.spark.protocol.failures import ProcessLostError, error_of_spark, readable
from penstock.host.supervision.restarts import Restarts

_log = logging.getLogger(__name__)


class QueryAttempts:
    """Runs steps of an application, and decides after each error whether to restart.

    Args:
        application: the application of the steps.
        requests: of the application; a host that is to close does not restart.
        figures: provide the last commit, for counting restarts.
        starter: discards a session after its JVM has ended.
    """

    def __init__(
        self,
        application: HostedApplication,
        requests: HostRequests,
        figures: ManifestFigures,
        starter: QueryStarter,
    ) -> None:
        self._application = application
        self._requests = requests
        self._figures = figures
        self._starter = starter
        self._restarts = Restarts.of(application.config)

    def run_first(self, step: Callable[[], None]) -> None:
        """Run `step`, again after the loss of a Spark process; raise the last attempt's error."""
        error = self.error_of(step)
        while isinstance(error, ProcessLostError) and self._waits_for_restart(error):
            error = self.error_of(step)
        if error is not None:
            raise error

    def error_of(self, step: Callable[[], None]) -> Exception | None:
        """Run `step`, and return its error or None."""
        application_id = self._application.id
        try:
            step()
        except Py4JJavaError as raised:  # the JVM is alive, and reports the error
            error = error_of_spark(f"of {application_id}", str(raised), raised.java_exception.toString())
            error.__cause__ = raised
            return error
        except JVM_IS_GONE as raised:
            error = StreamsError(
                f"The JVM of Spark in which {application_id} ran has ended: it was killed or ran out of memory. "
                f"Its log may show why ({self._application.directory}/spark.log, if Penstock started it). Start the "
                "application again; it continues from its last committed epoch."
            )
            error.__cause__ = raised
            self._starter.forget_session()
            return error
        except connect_errors() as raised:
            error = StreamsError(
                f"Spark Connect did not run {application_id}: {readable(str(raised))}. If the server has ended, start "
                "it and the application again; it continues from its last committed epoch."
            )
            error.__cause__ = raised
            self._starter.forget_session()
            return error
        except Exception as raised:
            return raised
        return None

    def restarts_after(self, listener: HostListener, error: Exception) -> bool:
        """Ask the handler about `error`; wait and return True if the application is to continue.

        After the loss of a Spark process it continues without asking, as if Spark itself had started another one.
        """
        lost = isinstance(error, ProcessLostError)
        if not lost and listener.on_failure(error) is not StreamThreadExceptionResponse.REPLACE_THREAD:
            return False
        if isinstance(error, (TaskMigratedError, LockError)):
            _log.error("%s does not restart: another program has replaced it.", self._application.id)
            return False
        return self._waits_for_restart(error)

    def _waits_for_restart(self, error: Exception) -> bool:
        """Wait, and return whether to restart after `error`.

        Return False after too many restarts without a commit, or if the host is closed.
        """
        wait = self._restarts.next_wait_ms(self._figures.epoch)
        if wait is None:
            _log.error(
                "%s does not restart: penstock.restart.max.attempts=%d restarts made no commit.",
                self._application.id,
                self._application.config["penstock.restart.max.attempts"],
            )
            return False
        _log.warning("%s restarts in %d ms, after: %s", self._application.id, wait, error)
        return self._requests.wait(wait / 1000)
