"""The thread that copies the topics of an application to tables of a lake.

Its failures go to the handler of uncaught exceptions, as those of tasks do. Before that, a table or a broker that does
not answer is asked again, as often as `penstock.restart.*` says.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import NamedTuple

from penstock.client.api import Admin, NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentFetcher
from penstock.config import StreamsConfig
from penstock.errors import RetriableError, StreamsError, TopicExistsError
from penstock.host.commits.purging import RecordPurge
from penstock.host.lake.copying import Clients, TopicCopy
from penstock.host.lake.targets import of_sink, target_of
from penstock.host.supervision.restarts import Restarts
from penstock.lake.tables import LakeConflictError, LakeSink
from penstock.log_context import logged_as
from penstock.plan.internal_topics import RECORDS_STAY
from penstock_broker.common.clock import elapsed_milliseconds

_log = logging.getLogger(__name__)


class LakeWriter:
    """Copies the topics of the sinks, from its creation to `close`.

    Args:
        sinks: the tables by topic.
        config: of the application.
        is_ended_by: passes an error to the application, and returns whether it has ended the application.

    Raises:
        ConfigError: a package or a serde is missing.
        StreamsError: a serde has no columns, a table cannot be opened, or a topic cannot be created.
    """

    def __init__(
        self,
        sinks: Mapping[str, LakeSink],
        config: StreamsConfig,
        is_ended_by: Callable[[BaseException], bool],
    ) -> None:
        self._is_ended_by = is_ended_by
        self._interval_seconds = config["penstock.lake.commit.interval.ms"] / 1000
        self._restarts = Restarts.of(config)
        self._closing = threading.Event()
        self._complete_rounds = 0
        self._last_error: Exception | None = None
        self._open = ExitStack()
        self._sinks, self._copies = sinks, _opened(sinks, config, self._open)
        name = f"penstock-{config['application.id']}-lake"
        run = logged_as(str(config["application.id"]))(self._run)
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Copy the records that the topics have now, and end; raises the error of the copy."""
        self._closing.set()
        self._thread.join()
        if self._last_error is not None:
            raise self._last_error

    def close(self, timeout_ms: int) -> None:
        """Copy the records that the topics have now, and end within `timeout_ms`; harmless when called again."""
        self._closing.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_ms / 1000)
            if self._thread.is_alive():
                _log.warning("Tables of the lake do not have all records yet; the next start adds them.")

    def _run(self) -> None:
        with self._open:
            wait = self._interval_seconds
            while not self._closing.wait(wait):
                failure = self._round(is_last=False)
                again = None if failure is None else self._next_wait_seconds(failure)
                if failure is not None and again is None and self._is_ended_by(failure.error):
                    return
                wait = self._interval_seconds if again is None else min(again, self._interval_seconds)
            failure = self._round(is_last=True)
            self._last_error = None if failure is None else failure.error

    def _next_wait_seconds(self, failure: _Failure) -> float | None:
        """Return the wait before the next attempt, None if the application decides."""
        wait_ms = self._restarts.next_wait_ms(self._complete_rounds) if failure.is_transient else None
        if wait_ms is None:
            self._complete_rounds += 1  # the handler may go on, with all attempts
            return None
        return wait_ms / 1000

    def _round(self, is_last: bool) -> _Failure | None:
        """Copy each topic; return the first failure, preferably one that stays."""
        failures = []
        for topic, copy in self._copies.items():
            try:
                copy.run(is_last)
            except Exception as error:
                failures.append(_Failure(of_sink(self._sinks[topic], error), _is_transient(error)))
                _log.warning("The copy of %s failed; no record is lost or repeated: %s", topic, failures[-1].error)
        self._complete_rounds += not failures
        return min(failures, key=lambda failure: failure.is_transient, default=None)


class _Failure(NamedTuple):
    error: StreamsError
    is_transient: bool


def _is_transient(error: Exception) -> bool:
    """Return whether a later attempt may succeed: errors of brokers and of the libraries of tables."""
    return isinstance(error, RetriableError | LakeConflictError) or not isinstance(error, StreamsError)


def _opened(sinks: Mapping[str, LakeSink], config: StreamsConfig, opened: ExitStack) -> dict[str, TopicCopy]:
    with ExitStack() as opening:
        targets = {topic: target_of(sink, config) for topic, sink in sinks.items()}
        admin, fetcher = ConfluentAdmin(config), ConfluentFetcher(config)
        opening.callback(admin.close)
        opening.callback(fetcher.close)
        _create_topics(sinks, config, admin)
        purge_ms, max_bytes = config["repartition.purge.interval.ms"], config["penstock.lake.commit.max.bytes"]
        copies = {}
        for topic in sinks:
            clients = Clients(admin, fetcher, RecordPurge(purge_ms, elapsed_milliseconds))
            copies[topic] = TopicCopy(topic, clients, targets[topic], max_bytes)
        opened.push(opening.pop_all())
    return copies


def _create_topics(sinks: Mapping[str, LakeSink], config: StreamsConfig, admin: Admin) -> None:
    known, replication = admin.topics(), config["replication.factor"]
    for topic, sink in sinks.items():
        if topic not in known:
            new = NewTopic(topic, sink.partitions or config["num.partitions"], replication, RECORDS_STAY)
            try:
                admin.create_topics([new])
            except TopicExistsError:  # another instance has created it meanwhile
                continue
