"""The topologies of the conformance cases on other input: batches of any sizes, crashes at any commit and both
executions give what one run over everything gives, record by record.

The same means equal output in the order of sending across topics, equal entries of every store and equal counts of
dropped records. A case lends its topology and its records, which are taken in another order, some twice and some not at
all; record caches are off, for what they hold back depends on when they are flushed. A crash loses a task and
everything since its last commit; the next task continues from the base and the checkpoint of that commit.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.inline.inline_host import InlineHost
from penstock.plan.subtopology import BuiltTopology, SubtopologySpec, TaskId
from penstock.record import RecordBatch
from penstock.state.memory import MemoryBase
from penstock.task.environment import TaskEnvironment
from penstock.task.punctuation import EpochSchedules
from penstock.task.record_collector import SentRecord
from penstock.task.stream_task import StreamTask
from penstock.task.task_checkpoint import TaskCheckpoint
from penstock.topic_names import why_illegal
from penstock_broker.common.clock import MockClock
from tests.oracle.interpreter import case_runner
from tests.oracle.interpreter.settings import APPLICATION_ID, configuration
from tests.oracle.interpreter.values import headers_from_json
from tests.oracle.run_cases import Case, read_cases
from tests.oracle.test_random import Chunk, OneEach, batch_of, cut

CASES = Path(__file__).parent / "cases"

# Processors that count in an attribute, which no commit keeps.
_FORGETFUL = {"punctuate_refuse", "schedule_cancel"}


def fit(case: Case) -> bool:
    """Return whether a case can be run here: it is built, it does not fail, its topics are known by legal names."""
    if any(map(why_illegal, case.get("outputs", ()))):
        return False
    if case_runner.missing(case) or "error" in case["expected"] or not case.get("steps"):
        return False
    for operation in case["topology"]:
        processor = operation.get("processor", "")
        if "pattern" in operation or "global" in operation["op"]:
            return False
        if isinstance(processor, list) and processor[0] in _FORGETFUL:
            return False
    return True


@cache
def eligible() -> dict[str, Case]:
    """Return the cases that can be run here by their ids."""
    return {case["id"]: case for path in sorted(CASES.glob("*.jsonl")) for case in read_cases(path) if fit(case)}


@dataclass(frozen=True)
class Outcome:
    """What came out of one sub-topology."""

    sent: list[SentRecord]
    stores: Mapping[str, list[tuple[bytes, bytes]]]
    dropped: Mapping[str, int]


class Life:
    """A task of one sub-topology, over its crashes."""

    def __init__(self, part: SubtopologySpec, config: StreamsConfig) -> None:
        self._part, self._config = part, config
        self._base = MemoryBase()
        self._checkpoint = TaskCheckpoint()
        self._commits = 0
        self._task = self._start()
        self.sent: list[SentRecord] = []
        self.dropped: Counter[str] = Counter()

    def _start(self) -> StreamTask:
        schedules = EpochSchedules(self._checkpoint.schedules)
        task = StreamTask(
            self._part,
            TaskId(self._part.id, 0),
            self._config,
            self._base,
            OneEach(),
            self._checkpoint,
            environment=TaskEnvironment(schedules=schedules),
        )
        task.initialize()
        return task

    def process(self, topics: Mapping[str, RecordBatch], chunks: Sequence[Chunk]) -> None:
        """Process rows of `topics`, as one batch for each chunk."""
        for topic, start, stop in chunks:
            self._task.add_records(topic, 0, topics[topic].slice(start, stop))
            self._task.process()

    def commit(self) -> None:
        """Commit, and continue with a task that knows only what was committed."""
        self._task.flush()
        self.sent += self._task.drain_in_order()
        self.dropped.update(self._task.dropped_records)
        commit = self._task.prepare_commit()
        self._checkpoint = TaskCheckpoint.decode(commit.checkpoint.encode())
        self._commits += 1
        self._base.apply(commit.changes, self._commits.to_bytes(8, "big"))
        self._task = self._start()

    def crash(self) -> None:
        """Lose what was done since the last commit."""
        self._task = self._start()

    def outcome(self) -> Outcome:
        """Return what was committed."""
        stores = {name: list(self._base.view(name).range(None, None, False)) for name in self._part.stores}
        return Outcome(self.sent, stores, dict(+self.dropped))


def runs(
    part: SubtopologySpec,
    config: Callable[[str], StreamsConfig],
    topics: Mapping[str, RecordBatch],
    draw: random.Random,
) -> Iterator[tuple[str, Outcome]]:
    """Yield the outcome of one run over everything, then those of runs in pieces, with crashes."""
    environment = TaskEnvironment(schedules=EpochSchedules(()))
    task = StreamTask(part, TaskId(part.id, 0), config("record"), MemoryBase(), OneEach(), environment=environment)
    task.initialize()
    for topic in part.source_topics:
        task.add_records(topic, 0, topics[topic])
    task.process()
    order = task.prepare_commit()
    chunks = cut(order, [1])
    first = Life(part, config("record"))
    first.process(topics, chunks)
    first.commit()
    yield "one run", first.outcome()
    for execution in ("record", "auto"):
        pieces = cut(order, [draw.randint(1, 6) for _ in range(4)])
        life = Life(part, config(execution))
        uncommitted: list[Chunk] = []
        for chunk in pieces:
            life.process(topics, [chunk])
            uncommitted.append(chunk)
            if draw.random() < 0.3:
                life.crash()
                life.process(topics, uncommitted)
            if draw.random() < 0.5:
                life.commit()
                uncommitted = []
        life.commit()
        yield f"{execution}, in pieces", life.outcome()


def _records(case: Case, draw: random.Random) -> dict[str, RecordBatch]:
    """Return the records of a case by topic: shuffled now and then, some twice, some left out."""
    steps = [step for step in case["steps"] if "in" in step]
    if draw.random() < 0.7:
        draw.shuffle(steps)
    chosen = [step for step in steps for _ in range(draw.choice((0, 1, 1, 1, 2)))]
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for step in chosen:
        topic, key, value = case_runner.encoded(case, step)
        rows.setdefault(topic, []).append((key, value, step["ts"], headers_from_json(step.get("headers"))))
    return {topic: batch_of(of_topic) for topic, of_topic in rows.items()}


def _with_repartitioned(
    topics: Mapping[str, RecordBatch], built: BuiltTopology, config: StreamsConfig
) -> dict[str, RecordBatch]:
    """Return `topics`, and what the whole topology writes to those that it reads itself: also where sub-topologies feed
    one another, as those of a join by foreign key do."""
    host = InlineHost(built, config, MockClock(0))
    for topic, batch in topics.items():
        for row, (key, value, time) in enumerate(zip(batch.keys, batch.values, batch.timestamps.tolist(), strict=True)):
            host.pipe(topic, key, value, time, batch.headers_at(row))
    written: dict[str, list[tuple[Any, ...]]] = {topic: [] for topic in built.repartition_topics}
    for record in host.take_output():
        if record.topic in written:
            written[record.topic].append((record.key, record.value, record.timestamp, record.headers))
    host.close()
    return {**topics, **{topic: batch_of(rows) for topic, rows in written.items()}}


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.deferred(lambda: st.sampled_from(sorted(eligible()))), st.integers(0, 1 << 30))
def test_pieces_and_crashes_give_what_one_run_gives(id: str, seed: int) -> None:
    case, draw = eligible()[id], random.Random(seed)

    def config(execution: str) -> StreamsConfig:
        given = {**configuration(case, execution), "statestore.cache.max.bytes": 0, "penstock.trace.order": "unused"}
        return StreamsConfig(given, environment={})

    built = case_runner.build(case, configuration(case, "auto")).build(APPLICATION_ID)
    try:
        topics = _with_repartitioned(_records(case, draw), built, config("record"))
    except StreamsError:
        return  # in this order a function of the case refuses a record
    for part in built.subtopologies:
        for topic in part.source_topics:
            topics.setdefault(topic, batch_of([]))
        outcomes = runs(part, config, topics, draw)
        _, expected = next(outcomes)
        for name, outcome in outcomes:
            assert outcome == expected, name
