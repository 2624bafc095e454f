"""The runs of a task: evictions between pieces, and one trace for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from penstock import Consumed, Produced, Serdes, StreamsBuilder
from penstock.record import RecordBatch, TopicPartition
from penstock.task.execution import FIRST_ROWS, Execution
from penstock.task.intake import Intake
from penstock.task.partition_group import RecordRun
from penstock.task.run_processing import RunProcessing
from tests.task.topologies import batch_of, only_subtopology, task_of

STRING = Serdes.string()


class Tracing:
    """Keeps the number of records of each traced batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    @contextmanager
    def batch(self) -> Iterator[Tracing]:
        self.batches.append([])
        yield self

    def take(self, partitions: Sequence[TopicPartition], batch: RecordBatch) -> None:
        self.batches[-1].append(len(batch))


def merging() -> Any:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, Consumed.with_(STRING, STRING)) for topic in ("left", "right"))
    left.merge(right).to("out", Produced.with_(STRING, STRING))
    return builder.build()


def test_the_runs_of_a_turn_are_one_traced_batch() -> None:
    tracing = Tracing()
    task = task_of(merging(), tracing=tracing)
    task.add_records("left", 0, batch_of(*(("a", str(n), n) for n in range(20))))
    task.add_records("right", 0, batch_of(*(("b", str(n), n + 100) for n in range(30))))
    assert task.process() == 50
    assert [sum(each) for each in tracing.batches if each] == [50]


class Recording:
    """An intake and an execution that note their calls."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.metadata: Any = "of the last record"
        self.sizes = [FIRST_ROWS]
        """The sizes of the pieces; the last one counts for all further ones."""

    def take(self, run: RecordRun) -> Any:
        return run.batch.offsets

    def rows_at_once(self, source: Any, serialized: bool) -> int:
        return self.sizes.pop(0) if len(self.sizes) > 1 else self.sizes[0]

    def run(self, source: Any, partition: TopicPartition, batch: RecordBatch, stream_times: Any) -> None:
        self.events.append(len(batch))

    def evict(self) -> None:
        self.events.append("evict")


def test_caches_are_evicted_between_pieces() -> None:
    noted = Recording()
    batch = batch_of(*(("a", "1", 5) for _ in range(FIRST_ROWS + 1)))
    source: Any = only_subtopology(merging()).nodes[0]
    run = RecordRun(source, TopicPartition("left", 0), batch.offsets, batch, False, None)
    processing = RunProcessing(
        cast(Any, noted), cast(Intake, noted), cast(Execution, noted), noted.evict, cast(Any, noted.evict), None
    )
    assert processing.process([run]) == FIRST_ROWS + 1
    assert noted.events == [FIRST_ROWS, "evict", 1, "evict"]
    assert noted.metadata is None


def test_each_record_runs_once_though_pieces_grow() -> None:
    builder = StreamsBuilder()
    lines = builder.stream("in", Consumed.with_(STRING, STRING))
    lines.flat_map_values(lambda line: line.split()).to("out", Produced.with_(STRING, STRING))
    task = task_of(builder.build())
    task.add_records("in", 0, batch_of(*(("a", str(n), n) for n in range(3 * FIRST_ROWS))))
    assert task.process() == 3 * FIRST_ROWS
    (sent,) = task.prepare_commit().output
    assert sent.batch.timestamps.tolist() == list(range(3 * FIRST_ROWS))


def test_a_piece_ends_where_the_run_ends() -> None:
    noted = Recording()
    noted.sizes = [2, 100]
    batch = batch_of(*(("a", "1", 5) for _ in range(7)))
    source: Any = only_subtopology(merging()).nodes[0]
    run = RecordRun(source, TopicPartition("left", 0), batch.offsets, batch, False, None)
    processing = RunProcessing(
        cast(Any, noted), cast(Intake, noted), cast(Execution, noted), noted.evict, cast(Any, noted.evict), None
    )
    assert processing.process([run]) == 7
    assert noted.events == [2, "evict", 5, "evict"]
