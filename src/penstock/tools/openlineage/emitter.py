"""Emits the events of an application in a thread of its own, through the client of OpenLineage.

The thread makes an event, and sends it before it makes the next: a slow receiver gets fewer events, and nothing is
queued. No error of the client, of its transport or of the receiver reaches the application.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Final

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import RunState
from openlineage.client.transport import get_default_factory
from openlineage.client.transport.noop import NoopConfig, NoopTransport

from penstock.application.life import ApplicationLife
from penstock.background import in_background
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, StreamsError
from penstock.plan.lineage import TopologyLineage, lineage_by_name
from penstock.plan.topology import Topology
from penstock.tools.openlineage.datasets import DatasetNames, Datasets
from penstock.tools.openlineage.events import RunEvents
from penstock.tools.openlineage.masking import masked
from penstock_broker.common.clock import SystemClock

_log = logging.getLogger(__name__)
_retries = logging.getLogger("urllib3.connectionpool")

_CLOSE_SECONDS: Final = 5.0
"""The longest wait of `close` for the last event."""


class LineageEmitter:
    """Emits START on creation, RUNNING at each interval, and COMPLETE or FAIL at the end.

    Args:
        application: the application; its error makes the last event FAIL.
        config: of the application, with the keys of OpenLineage.
        topologies: returns its current topologies by name.
        ended: set when the application has ended; `close` sets it too.

    Raises:
        ConfigError: the client rejects its configuration, or needs another package.
    """

    def __init__(
        self,
        application: ApplicationLife[Any],
        config: StreamsConfig,
        topologies: Callable[[], Mapping[str, Topology]],
        ended: threading.Event,
    ) -> None:
        self._application = application
        self._config = config
        self._application_id: str = config.required("application.id")
        self._names = DatasetNames.of(config)
        self._topologies = topologies
        self._ended = ended
        self._lineages: dict[str, tuple[Topology, TopologyLineage]] = {}
        self._is_failing = False
        self._client = _client(config)
        self._events = RunEvents(config, SystemClock())
        self._thread = in_background(f"penstock-openlineage-{self._application_id}", self._follow)

    def close(self, timeout_ms: int) -> None:
        """Emit the last event, and wait for it up to 5 s or `timeout_ms`; harmless when called again."""
        self._ended.set()
        seconds = min(_CLOSE_SECONDS, timeout_ms / 1000)
        try:
            self._thread.result(seconds)
        except FutureTimeoutError:
            _log.warning(
                "OpenLineage may not get the last event of the run %s of %s: its receiver has not taken it in %s s.",
                self._events.run_id,
                self._application_id,
                seconds,
            )

    def _follow(self) -> None:
        """Emit all events of the run."""
        interval: int = self._config["penstock.openlineage.interval.ms"]
        with _without_logged_retries():
            self._emit(RunState.START)
            while not self._ended.wait(interval / 1000):
                self._emit(RunState.RUNNING)
            error = self._application.error()
            self._emit(RunState.COMPLETE if error is None else RunState.FAIL, error)
            self._close_client()

    def _close_client(self) -> None:
        """Close the client; log a failure."""
        try:
            self._client.close(_CLOSE_SECONDS)
        except Exception as failure:
            _log.warning(
                "OpenLineage may not get the last event of the run %s of %s: its client cannot be closed: %s.",
                self._events.run_id,
                self._application_id,
                self._masked(failure),
            )

    def _masked(self, failure: Exception) -> str:
        return masked(failure, self._config["penstock.openlineage.config"], self._client.config.transport)

    def _emit(self, state: RunState, error: BaseException | None = None) -> None:
        """Emit an event; log the first of a series of failures."""
        try:
            self._client.emit(self._events.event(state, self._datasets(), error))
        except Exception as failure:
            if not self._is_failing:
                self._is_failing = True
                _log.warning(
                    "OpenLineage does not get the event %s of the run %s of %s: %s. The application continues; "
                    "further failures are not logged until an event arrives.",
                    state.value,
                    self._events.run_id,
                    self._application_id,
                    self._masked(failure),
                )
        else:
            if self._is_failing:
                self._is_failing = False
                _log.info("OpenLineage gets the events of %s again.", self._application_id)

    def _datasets(self) -> Datasets:
        """Return the datasets of the current topologies."""
        topologies = self._topologies()
        known = {name: kept for name, kept in self._lineages.items() if topologies.get(name) is kept[0]}
        added = {name: topology for name, topology in topologies.items() if name not in known}
        found = lineage_by_name(added, self._config)
        self._lineages = {**known, **{name: (topologies[name], found[name]) for name in added}}
        return Datasets([each for _, each in self._lineages.values()], self._matched_topics(), self._names)

    def _matched_topics(self) -> set[str]:
        """Return the topics of the running tasks of topologies with patterns; empty before they run."""
        matched: set[str] = set()
        running = self._application.running_topologies()
        for name, (_, lineage) in self._lineages.items():
            sources = (source for part in lineage.parts for source in part.sources)
            if name not in running or all(source.topic_pattern is None for source in sources):
                continue
            try:
                tasks = running[name].task_metadata()
            except StreamsError as error:  # not started, ended, or without brokers: the next event may know more
                _log.debug("The topics of patterns are unknown: %s", error)
            else:
                matched.update(partition.topic for task in tasks for partition in task.topic_partitions)
        return matched


def _client(config: StreamsConfig) -> OpenLineageClient:
    given = config["penstock.openlineage.config"]
    try:
        return OpenLineageClient(config=deepcopy(given))  # the client changes it
    except Exception as error:
        # Without its cause, whose message may have a secret.
        raise ConfigError(
            "The client of OpenLineage cannot be created from penstock.openlineage.config, the file openlineage.yml "
            f"and the environment: {_readable(error, given)}{_known_transports(given)}"
        ) from None


def _known_transports(given: Any) -> str:
    """Return the types of transports as the end of an error, if the type in `given` is another one."""
    known = sorted(get_default_factory().transports)
    transport = given.get("transport") if isinstance(given, Mapping) else None
    kind = transport.get("type") if isinstance(transport, Mapping) else None
    if kind is None or kind in known:
        return ""
    return f" The type of the transport is the path of a class, or one of {', '.join(known)}."


def _readable(error: Exception, given: Any) -> str:
    """Return an error of the creation of a client from `given` as text without secrets."""
    try:
        # its configuration also has the values of openlineage.yml
        without_transport = OpenLineageClient(config=deepcopy(given), transport=NoopTransport(NoopConfig()))
        transport = without_transport.config.transport
    except Exception:
        return (
            f"{type(error).__name__}. Its message is not shown, because it may have secrets. Create an "
            "openlineage.client.OpenLineageClient to see it."
        )
    return masked(error, given, transport)


@contextmanager
def _without_logged_retries() -> Iterator[None]:
    """Drop the warnings of urllib3 about each retry in this thread: one warning about the event is enough."""
    thread = threading.get_ident()

    def is_of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    _retries.addFilter(is_of_others)
    try:
        yield
    finally:
        _retries.removeFilter(is_of_others)
