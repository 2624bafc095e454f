"""Shows metrics to Prometheus: an address that answers with their values at that moment.

A metric `records-consumed-total` of the group `stream-topic-metrics` is
`kafka_streams_stream_topic_metrics_records_consumed_total` there, its tags are labels, `client-id` as `client_id`; a
text is a label of a value 1. The description of the topology is left out: it is a page long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from penstock.errors import ConfigError
from penstock.metrics import Metric, MetricName

_TOO_LONG = "topology-description"
_TOTAL = "_total"
_ILLEGAL = re.compile("[^a-zA-Z0-9_]")


class PrometheusExporter:
    """Serves the metrics of one application until it is closed."""

    def __init__(self, metrics: Callable[[], Mapping[MetricName, Metric]], host: str, port: int) -> None:
        """Begin to serve.

        Args:
            metrics: gives the metrics of now; called from other threads.
            host: address to listen on.
            port: its port, 0 for one that is free.

        Raises:
            ConfigError: the port is taken, or the address is not this machine's.
        """
        registry = CollectorRegistry()
        registry.register(_Metrics(metrics))
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise ConfigError(
                f"Metrics cannot be served at {host}:{port}: {error}. Set penstock.metrics.prometheus.port and "
                "penstock.metrics.prometheus.host to a free port and an address of this machine."
            ) from error

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_port)

    def close(self) -> None:
        """Stop serving; harmless when called again."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Metrics(Collector):
    """Turns metrics into those of Prometheus when it asks."""

    def __init__(self, metrics: Callable[[], Mapping[MetricName, Metric]]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Family]:
        shown = [metric for name, metric in self._metrics().items() if name.name != _TOO_LONG]
        shown.sort(key=_family_name)
        for name, same in groupby(shown, key=_family_name):
            yield from _families(name, list(same))


def _family_name(metric: Metric) -> str:
    name = metric.metric_name
    return _legal(f"kafka_streams_{name.group}_{name.name}")


def _families(name: str, metrics: list[Metric]) -> Iterator[Family]:
    first = metrics[0].metric_name
    if isinstance(metrics[0].metric_value, str):
        info = InfoMetricFamily(name, first.description)
        for metric in metrics:
            text = {_legal(first.name): str(metric.metric_value)}
            info.add_sample(f"{name}_info", {**_labels(metric), **text}, 1.0)
        yield info
        return
    # a user may give the metrics of one name different tags, which the families of the library cannot have
    kind = CounterMetricFamily if name.endswith(_TOTAL) else GaugeMetricFamily
    family = kind(name, first.description)
    for metric in metrics:
        family.add_sample(name, _labels(metric), float(metric.metric_value))
    yield family


def _labels(metric: Metric) -> dict[str, str]:
    return {_legal(key): text for key, text in metric.metric_name.tags.items()}


def _legal(text: str) -> str:
    """Return `text` with what Prometheus takes in names only."""
    return _ILLEGAL.sub("_", text)
