"""MockProcessorContext: what a test of one processor sees of it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import (
    FixedKeyProcessor,
    FixedKeyRecord,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    Stores,
)
from penstock.metrics import RecordingLevel
from penstock.metrics.measurements import Measurement
from penstock.processor.fixed_key import FixedKeyProcessorContext
from penstock.testing import CapturedCall, CapturedForward, MockProcessorContext

TEXT, LONG = Serdes.string(), Serdes.long()
COUNTS = Stores.key_value_store_builder(Stores.in_memory_key_value_store("counts"), TEXT, LONG)


class CountAndTick(Processor):
    """Counts by key; each minute forwards all counts and commits."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._counts = context.get_state_store("counts")
        self._schedule = context.schedule(60_000, PunctuationType.STREAM_TIME, self._tick)

    def process(self, record: Record[Any, Any]) -> None:
        if record.value == "stop":
            self._schedule.cancel()
        self._counts.put(record.key, (self._counts.get(record.key) or 0) + 1)
        self.context.forward(record.with_value(f"{self.context.topic}/{self.context.offset}"), "seen")

    def _tick(self, now: int) -> None:
        with self._counts.all() as entries:
            for key, count in entries:
                self.context.forward(Record(key, count, now))
        self.context.commit()


def _processor() -> tuple[CountAndTick, MockProcessorContext]:
    context = MockProcessorContext({"default.key.serde": TEXT})
    context.add_state_store(COUNTS)
    processor = CountAndTick()
    processor.init(context)
    return processor, context


def test_captures_what_is_forwarded_and_to_whom() -> None:
    processor, context = _processor()
    context.set_record_metadata("in", 0, 7)
    processor.process(Record("a", "x", 5))
    captured = CapturedForward(Record("a", "in/7", 5), "seen")
    assert context.forwarded() == context.forwarded("seen") == [captured]
    assert context.forwarded("other") == []
    context.reset_forwards()
    assert context.forwarded() == []


def test_a_test_calls_the_punctuators_and_looks_into_stores() -> None:
    processor, context = _processor()
    processor.process(Record("a", "x", 5))
    processor.process(Record("a", "y", 6))
    assert context.get_state_store("counts").get("a") == 2
    context.reset_forwards()
    (scheduled,) = context.scheduled_punctuators()
    assert (scheduled.interval_ms, scheduled.type, scheduled.cancelled) == (60_000, PunctuationType.STREAM_TIME, False)
    scheduled.punctuator(60_000)
    assert context.forwarded() == [CapturedForward(Record("a", 2, 60_000))]
    assert context.committed()
    context.reset_commit()
    assert not context.committed()


def test_a_cancelled_schedule_is_known() -> None:
    processor, context = _processor()
    processor.process(Record("a", "stop", 5))
    assert [each.cancelled for each in context.scheduled_punctuators()] == [True]


def test_times_are_those_that_the_test_sets() -> None:
    context = MockProcessorContext(system_time_ms=3)
    assert (context.current_system_time_ms(), context.current_stream_time_ms()) == (3, -1)
    context.set_current_system_time_ms(4)
    context.set_current_stream_time_ms(5)
    assert (context.current_system_time_ms(), context.current_stream_time_ms()) == (4, 5)
    assert (context.topic, context.partition, context.offset) == (None, -1, -1)


def test_captures_what_is_sent_to_topics() -> None:
    context = MockProcessorContext()
    context.set_current_stream_time_ms(9)
    context.send("elsewhere", "a", 1)
    assert [(sent.topic, sent.key, sent.value, sent.timestamp) for sent in context.sent()] == [("elsewhere", "a", 1, 9)]


class Shout(FixedKeyProcessor):
    """Upper-case values."""

    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        self.context.forward(record.with_value(record.value.upper()))


def test_serves_fixed_key_processors_too() -> None:
    context = MockProcessorContext()
    processor = Shout()
    processor.init(FixedKeyProcessorContext(context))
    processor.process(FixedKeyRecord(Record("a", "x", 1)))
    assert [captured.record.value for captured in context.forwarded()] == ["X"]


def test_an_interval_below_a_millisecond_is_refused() -> None:
    with pytest.raises(ValueError, match="minimum supported scheduling interval"):
        MockProcessorContext().schedule(0, PunctuationType.WALL_CLOCK_TIME, lambda now: None)


def test_a_processor_can_record_and_the_test_sees_what() -> None:
    context = MockProcessorContext()
    sensor = context.metrics().add_rate_total_sensor("shop", "orders", "check", RecordingLevel.INFO)
    sensor.record(2.0)
    (report,) = FixedKeyProcessorContext(context).metrics().take_reports()
    assert report.measured == Measurement(1, 2.0, 2.0, 2.0)


async def asked(text: str) -> int:
    return len(text)


class Asking(Processor[str, str, str, int]):
    def process(self, record: Record[str, str]) -> None:
        self.context.call(asked, record.value)
        self.context.call(asked, record.value, key="all")

    def answered(self, record: Record[str, str], answer: int) -> None:
        self.context.forward(record.with_value(answer))


def test_calls_are_captured_and_the_test_answers_them() -> None:
    context, processor = MockProcessorContext(), Asking()
    processor.init(context)
    record = Record("a", "text", 5)
    processor.process(record)
    assert context.called() == [CapturedCall(asked, "text"), CapturedCall(asked, "text", "all")]
    processor.answered(record, 7)
    assert context.forwarded() == [CapturedForward(record.with_value(7))]


def test_the_key_of_a_call_is_given_by_name() -> None:
    context: Any = MockProcessorContext()
    with pytest.raises(TypeError, match="positional argument"):
        context.call(asked, "a", "text")
    assert context.called() == []
