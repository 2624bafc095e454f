"""TopologyTestDriver.metrics: what a test can check of dropped records, lateness, punctuation and its own sensors."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Processor, ProcessorContext, PunctuationType, Record, Serdes, StreamsBuilder
from penstock.metrics import RecordingLevel
from penstock.testing import TopologyTestDriver

STRING = Serdes.string()
CONFIG = {"default.key.serde": STRING, "default.value.serde": STRING, "client.id": "me"}


class Checking(Processor):
    """Records the length of each value."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._lengths = context.metrics().add_latency_rate_total_sensor("shop", "orders", "check", RecordingLevel.INFO)
        context.schedule(10_000, PunctuationType.WALL_CLOCK_TIME, lambda _: None)

    def process(self, record: Record[Any, Any]) -> None:
        self._lengths.record(len(record.value))


def values(driver: TopologyTestDriver) -> dict[tuple[str, ...], Any]:
    return {
        (name.name, *(tag for key, tag in name.tag_items if key != "thread-id")): metric.metric_value
        for name, metric in driver.metrics().items()
    }


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_a_driver_shows_the_metrics_of_its_task(execution: str) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.process(Checking)
    stream.group_by_key().count()
    with TopologyTestDriver(builder.build(), {**CONFIG, "penstock.execution": execution}, 0) as driver:
        lines = driver.create_input_topic("in", STRING, STRING)
        assert values(driver)["process-total", "me", "0_0"] == 0
        for key, text, timestamp in (("k", "abc", 1_000), ("k", "a", 400), (None, "ab", 1_000)):
            lines.pipe_input(key, text, timestamp)
        driver.advance_wall_clock_time(20_000)
        found = values(driver)
        assert found["process-total", "me", "0_0"] == 3
        assert found["dropped-records-total", "me", "0_0"] == 1
        assert found["record-lateness-max", "me", "0_0"] == 600
        assert found["record-lateness-avg", "me", "0_0"] == 200
        assert found["punctuate-total", "me", "0_0"] == 1
        assert found["check-total", "me", "orders"] == 3
        assert found["check-latency-avg", "me", "orders"] == 2
        assert found["check-latency-max", "me", "orders"] == 3
        assert found["check-rate", "me", "orders"] == pytest.approx(3 / 30)
        driver.advance_wall_clock_time(600_000)
        later = values(driver)
        assert later["check-total", "me", "orders"] == 3
        assert later["check-rate", "me", "orders"] == 0
