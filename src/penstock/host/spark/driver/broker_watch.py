"""Tells on the driver's log that no broker answers, and when one does again.

Planner and workers wait for brokers that are away, and log that on their own machines. So the driver asks the brokers
itself, but only while nothing is committed: what is committed shows that they are there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from penstock.background import in_background
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.clock import elapsed_milliseconds
from penstock.config import StreamsConfig
from penstock.errors import BrokerNotFoundError, StreamsError
from penstock.host.spark.planner.topic_ends import PATIENCE_MS

_log = logging.getLogger(__name__)

_LOOK_MS = 3_000
_ANSWER_MS = 3_000
_TELL_MS = 30_000


class BrokerWatch:
    """Asks in the background whether a broker answers; `look` never waits for it. One thread at a time calls it."""

    def __init__(self, config: StreamsConfig, elapsed_ms: Callable[[], int] = elapsed_milliseconds) -> None:
        """Take where the brokers are; nothing is opened before the first question.

        Args:
            config: of the application.
            elapsed_ms: a clock in ms that does not leap.
        """
        self._config = config
        self._elapsed_ms = elapsed_ms
        self._admin: ConfluentAdmin | None = None
        self._answer: Future[bool] | None = None
        self._epoch: int | None = None
        self._asked_ms = 0
        self._away_since_ms: int | None = None
        self._told_ms: int | None = None
        self._told_absence = False

    @property
    def is_asking(self) -> bool:
        """Whether the answer to a question has not been taken yet."""
        return self._answer is not None

    def look(self, committed_epoch: int) -> None:
        """Take the answer to the last question, and ask again where it is time."""
        now = self._elapsed_ms()
        if self._answer is not None:
            if self._answer.done():
                is_away, self._answer = self._answer.result(), None
                self._take(is_away, now)
        elif committed_epoch != self._epoch and self._away_since_ms is None:
            self._epoch, self._asked_ms = committed_epoch, now
        elif now - self._asked_ms >= _LOOK_MS:
            self._asked_ms = now
            self._answer = in_background("penstock-broker-watch", partial(_is_away, self._open()))

    def close(self) -> None:
        """Release the client; harmless when called again."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _open(self) -> ConfluentAdmin:
        if self._admin is None:
            self._admin = ConfluentAdmin(self._config, _ANSWER_MS)
        return self._admin

    def _take(self, is_away: bool, now: int) -> None:
        if is_away:
            self._away_since_ms = self._asked_ms if self._away_since_ms is None else self._away_since_ms
            away_ms = now - self._away_since_ms
            is_time = self._told_ms is None or now - self._told_ms >= _TELL_MS
            if is_time and away_ms >= _LOOK_MS:  # one question may take longer than it has, such as with a new login
                self._told_ms, self._told_absence = now, True
                self._tell_absence(away_ms)
        elif self._away_since_ms is not None:
            if self._told_absence:
                _log.warning(
                    "%s: a broker of bootstrap.servers=%s answers again, after %d s. The application continues.",
                    self._config["application.id"],
                    self._config["bootstrap.servers"],
                    (now - self._away_since_ms) // 1000,
                )
            self._away_since_ms, self._told_absence = None, False

    def _tell_absence(self, away_ms: int) -> None:
        _log.warning(
            "%s: no broker of bootstrap.servers=%s has answered for %d s. The application waits for at most %d s "
            "more; then the query fails, and the uncaught exception handler decides whether it restarts.",
            self._config["application.id"],
            self._config["bootstrap.servers"],
            away_ms // 1000,
            max(PATIENCE_MS - away_ms, 0) // 1000,
        )


def _is_away(admin: ConfluentAdmin) -> bool:
    """Return whether no broker answers. Other errors are answers; the code that needs the brokers raises them."""
    try:
        admin.cluster_id()
    except BrokerNotFoundError:
        return True
    except StreamsError:
        return False
    return False
