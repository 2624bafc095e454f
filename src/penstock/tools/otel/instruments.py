"""Metrics as observable instruments of OpenTelemetry; exporters read their values at each collection.

The names are those of Kafka's own clients (KIP-714): `process-total` of the group `stream-task-metrics` is
`org.apache.kafka.stream.task.process.total`, its tags are attributes, `task-id` as `task_id`. Totals that only grow are
counters, all others gauges. As in Kafka, text metrics are omitted; so are metrics without a value yet (NaN).

Like the provider, the instruments belong to the process: one instrument has the metrics of all its applications, and is
empty after they have ended.
"""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from opentelemetry.metrics import CallbackOptions, Observation, get_meter

from penstock import __version__
from penstock.background import in_background
from penstock.config import StreamsConfig
from penstock.metrics import Metric, MetricName
from penstock.metrics.host_metrics import DESCRIPTIONS, FALLING
from penstock.tools.otel.setup import set_up

_log = logging.getLogger(__name__)

_PREFIX: Final = "org.apache.kafka"
_TOTAL: Final = ".total"
_FALLING: Final = tuple(name.replace("-", ".") for name in FALLING)
_ILLEGAL: Final = re.compile("[^a-z0-9_./]")

Metrics = Callable[[], Mapping[MetricName, Metric]]
"""Returns the current metrics; called from the threads of exporters."""


class ObservedMetrics:
    """Exposes the metrics of one application until it is closed.

    Args:
        metrics: returns the current metrics.
        config: `penstock.otel.setup`; ConfigError if it fails.
    """

    def __init__(self, metrics: Metrics, config: StreamsConfig) -> None:
        set_up(config)
        self._metrics = metrics
        _INSTRUMENTS.add(metrics)

    def close(self, timeout_ms: int) -> None:
        """Remove the metrics at once, whatever `timeout_ms` is; harmless when called again."""
        _INSTRUMENTS.remove(self._metrics)


class _Instruments:
    """The instruments of this process.

    A collection reads one instrument after the other. All of them use the same snapshot of the metrics, until an
    instrument is read again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: set[str] = set()
        self._sources: list[Metrics] = []
        self._read: dict[str, list[Observation]] = {}
        self._answered: set[str] | None = None

    def add(self, source: Metrics) -> None:
        """Add the metrics of `source`."""
        with self._lock:
            self._sources.append(source)
            self._answered = None
            missing = self._missing({_name(group, name): text for (group, name), text in DESCRIPTIONS.items()})
        _make(missing)

    def remove(self, source: Metrics) -> None:
        """Remove the metrics of `source`."""
        with self._lock:
            if source in self._sources:
                self._sources.remove(source)
            self._answered, self._read = None, {}

    def observe(self, name: str, options: CallbackOptions) -> Iterable[Observation]:
        """Return the values of the instrument `name`."""
        with self._lock:
            if self._answered is None or name in self._answered:
                self._read = self._reading()
                self._answered = set()
            self._answered.add(name)
            return self._read.get(name, ())

    def _reading(self) -> dict[str, list[Observation]]:
        found: dict[str, list[Observation]] = {}
        descriptions: dict[str, str] = {}
        for source in self._sources:
            try:
                metrics = source()
            except Exception:
                _log.warning("Metrics are missing in this collection for OpenTelemetry.", exc_info=True)
                continue
            for metric_name, metric in metrics.items():
                if isinstance(metric.metric_value, str) or not math.isfinite(metric.metric_value):
                    continue
                name = _name(metric_name.group, metric_name.name)
                attributes = {tag.lower().replace("-", "_"): value for tag, value in metric_name.tags.items()}
                found.setdefault(name, []).append(Observation(metric.metric_value, attributes))
                descriptions[name] = metric_name.description
        missing = self._missing(descriptions)
        if missing:
            # Users' sensors: the SDK creates no instruments during a collection, so a thread waits until its end.
            with suppress(RuntimeError):  # new threads are impossible at the end of the program
                in_background("penstock-otel-instruments", partial(_make, missing))
        return found

    def _missing(self, descriptions: Mapping[str, str]) -> dict[str, str]:
        """Return the `descriptions` without an instrument, and mark them as created."""
        missing = {name: text for name, text in descriptions.items() if name not in self._made}
        self._made.update(missing)
        return missing


_INSTRUMENTS: Final = _Instruments()


def _make(descriptions: Mapping[str, str]) -> None:
    meter = get_meter("penstock", __version__)
    for name, description in descriptions.items():
        grows = name.endswith(_TOTAL) and not name.endswith(_FALLING)
        create = meter.create_observable_counter if grows else meter.create_observable_gauge
        try:
            create(name, [partial(_INSTRUMENTS.observe, name)], description=description)
        except Exception as error:  # the SDK rejected the name; the other metrics are still exported
            _log.warning("OpenTelemetry does not export the metric %s: %s", name, error)


def _name(group: str, name: str) -> str:
    """Return the OpenTelemetry name of the metric `name` of a group.

    Kafka class: TelemetryMetricNamingConvention.
    """
    place = group.lower().replace("-", ".").replace(".metrics", "")
    return _ILLEGAL.sub("_", f"{_PREFIX}.{place}.{name.lower().replace('-', '.')}")
