"""A span for each batch, with links to the producers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from threading import Event
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.trace import StatusCode, get_current_span, get_tracer

from penstock import JoinWindows, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, StreamsError
from penstock.host.measuring.batch_tracing import batch_tracing
from penstock.log_context import logged_as
from penstock.plan.topology import Topology
from penstock.record import Headers, RecordBatch
from penstock.task.stream_task import StreamTask
from tests.support.telemetry import Telemetry, linked, name_of, produced
from tests.task.topologies import task_of

ON = {"penstock.otel.enabled": True}


def traced(topology: Topology, config: Mapping[str, Any] | None = None) -> StreamTask:
    settings = {**ON, **(config or {})}
    tracing = batch_tracing(StreamsConfig({"application.id": "app", **settings}))
    return task_of(topology, config=settings, tracing=tracing)


def batch(headers: list[Headers], start: int = 0) -> RecordBatch:
    return RecordBatch.of([(b"k", b"v", start + row, start + row, each) for row, each in enumerate(headers)])


def copy(topic: str = "orders") -> Topology:
    builder = StreamsBuilder()
    builder.stream(topic).to("out")
    return builder.build()


def test_a_batch_is_a_span_with_links_to_its_producers(telemetry: Telemetry) -> None:
    first, headers = produced()
    second, others = produced()
    task = traced(copy())
    task.add_records("orders", 0, batch([headers, (), others, headers]))
    with logged_as("app", "0_0", 7), get_tracer("shop").start_as_current_span("test"):
        task.process()
    (span,) = telemetry.batches()
    assert span.name == "process orders"
    assert span.parent is None
    assert linked(span) == [name_of(first), name_of(second)]
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "app",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.batch.message_count": 4,
        "penstock.application": "app",
        "penstock.task": "0_0",
        "penstock.epoch": 7,
    }
    assert span.status.status_code is StatusCode.UNSET


def test_a_batch_of_several_topics_is_one_span(telemetry: Telemetry) -> None:
    builder = StreamsBuilder()
    builder.stream("a").join(
        builder.stream("b"), lambda one, other: one + other, JoinWindows.of_time_difference_with_no_grace(5)
    ).to("out")
    producers = [produced() for _ in range(4)]
    task = traced(builder.build())
    task.add_records("a", 0, batch([headers for _, headers in producers[:2]]))
    task.add_records("b", 0, batch([headers for _, headers in producers[2:]], start=1_000))
    task.process()
    (span,) = telemetry.batches()
    assert span.name == "process"
    assert linked(span) == [name_of(context) for context, _ in producers]
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 4
    assert "messaging.destination.name" not in span.attributes


@pytest.mark.parametrize("most", [0, 2])
def test_the_number_of_links_is_limited(telemetry: Telemetry, most: int) -> None:
    producers = [produced() for _ in range(4)]
    task = traced(copy(), {"penstock.otel.links.max": most})
    task.add_records("orders", 0, batch([headers for _, headers in producers]))
    task.process()
    (span,) = telemetry.batches()
    assert linked(span) == [name_of(context) for context, _ in producers[:most]]


def test_headers_that_name_no_span_are_no_links(telemetry: Telemetry) -> None:
    producer, headers = produced()
    wrong: list[Headers] = [
        (("traceparent", b"nonsense"),),
        (("traceparent", b"\xff\xfe"),),
        (("traceparent", None),),
        (("traceparent", b"00-00000000000000000000000000000000-0000000000000000-01"),),
        (("tracestate", b"a=b"),),
        (*headers, ("tracestate", b"vendor=1")),
    ]
    task = traced(copy())
    task.add_records("orders", 0, batch(wrong))
    task.process()
    (span,) = telemetry.batches()
    (link,) = span.links
    assert name_of(link.context) == name_of(producer)
    assert link.context.trace_state.get("vendor") == "1"


def test_without_records_there_is_no_span(telemetry: Telemetry) -> None:
    traced(copy()).process()
    assert telemetry.batches() == []


def test_functions_of_the_program_run_within_the_span(telemetry: Telemetry) -> None:
    seen = []
    builder = StreamsBuilder()
    builder.stream("orders").peek(lambda key, value: seen.append(get_current_span().get_span_context())).to("out")
    task = traced(builder.build())
    task.add_records("orders", 0, batch([()]))
    task.process()
    (span,) = telemetry.batches()
    assert seen == [span.get_span_context()]
    assert not get_current_span().get_span_context().is_valid


def test_a_batch_that_fails_says_so(telemetry: Telemetry) -> None:
    def fail(value: Any) -> Any:
        raise ValueError("no")

    builder = StreamsBuilder()
    builder.stream("orders").map_values(fail).to("out")
    task = traced(builder.build())
    task.add_records("orders", 0, batch([(), ()]))
    with pytest.raises(StreamsError):
        task.process()
    (span,) = telemetry.batches()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "StreamsError"
    assert [event.name for event in span.events] == ["exception"]


class FailingProcessor(SpanProcessor):
    """Fails at the start of each span, or at its end."""

    def __init__(self, step: str) -> None:
        self.step = step

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self._fail("start")

    def on_end(self, span: ReadableSpan) -> None:
        self._fail("end")

    def _fail(self, step: str) -> None:
        if step == self.step:
            raise OSError("no collector")


@pytest.mark.parametrize("step", ["start", "end"])
def test_a_span_processor_that_fails_ends_no_batch_and_hides_no_error(
    step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    provider = TracerProvider()
    provider.add_span_processor(FailingProcessor(step))
    monkeypatch.setattr("penstock.tools.otel.batch_spans.get_tracer", provider.get_tracer)
    builder = StreamsBuilder()
    builder.stream("orders").map_values(lambda value: value[0] and value).to("out")
    task = traced(builder.build())
    task.add_records("orders", 0, batch([()]))
    with caplog.at_level(logging.WARNING):
        task.process()
    assert len(list(task.drain_in_order())) == 1
    assert [line.getMessage() for line in caplog.records] == ["A span of a batch is missing or incomplete."]
    assert not get_current_span().get_span_context().is_valid
    task.add_records("orders", 0, RecordBatch.of([(b"k", b"", 1, 1, ())]))
    with pytest.raises(StreamsError, match="IndexError"):
        task.process()
    assert not get_current_span().get_span_context().is_valid


def test_output_is_the_same_with_and_without_spans() -> None:
    headers = [produced()[1], (), produced()[1]]
    outputs = []
    for task in (traced(copy()), task_of(copy())):
        task.add_records("orders", 0, batch(headers))
        task.process()
        outputs.append(list(task.drain_in_order()))
    assert outputs[0] == outputs[1]
    assert [sent.headers for sent in outputs[0]] == headers


def test_the_providers_are_set_up_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.tools.otel.setup._is_set_up", Event())
    calls = []

    def set_up() -> None:
        calls.append("set up")

    for _ in range(3):
        assert batch_tracing(StreamsConfig({**ON, "penstock.otel.setup": set_up})) is not None
    assert calls == ["set up"]


def test_a_setup_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.tools.otel.setup._is_set_up", Event())

    def set_up() -> None:
        raise OSError("no collector")

    with pytest.raises(ConfigError, match=r"The function of penstock\.otel\.setup failed: OSError: no collector"):
        batch_tracing(StreamsConfig({**ON, "penstock.otel.setup": set_up}))
