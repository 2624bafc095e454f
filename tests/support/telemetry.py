"""What OpenTelemetry receives in this process, kept in memory. The API allows one provider for each process: all tests
share these."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from opentelemetry import metrics, trace
from opentelemetry.propagate import inject
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind

from penstock.record import Headers


class Telemetry(NamedTuple):
    """The memory of the exporters."""

    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    def batches(self) -> list[ReadableSpan]:
        """Return the spans of batches, in the order of their ends."""
        return [span for span in self.exporter.get_finished_spans() if span.kind is SpanKind.CONSUMER]

    def values(self) -> dict[str, dict[frozenset[tuple[str, object]], float]]:
        """Collect, and return the values of metrics by name and attributes."""
        data = self.reader.get_metrics_data()
        found: dict[str, dict[frozenset[tuple[str, object]], float]] = {}
        for metric in (
            metric
            for resource in (() if data is None else data.resource_metrics)
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ):
            for point in metric.data.data_points:
                assert isinstance(point, NumberDataPoint)
                found.setdefault(metric.name, {})[frozenset((point.attributes or {}).items())] = point.value
        return found


@cache
def _providers() -> Telemetry:
    made = Telemetry(InMemorySpanExporter(), InMemoryMetricReader())
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made.exporter))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([made.reader]))
    return made


def recorded() -> Iterator[Telemetry]:
    """Yield what OpenTelemetry receives from now on: the content of a fixture."""
    found = _providers()
    found.exporter.clear()
    yield found
    found.exporter.clear()


def produced() -> tuple[SpanContext, Headers]:
    """Return the span of a producer, and the headers of its record."""
    carrier: dict[str, str] = {}
    with trace.get_tracer("shop").start_as_current_span("send orders", kind=SpanKind.PRODUCER) as span:
        inject(carrier)
    return span.get_span_context(), tuple((name, value.encode()) for name, value in carrier.items())


def trace_of(headers: Headers) -> str | None:
    """Return the trace id that the header `traceparent` of a record names, None without one."""
    parents = [value for name, value in headers if name == "traceparent" and value is not None]
    return parents[-1].decode().split("-")[1] if parents else None


def name_of(span: SpanContext) -> tuple[str, str]:
    """Return the ids of the trace and the span, as headers write them."""
    return f"{span.trace_id:032x}", f"{span.span_id:016x}"


def linked(span: ReadableSpan) -> list[tuple[str, str]]:
    """Return the ids of traces and spans that the links of `span` lead to."""
    return [name_of(link.context) for link in span.links]
