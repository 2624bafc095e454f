"""The answers of one operator on their way to brokers, by the partition of their task.

It lives in the loop of the calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from penstock.host.calls.answer_writer import AnswerWriter, CallAnswer
from penstock.host.calls.lines import Call
from penstock.record import TopicPartition


class LeavingAnswers:
    """Hands answers to the writer, and counts those that brokers do not have yet.

    Args:
        topic: the name of the answers topic.
        writer: writes the answers.
        settled: called in the loop after answers are written, or lost.
    """

    def __init__(self, topic: str, writer: AnswerWriter, settled: Callable[[], None]) -> None:
        self._topic = topic
        self._writer = writer
        self._settled = settled
        self._loop = asyncio.get_running_loop()
        self._unwritten: Counter[int] = Counter()
        self._ready: list[CallAnswer] = []  # those of this turn of the loop
        self._lock = threading.Lock()
        self._done: list[int] = []  # partitions of answers that are written, and of which the loop has yet to learn
        self._waiting: defaultdict[int, list[Callable[[], None]]] = defaultdict(list)

    def __len__(self) -> int:
        return self._unwritten.total()

    def write(self, call: Call) -> None:
        """Write the answer of a call, with all others of this turn of the loop."""
        assert call.answer is not None
        self._unwritten[call.partition] += 1
        record = CallAnswer(
            TopicPartition(self._topic, call.partition),
            call.sequence.to_bytes(8, "big"),
            call.answer,
            max(call.record.timestamp, 0),
        )
        if not self._ready:
            self._loop.call_soon(self.hand_over)
        self._ready.append(record)

    def hand_over(self) -> None:
        """Give the answers of this turn of the loop to the writer."""
        ready, self._ready = self._ready, []
        if ready:
            self._writer.write(ready, partial(self._written, [each.partition.partition for each in ready]))

    def when_written(self, partition: int, done: Callable[[], None]) -> None:
        """Call `done` when no answer of a partition is on its way, perhaps at once."""
        if partition in self._unwritten:
            self._waiting[partition].append(done)
        else:
            done()

    def _written(self, partitions: Sequence[int]) -> None:
        """Note in any thread that answers are written; the loop learns of several at once, as it has to be woken."""
        with self._lock:
            is_first = not self._done
            self._done.extend(partitions)
        if is_first:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        """Take written answers from the count."""
        with self._lock:
            written, self._done = Counter(self._done), []
        self._unwritten -= written  # which also removes partitions without answers
        for partition in written:
            if partition not in self._unwritten:
                for done in self._waiting.pop(partition, ()):
                    done()
        self._settled()
