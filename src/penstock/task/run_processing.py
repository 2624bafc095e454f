"""Runs records of a task: in pieces that limit the memory, with stream time, as one batch for a tracer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

from penstock.task.batch_tracing import BatchTrace, BatchTracing
from penstock.task.context import TaskContext
from penstock.task.error_handling import ProcessingError
from penstock.task.execution import MAXIMUM_MIXED_ROWS, Execution
from penstock.task.intake import Intake
from penstock.task.partition_group import MixedRun, RecordRun


class RunProcessing:
    """Processes the runs of one task.

    Args:
        context: the context of the task.
        intake: takes the records.
        execution: runs them.
        evict: evicts entries of record caches that are too large.
        fail: raises the error of the task for that of a node.
        tracing: traces batches; None without a tracer.
    """

    def __init__(
        self,
        context: TaskContext,
        intake: Intake,
        execution: Execution,
        evict: Callable[[], None],
        fail: Callable[[ProcessingError], NoReturn],
        tracing: BatchTracing | None,
    ) -> None:
        self._context = context
        self._intake = intake
        self._execution = execution
        self._evict = evict
        self._fail = fail
        self._tracing = tracing

    def process(self, runs: Iterable[RecordRun | MixedRun]) -> int:
        """Process `runs`; return the number of records. Raises the error of `fail` if a node fails."""
        if self._tracing is None:
            return self._process_each(runs)
        with self._tracing.batch() as trace:
            return self._process_each(_traced(runs, trace))

    def _process_each(self, runs: Iterable[RecordRun | MixedRun]) -> int:
        taken = 0
        try:
            for run in runs:
                taken += len(run.batch)
                if isinstance(run, MixedRun):
                    self._process_mixed(run)
                else:
                    self._process_run(run)
        except ProcessingError as failure:
            self._fail(failure)
        self._context.metadata = None
        return taken

    def _process_run(self, run: RecordRun) -> None:
        batch, rows = run.batch, len(run.batch)
        stream_times = self._intake.take(run)
        execute = self._execution.run_serialized if run.serialized else self._execution.run
        start = 0
        while start < rows:
            stop = start + self._execution.rows_at_once((run.source,), run.serialized)
            part = batch if start == 0 and stop >= rows else batch.slice(start, stop)
            execute(run.source, run.partition, part, stream_times[start:stop])
            self._evict()
            start = stop

    def _process_mixed(self, run: MixedRun) -> None:
        batch = run.batch
        stream_times = self._intake.take_mixed(run)
        start = 0
        while start < len(batch):
            stop = start + min(MAXIMUM_MIXED_ROWS, self._execution.rows_at_once(run.sources, serialized=False))
            rows = slice(start, stop)
            self._execution.run_mixed(
                run.sources, run.partitions, run.numbers[rows], batch.slice(start, stop), stream_times[rows]
            )
            self._evict()
            start = stop


def _traced(runs: Iterable[RecordRun | MixedRun], trace: BatchTrace) -> Iterator[RecordRun | MixedRun]:
    """Yield `runs`, each reported to `trace` before it is processed."""
    for run in runs:
        trace.take(run.partitions if isinstance(run, MixedRun) else (run.partition,), run.batch)
        yield run
