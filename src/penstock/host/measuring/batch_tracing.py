"""Tracing of task batches; its packages are loaded only if it is configured."""

from __future__ import annotations

from penstock.config import StreamsConfig
from penstock.extras import load
from penstock.task.batch_tracing import BatchTracing


def batch_tracing(config: StreamsConfig) -> BatchTracing | None:
    """Return a factory of spans for batches if `penstock.otel.enabled` is true, else None.

    Raises ConfigError if a package is missing, or `penstock.otel.setup` fails.
    """
    if not config["penstock.otel.enabled"]:
        return None
    spans: BatchTracing = load("penstock.tools.otel.batch_spans", "penstock.otel.enabled").BatchSpans(config)
    return spans
