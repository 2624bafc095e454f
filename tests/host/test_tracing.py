"""Spans of batches, and traces that go on through state, on each host."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import orjson
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.trace import get_tracer_provider, set_tracer_provider

from penstock import BufferConfig, Consumed, Grouped, KafkaStreams, Produced, Serdes, StreamsBuilder, Suppressed
from penstock.plan.topology import Topology
from tests.host.support import WITH_A_SESSION, InputRecord, Program, Runner, wait_for
from tests.host.test_topologies import word_count
from tests.support.telemetry import Telemetry, linked, name_of, produced, trace_of

pytestmark = pytest.mark.one_broker

STRING = Serdes.string()
ON = {
    "penstock.otel.enabled": True,
    "dsl.store.format": "headers",
    "default.key.serde": STRING,
    "default.value.serde": STRING,
}


def orders_by_customer(orders: str, customers: str, target: str) -> Topology:
    builder = StreamsBuilder()
    both = Consumed.with_(STRING, STRING)
    names = builder.table(customers, both)
    counts = (
        builder.stream(orders, both)
        .group_by(lambda key, customer: customer, Grouped.with_(STRING, STRING).with_name("customer"))
        .count()
    )
    joined = counts.join(names, lambda count, name: f"{name}: {count}")
    last: Suppressed = Suppressed.until_time_limit(50, BufferConfig.unbounded())
    joined.suppress(last).to_stream().to(target, Produced.with_(STRING, STRING))
    return builder.build()


@pytest.mark.partitions(1, 1)
def test_a_trace_goes_from_input_to_output_through_count_join_and_suppress(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    unique_name: Callable[[str], str],
    telemetry: Telemetry,
) -> None:
    source, target = topics
    names = unique_name("customers")
    runner.create_topics({names: 1})
    customers = [f"c{number}" for number in range(10)]
    runner.write(names, [InputRecord(each.encode(), each.upper().encode(), 1_000) for each in (*customers, "last")])
    program = start(orders_by_customer(source, names, target), runner.config(application, ON))
    program.run_to_end()
    producers = {customer: produced() for customer in customers}
    written = [
        InputRecord(b"order", customer.encode(), 1_010 + number, headers=headers)
        for number, (customer, (_, headers)) in enumerate(producers.items())
    ]
    runner.write(source, written)
    program.run_to_end()
    assert runner.read(target) == []
    program.restart()  # what is suppressed comes from the store
    runner.write(source, [InputRecord(b"order", b"last", 2_000)])
    program.run_to_end()

    found = {record.value: record for record in runner.read(target)}
    assert found.keys() == {f"{customer.upper()}: 1".encode() for customer in customers}
    for customer, (producer, headers) in producers.items():
        record = found[f"{customer.upper()}: 1".encode()]
        assert record.headers == headers
        assert trace_of(record.headers) == name_of(producer)[0]
    links: dict[str, set[tuple[str, str]]] = {}
    records: dict[str, int] = {}
    for span in telemetry.batches():
        attributes: dict[str, Any] = dict(span.attributes or {})
        assert attributes["messaging.consumer.group.name"] == attributes["penstock.application"] == application
        assert attributes["penstock.epoch"] > 0
        task = attributes["penstock.task"]
        links.setdefault(task, set()).update(linked(span))
        records[task] = records.get(task, 0) + attributes["messaging.batch.message_count"]
    assert sum(records.values()) == 2 * 11 + 11  # orders before and behind the repartition topic, and customers
    assert list(links.values()) == [{name_of(producer) for producer, _ in producers.values()}] * 2


@pytest.mark.partitions(1, 1)
def test_a_trace_goes_through_a_foreign_key_join(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    unique_name: Callable[[str], str],
    telemetry: Telemetry,
) -> None:
    source, target = topics
    names = unique_name("customers")
    runner.create_topics({names: 1})
    builder = StreamsBuilder()
    orders, customers = builder.table(source), builder.table(names)
    joined = orders.join(customers, lambda order, name: f"{order} of {name}", foreign_key_extractor=lambda order: "c1")
    joined.to_stream().to(target)
    producers = [produced() for _ in range(3)]
    first, second, third = (headers for _, headers in producers)
    program = start(builder.build(), runner.config(application, ON))
    runner.write(names, [InputRecord(b"c1", b"Ann", 1_000, headers=first)])
    program.run_to_end()
    runner.write(source, [InputRecord(b"o1", b"tea", 1_010, headers=second)])
    program.run_to_end()
    runner.write(names, [InputRecord(b"c1", b"Bob", 1_020, headers=third)])
    program.run_to_end()
    assert [(record.value, record.headers) for record in runner.read(target)] == [
        (b"tea of Ann", second),
        (b"tea of Bob", third),
    ]


class _Lines:
    """The function of penstock.otel.setup: each process writes its spans to a file of its own in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self) -> None:
        provider = get_tracer_provider()
        if not isinstance(provider, TracerProvider):
            provider = TracerProvider()
            set_tracer_provider(provider)
        file = (self.directory / str(os.getpid())).open("a")
        provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=file, formatter=_line)))


def _line(span: ReadableSpan) -> str:
    return orjson.dumps({"name": span.name, "links": linked(span)}).decode() + "\n"


@WITH_A_SESSION
@pytest.mark.partitions(2, 1)
def test_spans_of_other_processes_and_metrics_of_all(
    runner: Runner,
    application: str,
    topics: tuple[str, str],
    tmp_path: Path,
    telemetry: Telemetry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.tools.otel.setup._is_set_up", Event())
    source, target = topics
    producer, headers = produced()
    runner.write(source, [InputRecord(None, b"a b", 1_000 + number, number, headers) for number in range(2)])
    config = runner.config(application, {**ON, "penstock.otel.setup": _Lines(tmp_path), "num.stream.threads": 2})

    def spans() -> list[dict[str, Any]]:
        found = [path for path in tmp_path.iterdir() if path.name != str(os.getpid())]
        return [orjson.loads(line) for path in found for line in path.read_text().splitlines()]

    def processed() -> dict[Any, float]:
        totals = telemetry.values().get("org.apache.kafka.stream.task.process.total", {})
        return {dict(tags)["task_id"]: value for tags, value in totals.items() if ("client_id", application) in tags}

    with KafkaStreams(word_count(source, target), config, **runner.options()):
        wait_for(lambda: len(processed()) > 2 and processed())
        of_source = wait_for(lambda: len(each := [s for s in spans() if s["name"] == f"process {source}"]) > 1 and each)
        assert [span["links"] for span in of_source] == [[list(name_of(producer))]] * 2
        # spans are there before the commit that brings the figures
        wait_for(lambda: {task: value for task, value in processed().items() if task[0] == "0"} == {"0_0": 1, "0_1": 1})
    assert processed() == {}
    assert (tmp_path / str(os.getpid())).exists()  # the function was called here too, for the metrics
