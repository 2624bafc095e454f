"""The calls of a process of a simulation: each takes some time, and so does its answer on the way to its topic. Which
calls may be made, and when they end, is the host's."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from penstock.host.calls.lines import Call, CallLines
from penstock.host.deployment.layout import Layout
from penstock.processor.call_function import call_function
from penstock.processor.waiting_records import Waiting
from penstock.record import PartitionBatch, TopicPartition
from tests.host.threads.simulation.broker import Broker, Row, batch_of
from tests.host.threads.simulation.programs import answered
from tests.host.threads.simulation.world import World

_MOST_CALL_MS = (100, 100, 1_500, 8_000)
"""One of these bounds each call."""
_MOST_WRITE_MS = (50, 50, 500, 8_000)
_REPEATED = 0.1
"""The share of writes whose answer is lost, so that they are repeated."""
_UNDER_WAY = 0.3
"""The share of writes that arrive whatever becomes of the process."""


class Caller(Protocol):
    """The process that makes the calls."""

    def later(self, milliseconds: int, call: Callable[[], object]) -> None:
        """Let a thread make a call then, unless the process is dead."""
        ...

    def wait(self, milliseconds: int) -> None:
        """Let the calling thread wait; raises Killed if the process dies meanwhile."""
        ...


class _Answer(NamedTuple):
    node: str
    place: TopicPartition
    row: Row


class SimulatedCallRunner:
    """Makes calls (implements what InstanceCalls uses of CallRunner)."""

    def __init__(self, world: World, broker: Broker, layout: Layout, caller: Caller) -> None:
        self._world, self._broker, self._caller = world, broker, caller
        made = {topic: calls for spec in layout.topology.subtopologies for topic, calls in spec.answers_topics.items()}
        serdes = layout.config["default.key.serde"], layout.config["default.value.serde"]
        self._topics = {calls.node: topic for topic, calls in made.items()}
        self._lines = {calls.node: CallLines(calls.rules.order) for calls in made.values()}
        self._functions = {calls.node: call_function(calls, topic, "app", *serdes) for topic, calls in made.items()}
        self._leaving: deque[_Answer] = deque()
        self._unwritten = Counter[tuple[str, int]]()
        self._is_paused = self._is_writing = False

    def add(self, node: str, partition: int, entries: Sequence[Waiting]) -> None:
        for sequence, record in entries:
            if not record.was_waiting:  # at least once, a restored store may be ahead of the offsets
                committed = self._broker.committed[TopicPartition(record.topic or "", record.partition)]
                assert committed.offset > record.offset, f"{node} is called before the commit of {record}"
            self._lines[node].add(partition, sequence, record)
        self._pump(node)

    def drop(self, node: str, partition: int) -> None:
        self._lines[node].drop(partition)

    def await_written(self, node: str, partition: int, seconds: float) -> bool:
        deadline = self._world.now + 1_000 * seconds
        while self._unwritten[node, partition] and self._world.now < deadline:
            self._caller.wait(10)
        return not self._unwritten[node, partition]

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        for node in self._lines:
            self._pump(node)

    def _pump(self, node: str) -> None:
        lines = self._lines[node]
        while not self._is_paused and lines.has_next():
            [call] = lines.next(1)
            self._caller.later(self._within(_MOST_CALL_MS), partial(self._ended, node, call))

    def _within(self, bounds: Sequence[int]) -> int:
        """Return a time within one of some bounds (ms)."""
        return self._world.random.randrange(1, self._world.random.choice(bounds))

    def _ended(self, node: str, call: Call) -> None:
        if call.is_dropped:
            return
        function, about = self._functions[node], (call.sequence, call.record, 1)
        try:
            call.answer = function.answer(*about, answered((call.record.value or b"").decode()))
        except ValueError as error:
            call.answer = function.failure(*about, error)
        for each in self._lines[node].answered(call):
            assert each.answer is not None
            row = Row(each.sequence.to_bytes(8, "big"), each.answer.pack(), each.record.timestamp, ())
            self._leaving.append(_Answer(node, TopicPartition(self._topics[node], each.partition), row))
            self._unwritten[node, each.partition] += 1
        self._write()
        self._pump(node)

    def _write(self) -> None:
        """Write the answers that are there, unless others are being written."""
        if self._is_writing or not self._leaving:
            return
        self._is_writing = True
        answers, self._leaving = [*self._leaving], deque()
        send = partial(self._arrive, answers)
        later = self._world.after if self._world.chance(_UNDER_WAY) else self._caller.later
        later(self._within(_MOST_WRITE_MS), send)

    def _arrive(self, answers: Sequence[_Answer]) -> None:
        if self._world.now < self._broker.refuses_until:
            self._caller.later(50, partial(self._arrive, answers))
            return
        self._broker.append([PartitionBatch(*each.place, batch_of([(0, each.row)])) for each in answers])
        if self._world.chance(_REPEATED) and not self._world.is_calm:
            self._caller.later(50, partial(self._arrive, answers))
            return
        self._caller.later(1, partial(self._written, answers))

    def _written(self, answers: Sequence[_Answer]) -> None:
        self._is_writing = False
        for each in answers:
            self._unwritten[each.node, each.place.partition] -= 1
        self._write()
