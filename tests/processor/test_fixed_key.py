"""Processors that keep keys: their records, their context and their adapter."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import (
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyProcessorSupplier,
    FixedKeyRecord,
    PunctuationType,
    Record,
)
from penstock.errors import StreamsError
from penstock.processor.fixed_key import FixedKeyAdapter
from penstock.testing import CapturedCall, CapturedForward, MockProcessorContext

RECORD = Record("k", "v", 5, (("h", b"1"),))


def test_copies_of_a_record_keep_its_key() -> None:
    record = FixedKeyRecord(RECORD)
    changed = record.with_value(7).with_timestamp(9).with_headers([("i", None)])
    assert (changed.key, changed.value, changed.timestamp, changed.headers) == ("k", 7, 9, (("i", None),))
    assert (record.key, record.value, record.timestamp, record.headers) == ("k", "v", 5, (("h", b"1"),))
    assert not hasattr(record, "with_key")
    with pytest.raises(StreamsError, match="Malformed Record"):
        record.with_timestamp(-1)


def test_records_are_equal_if_their_content_is() -> None:
    record = FixedKeyRecord(RECORD)
    assert record == FixedKeyRecord(Record("k", "v", 5, (("h", b"1"),)))
    assert hash(record) == hash(FixedKeyRecord(RECORD))
    assert record != FixedKeyRecord(RECORD.with_value("w"))
    assert record != RECORD
    assert repr(record) == f"FixedKey{RECORD!r}"
    assert record.as_record() is RECORD


class Upper(FixedKeyProcessor):
    closed = False

    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        self.context.forward(record.with_value(record.value.upper()), "child")

    def answered(self, record: FixedKeyRecord[Any, Any], answer: Any) -> None:
        self.context.forward(record.with_value(answer))

    def close(self) -> None:
        self.closed = True


def test_the_adapter_runs_the_processor_with_records_of_fixed_keys() -> None:
    adapter, context = FixedKeyAdapter(Upper), MockProcessorContext()
    adapter.init(context)
    adapter.process(RECORD)
    adapter.answered(RECORD, 7)
    assert context.forwarded() == [
        CapturedForward(RECORD.with_value("V"), "child"),
        CapturedForward(RECORD.with_value(7)),
    ]
    adapter.close()
    assert isinstance(adapter.inner, Upper)
    assert adapter.inner.closed


def test_a_record_whose_key_may_have_changed_is_not_forwarded() -> None:
    context = FixedKeyProcessorContext(MockProcessorContext())
    with pytest.raises(TypeError, match=r"Expected a FixedKeyRecord, such as record.with_value\(...\), got Record"):
        context.forward(RECORD)  # type: ignore[arg-type]  # the mistake that is tested


def test_the_context_delegates_to_that_of_the_task() -> None:
    task = MockProcessorContext({"application.id": "app", "custom": 1}, task_id="2_3", system_time_ms=40)
    context = FixedKeyProcessorContext(task)
    context.call(len, "text")
    assert task.called() == [CapturedCall(len, "text")]
    task.set_record_metadata("in", 3, 8)
    task.set_current_stream_time_ms(30)
    assert (context.application_id, context.task_id, context.key_serde, context.value_serde) == (
        "app",
        "2_3",
        None,
        None,
    )
    assert (context.topic, context.partition, context.offset) == ("in", 3, 8) == context.record_metadata
    assert (context.current_stream_time_ms(), context.current_system_time_ms()) == (30, 40)
    assert (context.app_configs()["custom"], context.metrics()) == (1, task.metrics())
    context.send("topic", "k", "v")
    context.schedule(10, PunctuationType.STREAM_TIME, print, 5)
    context.commit()
    assert [(record.topic, record.key, record.value) for record in task.sent()] == [("topic", "k", "v")]
    assert [(each.interval_ms, each.start_time_ms) for each in task.scheduled_punctuators()] == [(10, 5)]
    assert task.committed()


@pytest.mark.parametrize(
    ("base", "call", "defines"),
    [(FixedKeyProcessor, lambda made: made.process(None), "process(self, record)"),
     (FixedKeyProcessorSupplier, lambda made: made.get(), "get(self)")],
)  # fmt: skip
def test_what_a_class_must_define_is_named(base: Any, call: Any, defines: str) -> None:
    with pytest.raises(NotImplementedError) as caught:
        call(type("Mine", (base,), {})())
    assert str(caught.value) == f"Mine must define {defines}."
