"""OpenTelemetry that is switched off costs nothing, and one that is missing is named."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

import pytest

from penstock import KafkaStreams, Topology, extras
from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from penstock.host.measuring.batch_tracing import batch_tracing
from penstock.record import RecordBatch
from tests.support.telemetry import Telemetry, produced
from tests.task.topologies import task_of
from tests.test_streams import CONFIG, TestHost
from tests.tools.otel.test_batch_spans import copy

_PROGRAM = """
import sys
from penstock import Serdes, StreamsBuilder
from penstock.testing import TopologyTestDriver
import penstock.host.spark.worker.task_epoch, penstock.host.threads.host, penstock.streams

builder = StreamsBuilder()
builder.stream("in").group_by_key().count().to_stream().to("out")
text = Serdes.string()
with TopologyTestDriver(builder.build(), {"default.key.serde": text, "default.value.serde": text}) as driver:
    driver.create_input_topic("in", text, text).pipe_input("a", "b")
print(sorted(name for name in sys.modules if name.startswith(("opentelemetry", "penstock.tools.otel"))))
"""


def test_off_it_imports_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def calls(records: int, config: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many calls of functions in Python it takes to process so many records in one batch, and how many of
    these are of modules for tracing."""
    tracing = batch_tracing(StreamsConfig(config, environment={}))
    task = task_of(copy(), config=config, tracing=tracing)
    task.add_records("orders", 0, RecordBatch.of([(b"k", b"v", row, row, produced()[1]) for row in range(records)]))
    counted = of_tracing = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal counted, of_tracing
        if event == "call":
            counted += 1
            of_tracing += "telemetry" in frame.f_code.co_filename or "tracing" in frame.f_code.co_filename

    gc.disable()  # callbacks of a collection, which Hypothesis has, are calls too
    sys.setprofile(count)
    try:
        task.process()
    finally:
        sys.setprofile(None)
        gc.enable()
    return counted, of_tracing


def test_off_it_costs_no_call(telemetry: Telemetry) -> None:
    calls(100, {})  # the first time, modules are loaded
    assert calls(100, {}) == calls(200, {})
    assert calls(200, {})[1] == 0


def test_on_it_costs_calls_for_each_batch_and_link_but_not_for_each_record(telemetry: Telemetry) -> None:
    config = {"penstock.otel.enabled": True, "penstock.otel.links.max": 1}
    calls(1, config)
    assert calls(1, config)[1] == calls(100, config)[1] > 0


def test_where_the_package_is_missing_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_opentelemetry(module: str) -> None:
        assert module.startswith("penstock.tools.otel.")
        raise ModuleNotFoundError("No module named 'opentelemetry'", name="opentelemetry")

    host = TestHost()
    monkeypatch.setattr("penstock.streams.open_host", host.open)
    monkeypatch.setattr(extras, "import_module", no_opentelemetry)
    monkeypatch.delitem(sys.modules, "opentelemetry", raising=False)
    message = (
        r"^penstock\.otel\.enabled needs the package opentelemetry, which is not installed: "
        r"pip install 'penstock-streams\[otel\]'\.$"
    )
    streams = KafkaStreams(Topology().add_source("source", "in"), {**CONFIG, "penstock.otel.enabled": True})
    with pytest.raises(ConfigError, match=message):
        streams.start()
    assert host.calls == []
    with pytest.raises(ConfigError, match=message):
        batch_tracing(StreamsConfig({"penstock.otel.enabled": True}))
