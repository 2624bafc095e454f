"""The inbox of calls: numbers, commits, limits, and errors of serdes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    BufferConfig,
    CallContext,
    Calls,
    Consumed,
    KStream,
    KTable,
    Processor,
    ProcessorContext,
    Produced,
    PunctuationType,
    Record,
    Serdes,
    StreamsBuilder,
    Suppressed,
)
from penstock.errors import StreamsError
from penstock.state.memory import MemoryBase
from penstock.task.stream_task import StreamTask
from penstock.testing import TopologyTestDriver
from tests.task.calls import add_answers, answer_to, calling, commit, service
from tests.task.topologies import batch_of, task_of


def numbers(task: StreamTask) -> list[tuple[int, str]]:
    """Return the number and the id of each call that may be made."""
    return [(number, record.call_id) for number, record in task.take_calls().get("call", [])]


def add(task: StreamTask, texts: str, first_offset: int) -> None:
    task.add_records("in", 0, batch_of(*((each, each, 5) for each in texts), first_offset=first_offset))
    task.process()
    commit(task)


def test_numbers_ascend_and_do_not_occur_again() -> None:
    base = MemoryBase()
    task = task_of(calling(), base=base)
    add(task, "ab", 0)
    calls = task.take_calls()["call"]
    add_answers(task, *(answer_to(call, "x") for call in calls))
    task.process()
    done = task.prepare_commit()
    task.committed(done.changes, b"2")
    assert done.checkpoint.processor_metadata == {"call-calls/next": 3}
    again = task_of(calling(), base=base, checkpoint=done.checkpoint)
    add(again, "c", 2)
    assert numbers(again) == [(3, "in-0-2-call")]


def test_records_of_the_store_are_known_from_new_ones() -> None:
    base = MemoryBase()
    task = task_of(calling(), base=base)
    add(task, "ab", 0)
    assert [record.was_waiting for _, record in task.take_calls()["call"]] == [False, False]
    again = task_of(calling(), base=base)
    add(again, "c", 2)
    assert [record.was_waiting for _, record in again.take_calls()["call"]] == [True, True, False]


def test_records_of_one_input_record_are_numbered() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(Serdes.string(), Serdes.string()))
    called = stream.flat_map_values(lambda value: [value, value]).map_values(service, "call", calls=Calls())
    called.to("out", Produced.with_(Serdes.string(), Serdes.string()))
    task = task_of(builder.build())
    add(task, "ab", 0)
    assert numbers(task) == [(1, "in-0-0-call"), (2, "in-0-0-call:1"), (3, "in-0-1-call"), (4, "in-0-1-call:1")]


def ids_of(build: Callable[[KStream[Any, Any]], KStream[Any, Any]]) -> list[str]:
    """Return the ids of all calls of `build` for two records, in order."""
    seen: list[str] = []

    async def note(value: Any, *, call: CallContext) -> str:
        seen.append(call.idempotency_key)
        return str(value)

    text = Serdes.string()
    calls = Calls(key_serde=text, value_serde=text)
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(text, text))
    build(stream).map_values(note, "note", calls=calls).map_values(note, "last", calls=calls).foreach(print)
    config = {"application.id": "app", "default.key.serde": text, "default.value.serde": text}
    with TopologyTestDriver(builder.build(), config, 0) as driver:
        topic = driver.create_input_topic("in", text, text)
        topic.pipe_input("a", "1", timestamp=5)
        topic.pipe_input("b", "2", timestamp=6)
        driver.advance_wall_clock_time(timedelta(seconds=1))
    return seen


def test_the_id_of_a_call_after_another_one_begins_with_its_id() -> None:
    assert ids_of(lambda stream: stream.flat_map_values(lambda value: [value, value])) == [
        "in-0-0-note",
        "in-0-0-note:1",
        "in-0-0-note/last",
        "in-0-0-note:1/last",
        "in-0-1-note",
        "in-0-1-note:1",
        "in-0-1-note/last",
        "in-0-1-note:1/last",
    ]


class OnTime(Processor[Any, Any, Any, Any]):
    """Forwards two records at a time."""

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        super().init(context)
        context.schedule(timedelta(seconds=1), PunctuationType.WALL_CLOCK_TIME, self.emit)

    def process(self, record: Record[Any, Any]) -> None:
        pass

    def emit(self, now: int) -> None:
        self.context.forward(Record("p", "1", now))
        self.context.forward(Record("p", "2", now))


def suppressed(stream: KStream[Any, Any]) -> KStream[Any, Any]:
    """Emit the first record when the second one comes."""
    counts: KTable[Any, Any] = stream.group_by_key().count()
    return counts.suppress(Suppressed.until_time_limit(1, BufferConfig.unbounded())).to_stream().map_values(str)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda s: s.process(OnTime), ["app/0_0/note/1", "app/0_0/note/2"]),
        (lambda s: s.repartition(), ["app/0_0/note/1", "app/0_0/note/2"]),
        (suppressed, ["app/0_0/note/1"]),
    ],
)
def test_a_record_without_a_place_of_its_own_has_the_number_in_its_id(build: Any, expected: list[str]) -> None:
    assert [each for each in ids_of(build) if not each.endswith("/last")] == expected


def test_the_size_is_that_of_the_waiting_records() -> None:
    task = task_of(calling(max_records=2))
    add(task, "a", 0)
    assert not task.waits_for_answers
    add(task, "b", 1)
    assert task.waits_for_answers


def test_a_record_that_the_store_cannot_keep_fails() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(Serdes.string(), Serdes.string()))
    stream.map_values(len).map_values(service, "call", calls=Calls(key_serde=Serdes.string())).to("out")
    task = task_of(builder.build(), config={"default.value.serde": Serdes.string()})
    task.add_records("in", 0, batch_of(("a", "text", 5)))
    with pytest.raises(StreamsError, match="processor=call-calls") as raised:
        task.process()
    assert "Name the serde of the values in Calls, with value_serde=" in str(raised.value.__cause__)
