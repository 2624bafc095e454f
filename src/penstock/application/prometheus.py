"""Exposes metrics to Prometheus: an HTTP endpoint with their current values.

The names follow Confluent's rules of the JMX exporter for Kafka's metrics (`kafka_streams.yml` of
jmx-monitoring-stacks), so its dashboards work: `records-consumed-total` of the group `stream-topic-metrics` is
`kafka_streams_stream_topic_metrics_records_consumed_total`, its tags are labels, `client-id` as `client_id`. Special
cases:

- Metrics of consumers and producers begin with `kafka_consumer` and `kafka_producer` and have the label `client_type`.
- A total has two names, with and without `_total`: version 1 of the JMX exporter removes the suffix.
- The state and similar facts of an application are `kafka_streams_stream_metrics` with the value as a label, and also
  have their own names.

OpenMetrics does not allow the two names of a total in one response, so the response has the text format of Prometheus.
The description of the topology is omitted: it is a page long.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, UntypedMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from penstock.application.metrics_server import MetricsServer
from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from penstock.metrics import Metric, MetricName
from penstock.metrics.host_metrics import FALLING

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

_TEXT: Final = ""
"""The Accept header that selects the text format."""
_TOO_LONG: Final = "topology-description"
_TOTAL: Final = "_total"
_ILLEGAL: Final = re.compile("[^a-zA-Z0-9_]")
_CLIENT_GROUP: Final = re.compile("(consumer|producer)-.*metrics")
_FACTS: Final = "kafka_streams_stream_metrics"
_SAID_BY_LABELS: Final = ("state", "version", "application-id", "alive-stream-threads", "failed-stream-threads")
"""The metrics of an application whose value is a label by Confluent's rules. The value of a text is 1."""


class PrometheusExporter:
    """Serves the metrics of one application until it is closed.

    Args:
        metrics: returns the current metrics; called from other threads.
        config: penstock.metrics.prometheus.port and penstock.metrics.prometheus.host are the address.

    Raises:
        ConfigError: the port is taken, or the address is not on this machine.
    """

    def __init__(self, metrics: Callable[[], Mapping[MetricName, Metric]], config: StreamsConfig) -> None:
        host, port = config["penstock.metrics.prometheus.host"], config["penstock.metrics.prometheus.port"]
        try:
            self._server = MetricsServer(host, port, _in_text(make_wsgi_app(_registry(metrics))), config)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"Metrics cannot be served at {host}:{port}: {error}. Set penstock.metrics.prometheus.port and "
                "penstock.metrics.prometheus.host to a free port and an address of this machine."
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port of the server."""
        return int(self._server.server_port)

    def close(self, timeout_ms: int) -> None:
        """Stop serving, within `timeout_ms`; harmless when called again."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout_ms / 1000)


def _in_text(app: WSGIApplication) -> WSGIApplication:
    """Return `app` with the text format for every client."""
    return lambda environ, start_response: app({**environ, "HTTP_ACCEPT": _TEXT}, start_response)


def exposition(metrics: Callable[[], Mapping[MetricName, Metric]]) -> tuple[bytes, str]:
    """Return metrics in the text format of Prometheus, and its content type."""
    encode, content_type = choose_encoder(_TEXT)
    return encode(_registry(metrics)), content_type


def _registry(metrics: Callable[[], Mapping[MetricName, Metric]]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Metrics(metrics))
    return registry


class _Metrics(Collector):
    """Converts metrics to those of Prometheus on each scrape."""

    def __init__(self, metrics: Callable[[], Mapping[MetricName, Metric]]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Family]:
        shown = [metric for name, metric in self._metrics().items() if name.name != _TOO_LONG]
        shown.sort(key=_family_name)
        names = set(map(_family_name, shown))
        for name, same in groupby(shown, key=_family_name):
            metrics = list(same)
            yield _family_of(name, metrics)
            short = name.removesuffix(_TOTAL)
            if short not in names:
                yield _with_samples(GaugeMetricFamily(short, metrics[0].metric_name.description), short, metrics)
        yield _facts(shown)


def prometheus_name(group: str, name: str) -> str:
    """Return the Prometheus name of the metric `name` of a group."""
    client = _CLIENT_GROUP.fullmatch(group)
    return _legal(f"kafka_{'streams' if client is None else client[1]}_{group}_{name}")


def _family_name(metric: Metric) -> str:
    return prometheus_name(metric.metric_name.group, metric.metric_name.name)


def _family_of(name: str, metrics: list[Metric]) -> Family:
    first = metrics[0].metric_name
    if isinstance(metrics[0].metric_value, str):
        info = InfoMetricFamily(name, first.description)
        for metric in metrics:
            text = {_legal(first.name): str(metric.metric_value)}
            info.add_sample(f"{name}_info", {**_labels(metric), **text}, 1.0)
        return info
    grows = name.endswith(_TOTAL) and first.name not in FALLING
    kind = CounterMetricFamily if grows else GaugeMetricFamily
    return _with_samples(kind(name, first.description), name, metrics)


def _with_samples(family: Family, name: str, metrics: Iterable[Metric]) -> Family:
    # a user may give the metrics of one name different tags, which the library's families do not allow
    for metric in metrics:
        family.add_sample(name, _labels(metric), float(metric.metric_value))
    return family


def _facts(metrics: Iterable[Metric]) -> Family:
    """Return the facts about the application, by Confluent's rules."""
    family = UntypedMetricFamily(_FACTS, "What the application is, by the labels")
    for metric in metrics:
        name, value = metric.metric_name, metric.metric_value
        if name.group == "stream-metrics" and name.name in _SAID_BY_LABELS:
            labels = {**_labels(metric), _legal(name.name): str(value)}
            family.add_sample(_FACTS, labels, 1.0 if isinstance(value, str) else float(value))
    return family


def _labels(metric: Metric) -> dict[str, str]:
    name = metric.metric_name
    client = _CLIENT_GROUP.fullmatch(name.group)
    type_ = {} if client is None else {"client_type": client[1]}
    return {**type_, **{_legal(key): text for key, text in name.tags.items()}}


def _legal(text: str) -> str:
    """Replace the characters not allowed in Prometheus names."""
    return _ILLEGAL.sub("_", text)
