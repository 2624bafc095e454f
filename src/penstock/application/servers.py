"""The servers that expose a running application, each from a module that is loaded only if it is configured."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.config import StreamsConfig
from penstock.extras import load
from penstock.metrics import Metric, MetricName
from penstock.plan.topology import Topology

if TYPE_CHECKING:
    from penstock.application.comparison import Compare
    from penstock.application.life import ApplicationLife


class Server(Protocol):
    """A server that exposes a running application."""

    def close(self, timeout_ms: int) -> None:
        """Stop serving, within `timeout_ms`; harmless when called again."""
        ...


class Exposed(NamedTuple):
    """The parts of an application that servers expose.

    Args:
        application: itself.
        metrics: returns the current metrics of all topologies.
        topologies: returns the current topologies by name.
        compare: returns the comparison of the saved program with the running one, if possible.
        ended: set when the application has ended.
    """

    application: ApplicationLife[Any]
    metrics: Callable[[], Mapping[MetricName, Metric]]
    topologies: Callable[[], Mapping[str, Topology]]
    compare: Callable[[], Compare | None]
    ended: threading.Event


def close_servers(servers: Iterable[Server], deadline: float) -> None:
    """Close servers, and wait for their ends until `deadline` (s, of the monotonic clock)."""
    for server in servers:
        server.close(max(0, int((deadline - time.monotonic()) * 1000)))


def open_servers(exposed: Exposed, config: StreamsConfig) -> Iterator[Server]:
    """Yield the configured servers, each open: Prometheus, OpenTelemetry, the UI, OpenLineage.

    Raises ConfigError if a port is taken, or a package is missing.
    """
    if config["penstock.metrics.prometheus.port"] is not None:
        module = load("penstock.application.prometheus", "penstock.metrics.prometheus.port")
        yield module.PrometheusExporter(exposed.metrics, config)
    if config["penstock.otel.enabled"]:
        instruments = load("penstock.tools.otel.instruments", "penstock.otel.enabled")
        yield instruments.ObservedMetrics(exposed.metrics, config)
    if config["penstock.ui.port"] is not None:
        server = load("penstock.tools.ui.server", "penstock.ui.port")
        yield server.UiServer(exposed.application, config, exposed.compare())
    if config["penstock.openlineage.enabled"]:  # the last one: its first event says that the application starts
        emitter = load("penstock.tools.openlineage.emitter", "penstock.openlineage.enabled")
        yield emitter.LineageEmitter(exposed.application, config, exposed.topologies, exposed.ended)
