"""The answers of one operator on their way to brokers, by the partition of their task.

It lives in the loop of the calls.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial

from penstock.host.calls.answer_writer import AnswerWriter, CallAnswer
from penstock.host.calls.lines import Call
from penstock.record import TopicPartition


class LeavingAnswers:
    """Hands answers to the writer, and counts those that brokers do not have yet.

    Args:
        topic: the name of the answers topic.
        writer: writes the answers.
        settled: called in the loop after each answer that is written, or lost.
    """

    def __init__(self, topic: str, writer: AnswerWriter, settled: Callable[[], None]) -> None:
        self._topic = topic
        self._writer = writer
        self._settled = settled
        self._loop = asyncio.get_running_loop()
        self._unwritten: Counter[int] = Counter()
        self._waiting: defaultdict[int, list[Callable[[], None]]] = defaultdict(list)

    def __len__(self) -> int:
        return self._unwritten.total()

    def write(self, call: Call) -> None:
        """Write the answer of a call."""
        assert call.answer is not None
        self._unwritten[call.partition] += 1
        record = CallAnswer(
            TopicPartition(self._topic, call.partition),
            call.sequence.to_bytes(8, "big"),
            call.answer,
            max(call.record.timestamp, 0),
        )
        self._writer.write(record, partial(_in, self._loop, partial(self._written, call.partition)))

    def when_written(self, partition: int, done: Callable[[], None]) -> None:
        """Call `done` when no answer of a partition is on its way, perhaps at once."""
        if partition in self._unwritten:
            self._waiting[partition].append(done)
        else:
            done()

    def _written(self, partition: int) -> None:
        """Note that an answer of a partition needs no memory any more."""
        self._unwritten[partition] -= 1
        if not self._unwritten[partition]:
            del self._unwritten[partition]
            for done in self._waiting.pop(partition, ()):
                done()
        self._settled()


def _in(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:  # the loop is closed
        return
