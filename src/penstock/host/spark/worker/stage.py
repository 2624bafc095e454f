"""A stage of the query: the tasks of a level in one Spark partition.

It runs in a worker, for one epoch. `run_level` is a complete level above 0, for `mapInArrow`; level 0 runs inside the
source (`source.py`), where its records are fetched. Rows for later levels pass through. This module imports nothing of
the DSL or of the lowering: the description contains the objects to run.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial

import pyarrow as pa

from penstock.errors import (
    AuthenticationError,
    AuthorizationError,
    CorruptedBaseError,
    KafkaError,
    StreamsError,
    TaskCorruptedError,
)
from penstock.host.packing.record_blobs import decode_batch, encode_batch
from penstock.host.spark.clients import open_checkpoint
from penstock.host.spark.protocol.application_description import ApplicationDescription, load_description
from penstock.host.spark.protocol.failures import QueryFailedError, encode_failure
from penstock.host.spark.protocol.messages import TaskControl
from penstock.host.spark.protocol.rows import CONTROL, DATA, FAILURE, HEAD, OUTPUT, Row, read_rows, write_rows
from penstock.host.spark.worker.determinism import TaskResult, check_same
from penstock.host.spark.worker.global_state import global_stores
from penstock.host.spark.worker.logged_results import logged_result
from penstock.host.spark.worker.printing import PrintBuffer, captured_print
from penstock.host.spark.worker.task_epoch import TaskEpoch
from penstock.log_context import logged_as, mark_log_records
from penstock.plan.subtopology import TaskId
from penstock.record import PartitionBatch
from penstock.state.api import StateStore


@lru_cache(maxsize=1)
def prepare_worker() -> None:
    """Prepare a worker, once per process.

    Spark's daemon collects all garbage after every task; freezing the loaded objects makes this cheap. In between, only
    young objects are collected, and seldom, because the columns of a batch are millions of objects that stay. Log
    records of tasks have their attributes from now on.
    """
    mark_log_records()
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)


def stage(description: bytes, level: int, title: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of `level` for `mapInArrow`; title: its name in Spark's UI."""

    def run(frames: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_level(description, level, frames)

    run.__name__ = title
    return run


def run_level(description: bytes, level: int, frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the tasks of `level` whose control rows are in `frames`.

    Yield the rows for later levels and the sink.
    """
    prepare_worker()
    loaded = load_description(description)
    rows = ended_by_failure(loaded, level, _level_rows(loaded, level, read_rows(frames)))
    yield from write_rows(rows, loaded.placement.partitions_after(level))


def _level_rows(description: ApplicationDescription, level: int, rows: Iterable[Row]) -> Iterator[Row]:
    controls: dict[int, TaskControl] = {}
    data: dict[int, list[Row]] = {}
    for row in rows:
        if row.level != level:
            yield row
        elif row.kind == CONTROL:
            controls[row.task] = TaskControl.decode(row.batch)
        else:
            data.setdefault(row.task, []).append(row)
    yield from _run_tasks(description, level, controls, data)
    if data:
        tasks = ", ".join(str(description.placement.levels[level][number]) for number in data)
        raise TaskCorruptedError(
            f"Records arrived for the tasks {tasks} in a Spark partition without their control rows; the shuffle lost "
            "rows."
        )


def _run_tasks(
    description: ApplicationDescription, level: int, controls: Mapping[int, TaskControl], data: dict[int, list[Row]]
) -> Iterator[Row]:
    """Run the tasks of `controls`, and remove their rows from `data`."""
    if not controls:
        return
    epoch = next(iter(controls.values())).global_control()
    with global_stores(description, open_checkpoint(description.checkpoint), epoch) as stores:
        for number in sorted(controls):
            own = sorted(data.pop(number, ()), key=lambda row: (row.lane, row.sequence))
            inputs = (decode_batch(row.batch)._replace(lane=row.lane) for row in own)
            yield from run_task(
                description, description.placement.levels[level][number], controls[number], inputs, stores
            )


def run_task(
    description: ApplicationDescription,
    task: TaskId,
    control: TaskControl,
    inputs: Iterable[PartitionBatch],
    global_stores: Mapping[str, StateStore],
) -> Iterator[Row]:
    """Run one task for one epoch; yield its output as rows, then its report.

    `global_stores` are for reading, by name. Output for tasks that do not run after it in this epoch goes to the sink,
    which writes it to the repartition topic.
    """
    placement = description.placement
    own_level, _, lane = placement.places[task]
    sequence = sent = 0
    output, report = _run(description, task, control, inputs, global_stores)
    for topic, partition, batch, _ in output:
        kind, level, target = OUTPUT, placement.sink_level, placement.sink_partition(topic, partition)
        if topic in description.topology.repartition_topics:
            consumer = placement.places[placement.consumer(topic, partition)]
            if consumer.level > own_level:
                kind, level, target = DATA, consumer.level, consumer.number
        for blob in encode_batch(topic, partition, batch, description.config["penstock.row.max.bytes"]):
            yield Row(kind, level, target, lane, sequence, blob)
            sequence += 1
            sent += len(blob)
    head = report._replace(sent=sent).encode()
    yield Row(HEAD, placement.sink_level, lane % placement.sink_partitions, lane, sequence, head)


def _run(
    description: ApplicationDescription,
    task: TaskId,
    control: TaskControl,
    inputs: Iterable[PartitionBatch],
    global_stores: Mapping[str, StateStore],
) -> TaskResult:
    with captured_print() as printed, logged_as(description.application_id, str(task), control.epoch):
        try:
            checkpoint = open_checkpoint(description.checkpoint)

            def run(inputs: Iterable[PartitionBatch], printed: PrintBuffer) -> TaskResult:
                epoch = TaskEpoch(description, checkpoint, task, control, global_stores)
                return TaskResult(*epoch.run(inputs, printed))

            spec = description.subtopologies[task.subtopology]
            if description.logs_results(spec):
                return logged_result(description, checkpoint, task, control, partial(run, inputs, printed))
            every: int = description.config["penstock.determinism.check.epochs"]
            if every == 0 or control.epoch % every:
                return run(inputs, printed)
            kept = list(inputs)
            first = run(kept, printed)
            with captured_print() as again:
                second = run(kept, again)
            check_same(spec, checkpoint, first, second)
            return first
        except StreamsError as error:
            raise _TaskFailedError(printed.text()) from error


class _TaskFailedError(StreamsError):
    """A task failed (for the reason in the cause) after its functions had printed something."""

    def __init__(self, printed: str) -> None:
        super().__init__("a task failed")
        self.printed = printed


def ended_by_failure(description: ApplicationDescription, level: int, rows: Iterator[Row]) -> Iterator[Row]:
    """Yield `rows`; report a permanent error to every sink partition.

    Then no sink partition writes. An error is permanent if another attempt would meet it again. The lane of such a row
    is the `level`: later levels, which then lack rows, fail too, and the first failure is the one to report.

    Raises QueryFailedError for an error of a broker, which may be back for the next attempt, and for a damaged base,
    which the next attempt rebuilds.
    """
    try:
        yield from rows
    except StreamsError as error:
        printed = error.printed if isinstance(error, _TaskFailedError) else ""
        cause = error.__cause__ if isinstance(error, _TaskFailedError) else error
        assert isinstance(cause, StreamsError)
        failure = encode_failure(cause, printed)
        may_pass = isinstance(cause, KafkaError) and not isinstance(cause, AuthenticationError | AuthorizationError)
        if may_pass or isinstance(cause, CorruptedBaseError):
            raise QueryFailedError(failure, description.failure_key) from error
        placement = description.placement
        for partition in range(placement.sink_partitions):
            yield Row(FAILURE, placement.sink_level, partition, level, 0, failure)
