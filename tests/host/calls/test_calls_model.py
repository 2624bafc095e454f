"""A task with calls and the lines of its host, against a sequential interpreter, for each key.

Hypothesis interleaves input, calls, answers, commits, crashes and calls of processes that were replaced. Whatever the
interleaving, each record has one result, that of its first answer in the topic, in the order of the operator; and no
record is called again whose answer was in the topic when its task was opened.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from penstock import Topology
from penstock.errors import StreamsError
from penstock.host.calls.gate import CallGate
from penstock.host.calls.lines import Call, CallLines
from penstock.processor.calls import Answer, CallOrder
from penstock.record import TopicPartition
from penstock.state.memory import MemoryBase
from penstock.task.stream_task import StreamTask
from penstock.task.task_checkpoint import TaskCheckpoint
from tests.support.call_answers import first_results
from tests.task.calls import ANSWERS, add_answers, answer_to, calling, failure_of
from tests.task.topologies import batch_of, sent, task_of

INPUT, ANSWERED = TopicPartition("in", 0), TopicPartition(ANSWERS, 0)
FAILS = "!"
"""A value with this end has no good answer with `on_failure="skip"`, and at first none with "raise"."""


@dataclass
class Caller:
    """A process that makes the calls of the task that it has opened."""

    lines: CallLines
    gate: CallGate
    answered_before: frozenset[tuple[int, bytes]]
    in_flight: list[Call] = field(default_factory=list)


class CallsMachine(RuleBasedStateMachine):
    """One task, what is durable of it, and the processes that have made its calls."""

    order: Any = "key"

    def __init__(self) -> None:
        super().__init__()
        self.input: list[tuple[str | None, str, int]] = []
        self.topic: list[Answer] = []
        self.made: Counter[str] = Counter()
        self.base = MemoryBase()
        self.checkpoint: TaskCheckpoint | None = None
        self.positions = {INPUT: 0, ANSWERED: 0}
        self.written: list[tuple[str | None, str]] = []
        self.pending: list[tuple[str | None, str]] = []
        self.commits = 0
        self.replaced: list[Caller] = []
        self.is_mended = False
        self.topology: Topology | None = None

    @initialize(
        on_failure=st.sampled_from(["skip", "raise"]),
        execution=st.sampled_from(["auto", "record"]),
        most=st.sampled_from([2, 5, 1_000]),
    )
    def begin(self, on_failure: str, execution: str, most: int) -> None:
        """Draw the operator, and open the task."""
        self.on_failure, self.execution = on_failure, execution
        self.topology = calling(order=self.order, on_failure=on_failure, max_records=most)
        self.open()

    def open(self) -> None:
        """Open the task in a new process on what is durable."""
        assert self.topology is not None
        self.task: StreamTask = task_of(
            self.topology, base=self.base, checkpoint=self.checkpoint, execution=self.execution
        )
        end = len(self.topic)
        if self.commits:
            self.task.call_again_before({ANSWERED: end})
        self.fed = dict(self.positions)
        self.pending = []
        known = frozenset((each.sequence, each.entry) for each in self.topic if not each.failure)
        self.caller = Caller(CallLines(CallOrder(self.order)), CallGate({ANSWERED: end} if end else {}), known)

    # ---------------------------------------- what happens

    @rule(keys=st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=6), fails=st.integers(0, 9))
    def write(self, keys: list[str | None], fails: int) -> None:
        """Write records to the input."""
        for place, key in enumerate(keys):
            number = len(self.input)
            self.input.append((key, f"{number}{FAILS if place == fails else ''}", 1_000 + number))

    @rule(count=st.integers(1, 5))
    def process(self, count: int) -> None:
        """Process answers that have come, and some input."""
        self.feed(count)
        self.run(count)

    def feed(self, count: int) -> None:
        """Hand the next records and all answers to the task."""
        start = self.fed[INPUT]
        if records := self.input[start : start + count]:
            self.task.add_records("in", 0, batch_of(*records, first_offset=start))
            self.fed[INPUT] += len(records)
        start = self.fed[ANSWERED]
        if answers := self.topic[start:]:
            add_answers(self.task, *answers, first_offset=start)
            self.fed[ANSWERED] += len(answers)

    def run(self, count: int) -> None:
        """Let the task process; a failure ends its process."""
        try:
            self.task.process()
        except StreamsError:
            assert self.on_failure == "raise"
            self.crash()
            return
        self.pending += [(key, value or "") for topic, key, value, _ in sent(self.task) if topic == "out"]

    @rule(applies=st.booleans())
    def commit(self, applies: bool) -> None:
        """Commit; the process may end before it learns of it."""
        positions = {**self.positions, **self.task.positions()}
        done = self.task.prepare_commit()
        self.commits += 1
        if applies:
            self.task.committed(done.changes, b"%d" % self.commits)
        else:
            self.base.apply(done.changes, b"%d" % self.commits)
        self.checkpoint, self.positions = done.checkpoint, positions
        self.written += self.pending
        self.pending = []
        if not applies:
            self.crash()
        elif self.caller.gate.is_open(self.positions):
            for sequence, record in self.task.take_calls().get("call", []):
                self.caller.lines.add(0, sequence, record)

    @rule()
    def crash(self) -> None:
        """End the process; what it has asked for may still be answered."""
        self.replaced = [*self.replaced[-1:], self.caller]
        self.open()

    @precondition(lambda self: self.caller.lines.has_next())
    @rule(count=st.integers(1, 3))
    def call(self, count: int) -> None:
        """Begin calls."""
        while count and self.caller.lines.has_next():
            self.begin_call(self.caller)
            count -= 1

    def begin_call(self, caller: Caller) -> None:
        (call,) = caller.lines.next(1)
        if caller is self.caller and self.on_failure == "skip":
            assert (call.sequence, call.record.digest()) not in caller.answered_before
        self.made[(call.record.value or b"").decode()] += 1
        caller.in_flight.append(call)

    @precondition(lambda self: self.caller.in_flight)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """Answer any of the calls in flight."""
        self.write_answer(self.caller, data.draw(st.integers(0, len(self.caller.in_flight) - 1)))

    @precondition(lambda self: any(each.in_flight for each in self.replaced))
    @rule()
    def answer_late(self) -> None:
        """Answer a call of a process that was replaced, which then makes its next one."""
        caller = next(each for each in self.replaced if each.in_flight)
        self.write_answer(caller, 0)
        if caller.lines.has_next():
            self.begin_call(caller)

    def write_answer(self, caller: Caller, place: int) -> None:
        call = caller.in_flight.pop(place)
        value = (call.record.value or b"").decode()
        waiting = (call.sequence, call.record)
        fails = value.endswith(FAILS) and not (self.on_failure == "raise" and self.is_mended)
        result = f"{value} {len(self.topic)}.{self.made[value]}"  # which no other answer has
        call.answer = failure_of(waiting) if fails else answer_to(waiting, result)
        for each in caller.lines.answered(call):
            assert each.answer is not None
            self.topic.append(each.answer)

    # ---------------------------------------- what must hold

    def teardown(self) -> None:
        """Let the program come to its end, and compare."""
        if self.topology is None:  # no rule has run
            return
        self.is_mended = True
        for _ in range(10 + 20 * len(self.input)):
            self.process(1_000)
            self.commit(True)
            while self.caller.lines.has_next():
                self.begin_call(self.caller)
            while self.caller.in_flight:
                self.write_answer(self.caller, 0)
            if self.positions == {INPUT: len(self.input), ANSWERED: len(self.topic)} and not self.task.waiting_calls:
                break
        self.check()

    def check(self) -> None:
        """Compare with an interpreter that calls for one record after the other."""
        expected = [
            (key, value) for key, value, _ in self.input if self.on_failure == "raise" or not value.endswith(FAILS)
        ]
        found = [(key, value.partition(" ")[0]) for key, value in self.written]
        assert Counter(found) == Counter(expected)
        if self.order == "partition":
            assert found == expected
        if self.order == "key":
            assert by_key(found) == by_key(expected)
        good = [(0, each.pack()) for each in self.topic if not each.failure]
        firsts = first_results(good, ANSWERS)
        if self.on_failure == "skip":
            assert sorted(value for _, value in self.written) == sorted(firsts)


def by_key(rows: list[tuple[str | None, str]]) -> dict[str, list[str]]:
    """Return the values of each key in order; records without a key have no order."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for key, value in rows:
        if key is not None:
            found[key].append(value)
    return found


@pytest.mark.parametrize("order", ["key", "partition", "unordered"])
def test_calls_are_as_a_sequential_interpreter(order: str) -> None:
    machine = type("Machine", (CallsMachine,), {"order": order})
    run_state_machine_as_test(machine, settings=settings(max_examples=20, stateful_step_count=25))
