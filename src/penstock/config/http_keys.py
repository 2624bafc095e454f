"""The configuration keys of an application's HTTP servers: pages and metrics."""

from __future__ import annotations

from typing import Final

from penstock.config.definition import ConfigKey, boolean, text, whole

HTTP_KEYS: Final = (
    ConfigKey(
        "penstock.metrics.prometheus.port",
        whole(0),
        None,
        "low",
        "Port at which Prometheus can read the metrics, 0 for a free one; not set: none.",
    ),
    ConfigKey(
        "penstock.metrics.prometheus.host",
        text,
        "127.0.0.1",
        "low",
        "Address of this machine on which Prometheus can read the metrics; 0.0.0.0 for all.",
    ),
    ConfigKey(
        "penstock.http.max.connections",
        whole(1),
        100,
        "low",
        "Most open connections to the port of the pages, to that of the metrics, and to that of a schema registry.",
    ),
    ConfigKey(
        "penstock.http.timeout.ms",
        whole(1),
        10_000,
        "low",
        "Time (ms) in which a connection to these ports has to send its request, or to take its answer.",
    ),
    ConfigKey(
        "penstock.ui.port",
        whole(0),
        None,
        "low",
        "Port at which the application shows itself (docs/ui.md), 0 for a free one; not set: none.",
    ),
    ConfigKey(
        "penstock.ui.host",
        text,
        "127.0.0.1",
        "low",
        "Address of this machine on which the pages are served; 0.0.0.0 for all.",
    ),
    ConfigKey(
        "penstock.ui.control",
        boolean,
        False,
        "low",
        "Whether the pages also take actions, such as pause, with the token that the application prints.",
    ),
    ConfigKey(
        "penstock.ui.savepoint.dir",
        text,
        None,
        "low",
        "Directory, or URI of a file system of pyarrow, for savepoints that are taken there; not set: none are.",
    ),
    ConfigKey(
        "penstock.ui.allowed.hosts",
        text,
        "",
        "low",
        "Names, separated by commas, by which browsers may ask for the pages beside addresses and localhost.",
    ),
)
"""See `keys`."""
