"""A task with one operator with calls, between the topics in and out, and answers for it."""

from __future__ import annotations

from typing import Any

from penstock import Calls, Consumed, Produced, Serdes, StreamsBuilder, Topology
from penstock.processor.calls import Answer
from penstock.processor.waiting_records import Waiting
from penstock.record import RecordBatch
from penstock.serdes.answers import PlainAnswerSerde
from penstock.task.stream_task import StreamTask

STRING = Serdes.string()
ANSWERS = "test-call-answers"


async def service(value: str) -> str:
    raise AssertionError("a task makes no calls")


def calling(**options: Any) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(STRING, STRING))
    stream.map_values(service, "call", calls=Calls(**options)).to("out", Produced.with_(STRING, STRING))
    return builder.build()


def answer_to(waiting: Waiting, result: str) -> Answer:
    sequence, record = waiting
    data = PlainAnswerSerde().serialize(ANSWERS, result)
    return Answer(sequence, record.digest(), 1, data)


def failure_of(waiting: Waiting) -> Answer:
    sequence, record = waiting
    return Answer(sequence, record.digest(), 1, None, "OSError: no answer")


def add_answers(task: StreamTask, *answers: Answer, first_offset: int = 0, timestamp: int = 0) -> None:
    rows: list[Any] = [
        (each.sequence.to_bytes(8, "big"), each.pack(), timestamp, first_offset + number, ())
        for number, each in enumerate(answers)
    ]
    task.add_records(ANSWERS, 0, RecordBatch.of(rows))


def commit(task: StreamTask) -> None:
    task.committed(task.prepare_commit().changes, b"stamp")
