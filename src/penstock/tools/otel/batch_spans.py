"""A span for each batch of a task, with links to the producers' spans.

It follows OpenTelemetry's conventions for messaging.

A batch has records of many traces, so its span has its own trace and links to theirs. The links come from the header
`traceparent` of the records (W3C Trace Context) and are limited in number. The headers themselves are not changed:
output is the same with and without tracing, on every host and in every replay. For the same reason, an error of a
sampler or of a span processor does not fail the batch: it is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Final

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Tracer, get_current_span, get_tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock import __version__
from penstock.config import StreamsConfig
from penstock.log_context import current_work
from penstock.record import RecordBatch, TopicPartition
from penstock.tools.otel.setup import set_up
from penstock_broker.common.log_limits import limit_rate

_log = limit_rate(logging.getLogger(__name__))

_TRACEPARENT: Final = "traceparent"
_NAMES: Final = frozenset((_TRACEPARENT, "tracestate"))
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class BatchSpans:
    """Creates the spans of the batches of tasks (implements BatchTracing).

    Args:
        config: penstock.otel.setup, ConfigError if it fails; penstock.otel.links.max, and application.id.
    """

    def __init__(self, config: StreamsConfig) -> None:
        set_up(config)
        self._tracer = get_tracer("penstock", __version__)
        self._most_links: int = config["penstock.otel.links.max"]
        self._attributes: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
        }
        if (group := config["application.id"]) is not None:
            self._attributes["messaging.consumer.group.name"] = group

    def batch(self) -> BatchSpan:
        """Return the span of the next batch; it begins with the first records."""
        work = {f"penstock.{name}": value for name, value in current_work()._asdict().items() if value != ""}
        return BatchSpan(self._tracer, {**self._attributes, **work}, self._most_links)


class BatchSpan:
    """The span of one batch; a batch without records has no span (implements BatchTrace).

    Args:
        tracer: the tracer of this process.
        attributes: of the span.
        most_links: the maximum number of links.
    """

    def __init__(self, tracer: Tracer, attributes: dict[str, str | int], most_links: int) -> None:
        self._tracer = tracer
        self._attributes = attributes
        self._most_links = most_links
        self._block = ExitStack()
        self._span: Span | None = None
        self._seen: set[bytes] = set()
        self._partitions: dict[TopicPartition, None] = {}
        self._records = 0

    def take(self, partitions: Sequence[TopicPartition], batch: RecordBatch) -> None:
        """Count the records of the next `batch`, from `partitions`, and link their producers."""
        self._partitions.update(dict.fromkeys(partitions))
        self._records += len(batch)
        with _errors_logged():
            self._trace(partitions, batch)

    def _trace(self, partitions: Sequence[TopicPartition], batch: RecordBatch) -> None:
        if self._span is None:
            self._span = self._block.enter_context(
                self._tracer.start_as_current_span(
                    f"process {partitions[0].topic}",
                    context=Context(),  # a new trace, even within a test's span
                    kind=SpanKind.CONSUMER,
                    attributes=self._attributes,
                    links=[Link(producer) for producer in self._producers(batch)],
                )
            )
        elif self._span.is_recording():
            for producer in self._producers(batch):
                self._span.add_link(producer)

    def __enter__(self) -> BatchSpan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with _errors_logged():
            if self._span is not None:
                self._describe(self._span)
                if kind is not None:
                    self._span.set_attribute("error.type", kind.__qualname__)
        with _errors_logged():
            self._block.__exit__(kind, error, traceback)

    def _describe(self, span: Span) -> None:
        """Set the attributes of the whole batch."""
        span.set_attribute("messaging.batch.message_count", self._records)
        topics = {topic for topic, _ in self._partitions}
        if len(topics) > 1:
            span.update_name("process")
            return
        span.set_attribute("messaging.destination.name", topics.pop())
        if len(self._partitions) == 1:
            (only,) = self._partitions
            span.set_attribute("messaging.destination.partition.id", str(only.partition))

    def _producers(self, batch: RecordBatch) -> Iterator[SpanContext]:
        """Yield the producers' spans of `batch` without a link so far."""
        for headers in batch.headers or ():
            if len(self._seen) >= self._most_links:
                return
            carrier = {name: value for name, value in headers if name in _NAMES and value is not None}
            parent = carrier.get(_TRACEPARENT)
            if parent is None or parent in self._seen:
                continue
            self._seen.add(parent)
            texts = {name: value.decode("ascii", "replace") for name, value in carrier.items()}
            producer = get_current_span(_PROPAGATOR.extract(texts, Context())).get_span_context()
            if producer.is_valid:
                yield producer


@contextmanager
def _errors_logged() -> Iterator[None]:
    """Log an error of OpenTelemetry, such as from a sampler or span processor, and continue."""
    try:
        yield
    except Exception:
        _log.warning("A span of a batch is missing or incomplete.", exc_info=True)
