"""Logs in the driver that brokers do not answer or accept records.

It also logs the recovery. Planner and workers wait for the brokers and log that on their own machines. So the driver
asks the brokers itself, but only while nothing is committed: a commit proves that they are available.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from penstock.background import in_background
from penstock.client.api import TopicDescription
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.errors import BrokerNotFoundError, StreamsError
from penstock.host.spark.planner.topic_ends import PATIENCE_MS
from penstock_broker.common.clock import elapsed_milliseconds

_log = logging.getLogger(__name__)

_LOOK_MS = 3_000
_ANSWER_MS = 3_000
_TELL_MS = 30_000


class _Blocker(NamedTuple):
    """A condition that keeps an application from committing.

    Args:
        trouble: log text while the condition lasts.
        end: log text when it is over.
        limit_ms: how long (ms) the application waits for its end before the query fails; None if it retries forever.
    """

    trouble: str
    end: str
    limit_ms: int | None


class BrokerWatch:
    """Asks in the background whether the brokers answer and accept records.

    `look` never waits for an answer. Nothing is opened before the first question. Not thread-safe.

    Args:
        config: of the application.
        topics: the output topics.
        elapsed_ms: a monotonic clock in ms.
    """

    def __init__(
        self, config: StreamsConfig, topics: Sequence[str], elapsed_ms: Callable[[], int] = elapsed_milliseconds
    ) -> None:
        self._config = config
        self._topics = topics
        self._elapsed_ms = elapsed_ms
        self._admin: ConfluentAdmin | None = None
        self._answer: Future[_Blocker | None] | None = None
        self._epoch: int | None = None
        self._asked_ms = 0
        self._blocker: _Blocker | None = None
        self._since_ms = 0
        self._told_ms: int | None = None
        self._told_blocker = False

    @property
    def is_asking(self) -> bool:
        """Whether the answer to a question is still pending."""
        return self._answer is not None

    def look(self, committed_epoch: int) -> None:
        """Process the answer to the last question, and ask again if it is time."""
        now = self._elapsed_ms()
        if self._answer is not None:
            if self._answer.done():
                blocker, self._answer = self._answer.result(), None
                self._take(blocker, now)
        elif committed_epoch != self._epoch and self._blocker is None:
            self._epoch, self._asked_ms = committed_epoch, now
        elif now - self._asked_ms >= _LOOK_MS:
            self._asked_ms = now
            self._answer = in_background("penstock-broker-watch", partial(self._ask, self._open()))

    def close(self) -> None:
        """Release the client. Idempotent."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _open(self) -> ConfluentAdmin:
        if self._admin is None:
            self._admin = ConfluentAdmin(self._config, _ANSWER_MS)
        return self._admin

    def _ask(self, admin: ConfluentAdmin) -> _Blocker | None:
        """Return the blocker, if any. Other errors count as answers: the code that needs the brokers raises them."""
        servers = f"bootstrap.servers={self._config['bootstrap.servers']}"
        try:
            admin.cluster_id()
        except BrokerNotFoundError:
            trouble, end = f"no broker of {servers} has answered", f"a broker of {servers} answers again"
            return _Blocker(trouble, end, PATIENCE_MS)
        except StreamsError:
            return None
        try:
            return next(filter(None, map(_refusal, admin.describe_topics(self._topics))), None)
        except StreamsError:
            return None

    def _take(self, blocker: _Blocker | None, now: int) -> None:
        if blocker is not None:
            self._since_ms = self._asked_ms if self._blocker is None else self._since_ms
            self._blocker = blocker
            is_time = self._told_ms is None or now - self._told_ms >= _TELL_MS
            lasts_ms = now - self._since_ms
            if is_time and lasts_ms >= _LOOK_MS:  # one question may exceed its timeout, such as with a new login
                self._told_ms, self._told_blocker = now, True
                self._tell(blocker, lasts_ms)
        elif self._blocker is not None:
            if self._told_blocker:
                _log.warning(
                    "%s: %s, after %d s. The application continues.",
                    self._config["application.id"],
                    self._blocker.end,
                    (now - self._since_ms) // 1000,
                )
            self._blocker, self._told_blocker = None, False

    def _tell(self, blocker: _Blocker, lasts_ms: int) -> None:
        consequence = "Its output there is written again until they accept it."
        if blocker.limit_ms is not None:
            consequence = (
                f"The application waits for at most {max(blocker.limit_ms - lasts_ms, 0) // 1000} s more; then the "
                "query fails, and the uncaught exception handler decides whether it restarts."
            )
        _log.warning(
            "%s: %s for %d s. %s", self._config["application.id"], blocker.trouble, lasts_ms // 1000, consequence
        )


def _refusal(topic: TopicDescription) -> _Blocker | None:
    """Return the blocker to writing to a partition of `topic`, or None without a blocker."""
    configured = int(topic.config.get("min.insync.replicas", "1"))
    for each in topic.partitions:
        needed = min(configured, len(each.replicas))
        if each.leader < 0 or len(each.isr) < needed:
            place = f"{topic.name}-{each.partition}"
            why = "it has no leader"
            if each.leader >= 0:
                why = f"{len(each.isr)} of its {len(each.replicas)} replicas in sync, min.insync.replicas={configured}"
            trouble = f"the brokers have accepted no records for {place} ({why})"
            return _Blocker(trouble, f"the brokers accept records for {place} again", None)
    return None
