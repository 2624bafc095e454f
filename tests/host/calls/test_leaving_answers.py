"""Answers on their way to brokers are counted by partition, and can be awaited."""

from __future__ import annotations

import asyncio

from penstock.host.calls.leaving_answers import LeavingAnswers
from penstock.host.calls.lines import Call
from penstock.processor.calls import Answer
from penstock.record import TopicPartition
from tests.host.calls.support import TOPIC, KeptAnswers, record


def call(partition: int, sequence: int) -> Call:
    waiting = record("k", "v", sequence, partition)
    answer = Answer(sequence, waiting.digest(), 1, b"result")
    return Call(partition, sequence, waiting, turn=sequence, answer=answer)


def test_answers_are_counted_until_they_are_written() -> None:
    writer, done, settled = KeptAnswers(settles=False), list[int](), list[int]()

    async def write() -> None:
        leaving = LeavingAnswers(TOPIC, writer, lambda: settled.append(len(leaving)))
        leaving.when_written(0, lambda: done.append(-1))
        assert done == [-1]
        for partition, sequence in ((0, 1), (0, 2), (1, 1)):
            leaving.write(call(partition, sequence))
            leaving.hand_over()
        assert [each.partition for each in writer.records] == [TopicPartition(TOPIC, n) for n in (0, 0, 1)]
        for partition in (0, 1):
            leaving.when_written(partition, lambda partition=partition: done.append(partition))  # type: ignore[misc]  # a default
        for number, written in enumerate(writer.unsettled):
            written()
            await asyncio.sleep(0)
            assert len(leaving) == 2 - number
            assert done == [[-1], [-1, 0], [-1, 0, 1]][number]

    asyncio.run(write())
    assert settled == [2, 1, 0]


def test_the_answers_of_one_turn_of_the_loop_are_written_together() -> None:
    writer = KeptAnswers(settles=False)

    async def write() -> None:
        leaving = LeavingAnswers(TOPIC, writer, lambda: None)
        for sequence in (1, 2):
            leaving.write(call(0, sequence))
        assert (len(leaving), writer.records) == (2, [])
        await asyncio.sleep(0)
        assert (len(writer.records), len(writer.unsettled)) == (2, 1)
        writer.unsettled[0]()
        await asyncio.sleep(0)
        assert len(leaving) == 0

    asyncio.run(write())


def test_an_answer_that_is_written_after_the_end_of_the_loop_is_no_error() -> None:
    writer = KeptAnswers(settles=False)

    async def write() -> None:
        LeavingAnswers(TOPIC, writer, lambda: None).write(call(0, 1))
        await asyncio.sleep(0)

    asyncio.run(write())
    writer.unsettled[0]()
