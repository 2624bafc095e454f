"""The task alone: both sub-topologies of the word count on one core, without Spark, Kafka, disk or another process.

Records go in as bytes and come out as bytes, as from and to a host. An epoch is run as the Spark host runs it: new
tasks over the committed base, the record cache flushed at the end, the changes applied. What the host adds (fetching,
rows between processes, segments, the base on disk, producing) is not in it. Garbage is collected as in a worker of
Spark.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np

from benchmarks.measuring import LEAST_SECONDS, LEAST_STEPS, Measurement, Window, lines_needed
from benchmarks.program import INPUT, SERDES, lines_of, word_count
from penstock.config import StreamsConfig
from penstock.host.spark.worker.stage import prepare_worker
from penstock.plan.subtopology import TaskId
from penstock.record import RecordBatch
from penstock.state.memory import MemoryBase
from penstock.task.stream_task import StreamTask, TaskCommit
from penstock.task.task_checkpoint import TaskCheckpoint

PARTITIONS: Final = 2
"""Partitions of every topic, and so tasks of each sub-topology; they take turns on the one core."""

LINES_OF_AN_EPOCH: Final = 100_000
_BATCH: Final = 10_000  # records of one batch from a host, as librdkafka hands them out
_WARM_UP_EPOCHS: Final = 2


class _Tasks:
    """The tasks of one sub-topology with what they have committed."""

    def __init__(self, config: StreamsConfig) -> None:
        built = word_count().build(config.required("application.id"))
        self._specs = {spec.id: spec for spec in built.subtopologies}
        self._partitions = dict.fromkeys([topic for s in built.subtopologies for topic in s.sink_topics], PARTITIONS)
        self._config = config
        self._bases = {TaskId(s, p): MemoryBase() for s in self._specs for p in range(PARTITIONS)}
        self._checkpoints: dict[TaskId, TaskCheckpoint] = {}

    def run(self, task_id: TaskId, inputs: list[tuple[str, int, RecordBatch, int]], epoch: int) -> TaskCommit:
        """Run one task for one epoch."""
        task = StreamTask(
            self._specs[task_id.subtopology],
            task_id,
            self._config,
            self._bases[task_id],
            self._partitions,
            self._checkpoints.get(task_id),
        )
        for topic, partition, batch, lane in inputs:
            task.add_records(topic, partition, batch, lane)
        task.initialize()
        task.process()
        commit = task.prepare_commit()
        task.committed(commit.changes, str(epoch).encode())
        task.close()
        self._checkpoints[task_id] = commit.checkpoint
        return commit


def _batches(lines: list[bytes], first_offset: int) -> Iterator[RecordBatch]:
    for start in range(0, len(lines), _BATCH):
        values = lines[start : start + _BATCH]
        offsets = np.arange(first_offset + start, first_offset + start + len(values), dtype=np.int64)
        yield RecordBatch([None] * len(values), list(values), offsets, offsets)


def _epoch(tasks: _Tasks, epoch: int, lines: list[list[bytes]]) -> list[RecordBatch]:
    """Run one epoch and return what it put out."""
    moved: dict[int, list[tuple[str, int, RecordBatch, int]]] = {partition: [] for partition in range(PARTITIONS)}
    for partition, own in enumerate(lines):
        inputs = [(INPUT, partition, batch, 0) for batch in _batches(own, epoch * len(own))]
        for topic, target, batch, _ in tasks.run(TaskId(0, partition), inputs, epoch).output:
            moved[target].append((topic, target, batch, partition))
    return [
        output.batch
        for partition, inputs in moved.items()
        for output in tasks.run(TaskId(1, partition), inputs, epoch).output
    ]


def measure_task_alone(text: str, lines: int, words_per_line: int) -> Measurement:
    """Count `lines` lines after a warm-up and return the rate by CPU time: other processes do not touch it."""
    config = StreamsConfig({"application.id": "benchmark", **SERDES})
    tasks = _Tasks(config)
    size = max(min(LINES_OF_AN_EPOCH, lines // LEAST_STEPS) // PARTITIONS, 1)
    source = lines_of(text, 1 << 62, words_per_line)
    expected: Counter[bytes] = Counter()
    found: dict[bytes, int] = {}
    prepare_worker()
    seconds = cpu_seconds = 0.0
    measured = 0
    epoch = 0
    while measured < lines:
        own = [list(islice(source, size)) for _ in range(PARTITIONS)]
        expected.update(word for part in own for line in part for word in line.split())
        begin, cpu_begin = time.perf_counter(), time.process_time()
        output = _epoch(tasks, epoch, own)
        cpu, wall = time.process_time() - cpu_begin, time.perf_counter() - begin
        for batch in output:
            found.update(zip(batch.keys, map(int.from_bytes, batch.values), strict=True))
        if epoch >= _WARM_UP_EPOCHS:
            seconds, cpu_seconds, measured = seconds + wall, cpu_seconds + cpu, measured + PARTITIONS * size
        epoch += 1
    if found != expected:
        raise AssertionError("The task counted wrong: its last counts are not those of a Counter.")
    window = Window(measured, seconds, cpu_seconds, epoch - _WARM_UP_EPOCHS)
    if window.steps < LEAST_STEPS or seconds < LEAST_SECONDS:
        window = replace(window, lines_needed=lines_needed(window))
    return Measurement.of_window("a", "the task alone, one core", text, words_per_line, window, "")
