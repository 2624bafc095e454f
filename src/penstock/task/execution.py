"""Runs a batch through the nodes: by column where the result is the same, otherwise by record.

From the entry of a batch (a source, or a store whose cache is flushed), the *columns* are the nodes that support
columns, share no store with another node in the meantime, and are not reachable through a node without column support.
They run first, in topological order. Their output goes to sinks, as columns too, or record by record into *record
sections*: the other nodes, run depth first.

The order is that of a depth-first run. If more than one path leads out of the columns, each row carries a position: a
number that is refined when a node fans out or multiplies a row, so that a merge is a sort by position. Positions of one
run are unique.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import product, repeat
from typing import Any, NoReturn

import numpy as np

from penstock.errors import ClassCastError, StreamsError
from penstock.exception_handlers import ProducerRecord
from penstock.metrics.drop_reasons import Dropped
from penstock.processor.api import (
    BatchProcessor,
    BranchingProcessor,
    ColumnProcessor,
    PunctuationType,
    SerializedBatchProcessor,
)
from penstock.processor.columns import FEWEST_ROWS
from penstock.processor.row_partitions import RowPartitions
from penstock.record import Int64Array, Record, RecordBatch, RecordMetadata, TopicPartition, listed
from penstock.state.api import RecordContext
from penstock.task.column_plan import Child, ColumnPlan, Entry, libraries_of, passes_keys, sharing
from penstock.task.context import TaskContext
from penstock.task.dropped_records import DroppedRow, dropped_batch
from penstock.task.error_handling import ErrorHandling, ProcessingError
from penstock.task.flow import Flow, InputBatch, Part, known, merged, merged_sides
from penstock.task.join_nodes import JoinNodes
from penstock.task.plans import Plans
from penstock.task.processor_topology import ProcessorNode, ProcessorTopology, SourceNode
from penstock.task.record_collector import RecordCollector
from penstock.task.record_sender import DeadLetterSink

MAXIMUM_ROWS = 1 << 18
"""Maximum number of rows in the columns together, after multiplying operators: limits a run's memory."""
MAXIMUM_SERIALIZED_ROWS = 1 << 18
"""Maximum number of rows counted together.

It limits how far the record cache and uncommitted changes exceed their limits in between.
"""
MAXIMUM_MIXED_ROWS = 1 << 14
"""Rows of a mixed run between evictions of the record cache."""
FIRST_ROWS = 1 << 12
"""Input rows of the first run, before their multiplication factor is known."""
_STREAM_TIME = PunctuationType.STREAM_TIME


class RowError(Exception):
    """The failure of a row in the columns, with which the task must fail.

    The preceding part of a depth-first run is completed first, since its failures and counts come before.

    Args:
        position: the position of the row.
        metadata: the origin of its input record.
        error: the error to raise.
    """

    def __init__(self, position: int, metadata: RecordMetadata | None, error: ProcessingError) -> None:
        super().__init__(position, metadata, error)
        self.position = position
        self.metadata = metadata
        self.error = error


class Execution:
    """Runs batches through the nodes of one task.

    Args:
        topology: the nodes.
        task: the context of the task.
        collector: receives the output.
        dead_letters: receives dead letters from columns.
        errors: the error handlers.
        column_by_column: whether columns are enabled.
        punctuate_stream_time: called after a record that advanced stream time past a schedule.
    """

    def __init__(
        self,
        topology: ProcessorTopology,
        task: TaskContext,
        collector: RecordCollector,
        dead_letters: DeadLetterSink,
        errors: ErrorHandling,
        column_by_column: bool,
        punctuate_stream_time: Callable[[], None],
    ) -> None:
        self._task = task
        self._collector = collector
        self._dead_letters = dead_letters
        self._errors = errors
        self._punctuate = punctuate_stream_time
        self._plans = Plans(topology, errors, task.stores.own, column_by_column)
        for source in topology.sources:
            source.libraries = libraries_of(self._plans.of((source,)))
            source.passes_keys = passes_keys(self._plans.of((source,)))
        self._expansion: dict[tuple[str, ...], float] = {}
        self._most_rows = 0
        for node in topology.processors:
            node.flusher = self

    def rows_at_once(self, sources: Sequence[SourceNode], serialized: bool) -> int:
        """Return the number of records of `sources` to run together.

        No edge then has more than about MAXIMUM_ROWS rows; MAXIMUM_SERIALIZED_ROWS if they stay bytes and no objects
        are created.
        """
        if serialized:
            return MAXIMUM_SERIALIZED_ROWS
        expansion = self._expansion.get(_names(sources))
        return FIRST_ROWS if expansion is None else max(1, int(MAXIMUM_ROWS / max(1.0, expansion)))

    def takes_serialized(self, source: SourceNode, rows: int) -> bool:
        """Return whether `rows` records of `source` may stay serialised.

        It requires that their serdes report it as lossless.
        """
        if rows < FEWEST_ROWS or self._task.taps.are_open:
            return False
        plan = self._plans.of((source,), with_headers=True)
        scheduled = self._task.schedules.next_time(_STREAM_TIME) is not None
        if scheduled or len(source.children) != 1 or not plan.nodes or plan.nodes[0] is not source.children[0]:
            return False
        processor = plan.nodes[0].processor
        if plan.nodes[0].dropped_sinks:
            return False
        return isinstance(processor, SerializedBatchProcessor) and processor.takes_serialized(source.key_serde)

    def may_follow_each_other(self, sources: Iterable[SourceNode]) -> bool:
        """Return whether interleaved records of `sources` may be processed source by source.

        They may if the records of each source only change stores that no other node reads before their caches are
        flushed.
        """
        if self._task.schedules.next_time(_STREAM_TIME) is not None:
            return False
        reached: list[ProcessorNode] = []
        for source in sources:
            columns = self._plans.of((source,)).nodes
            below = [*source.children]
            while below:
                node = below.pop()
                if not isinstance(node, ProcessorNode) or node not in columns or node in reached or node.dropped_sinks:
                    return False
                reached.append(node)
                if not (isinstance(node.processor, BatchProcessor) and node.processor.holds_back):
                    below.extend(node.children)
        return not sharing(reached)

    def run_together(self, sources: Sequence[SourceNode]) -> bool:
        """Return whether interleaved records of `sources` run together, whatever their number.

        They all run record by record, or a join reads several of the sources.
        """
        if self._plans.of(sources).joins:
            return True
        plans = [self._plans.of((source,)) for source in sources]
        return all(plan.record_sections and not plan.nodes for plan in plans)

    def run_serialized(
        self, source: SourceNode, partition: TopicPartition, batch: RecordBatch, stream_times: Int64Array
    ) -> None:
        """Like `run`, for a batch of bytes and a source that `takes_serialized`."""
        node = self._plans.of((source,), with_headers=True).nodes[0]
        if isinstance(node.processor, SerializedBatchProcessor):
            self._task.observer.processed(node.name, len(batch))
            self._task.sources = RowPartitions((partition,))
            try:
                node.processor.process_serialized(batch)
            except Exception as error:
                self._task.metadata = RecordMetadata(*partition, int(batch.offsets[0]))
                raise ProcessingError(node.name, error) from error
        self._task.stream_time = int(stream_times[-1])

    def run(self, source: SourceNode, partition: TopicPartition, batch: RecordBatch, stream_times: Int64Array) -> None:
        """Run the records of one source.

        Afterwards stream time is that of the last row, and all punctuations due by then have run.
        """
        self._run_entering(InputBatch((source,), RowPartitions((partition,)), batch, stream_times))

    def run_mixed(
        self,
        sources: Sequence[SourceNode],
        partitions: Sequence[TopicPartition],
        numbers: Int64Array,
        batch: RecordBatch,
        stream_times: Int64Array,
    ) -> None:
        """Like `run`, for records of several `partitions`; record by record unless a join reads several of them.

        `sources` has the source of each partition; `numbers` has the index of each record's partition.
        """
        entering = InputBatch(sources, RowPartitions(partitions, numbers), batch, stream_times)
        if self._plan(entering).joins:
            self._run_entering(entering)
        else:
            self._run_each(entering)

    def _plan(self, entering: InputBatch) -> ColumnPlan:
        return self._plans.of(entering.entries, with_headers=entering.batch.headers is not None)

    def _run_entering(self, entering: InputBatch) -> None:
        self._most_rows = rows = len(entering.batch)
        self._run_between_punctuations(self._plan(entering), entering)
        names = _names(entering.entries)
        self._expansion[names] = max(self._expansion.get(names, 1.0), self._most_rows / rows)

    def _run_between_punctuations(self, plan: ColumnPlan, entering: InputBatch) -> None:
        if plan.record_sections or entering.stream_times is None:
            self._run(plan, entering)
            return
        stream_times, rows = entering.stream_times, len(entering.batch)
        start = 0
        while start < rows:
            due = self._task.schedules.next_time(_STREAM_TIME)
            stop = rows if due is None else min(rows, int(np.searchsorted(stream_times, due)) + 1)
            stop = max(stop, start + 1)
            self._run(plan, entering if stop - start == rows else entering.slice(start, stop))
            self._task.stream_time = int(stream_times[stop - 1])
            self._punctuate()
            start = stop

    def run_flushed(self, node: ProcessorNode, batch: RecordBatch, contexts: Sequence[RecordContext]) -> None:
        """Run entries flushed from the cache of `node`'s store through its children.

        Each record has the context of its write.
        """
        partitions = RowPartitions.of([TopicPartition(each.topic or "", each.partition) for each in contexts])
        entering = InputBatch([node] * len(partitions.partitions), partitions, batch, None)
        outer = self._task.metadata, self._task.record, self._task.sources
        self._task.record = None
        with self._task.source_records.flushed():
            self._run(self._plan(entering), entering)
        self._task.metadata, self._task.record, self._task.sources = outer

    def _run(self, plan: ColumnPlan, entering: InputBatch) -> None:
        few = len(entering.batch) < FEWEST_ROWS
        if (plan.nodes and few) or (plan.record_sections and not plan.nodes):
            self._run_each(entering)
            return
        flow = Flow()
        has_positions = plan.positions or entering.partitions.numbers is not None
        for entry, batch, rows in entering.by_entry():
            flow.deliver(entry.children, Part(entry, batch, rows * flow.scale if has_positions else None))
        failure: RowError | None = None
        for step in plan.steps:
            try:
                if isinstance(step, JoinNodes):
                    self._run_join(flow, step, entering)
                else:
                    self._run_node(flow, step, entering)
            except RowError as error:
                failure = error
                flow.cut(error.position)
        try:
            self._leave(plan, flow, entering)
        finally:
            if flow.failed_at is not None:
                for position, dropped in flow.dropped:
                    if position > flow.failed_at:
                        self._task.dropped_records.subtract(dropped)
        if failure is not None:
            self._task.metadata = failure.metadata
            raise failure.error

    def _dropped_by(self, names: Collection[str]) -> Counter[Dropped]:
        """Return the records dropped by these nodes and stores."""
        return Counter({each: records for each, records in self._task.dropped_records.items() if each.place in names})

    def _began(self, node: ProcessorNode, partitions: RowPartitions, batch: RecordBatch) -> None:
        self._task.observer.processed(node.name, len(batch))
        self._task.taps.take(node.name, partitions, batch, self._task.wall_clock)

    def _failed(
        self, flow: Flow, node: ProcessorNode, part: Part, partitions: RowPartitions, row: int, error: Exception
    ) -> None:
        """Call the handler for the failure of a row of `part`; raises ProcessingError or RowError if the task fails."""
        batch, positions = part.batch, part.positions
        self._task.metadata = RecordMetadata(*partitions.at(row), int(batch.offsets[row]))
        record = Record(batch.keys[row], batch.values[row], int(batch.timestamps[row]), batch.headers_at(row))
        try:
            self._errors.processing_failed(node.name, record, error, partial(self._bury, flow, part, row))
        except ProcessingError as fatal:
            if positions is None:
                raise
            raise RowError(int(positions[row]), self._task.metadata, fatal) from fatal

    def _run_join(self, flow: Flow, join: JoinNodes, entering: InputBatch) -> None:
        """Run the waiting rows of both sides of a join."""
        sides = [flow.waiting.pop(node.name, []) for node in join.windows]
        if not any(len(part.batch) for parts in sides for part in parts):
            return
        for parts, *nodes in zip(sides, join.windows, join.joins, strict=True):
            for node, part in product(nodes, parts):
                self._began(node, flow.partitions_of(part, entering), part.batch)
        part, numbers = merged_sides(sides)
        batch, partitions = part.batch, flow.partitions_of(part, entering)
        self._task.sources = partitions

        def failed(row: int, error: Exception) -> None:
            self._failed(flow, join.joins[numbers[row]], part, partitions, row, error)

        positions = known(part.positions)
        before = self._dropped_by(join.counted)
        try:
            result, origin = join.columns.process_batch(batch, numbers == 0, failed)
        except (ProcessingError, RowError):
            raise
        except Exception as error:
            self._task.metadata = RecordMetadata(*partitions.at(0), int(batch.offsets[0]))
            raise ProcessingError(join.joins[numbers[0]].name, error) from error
        self._count_dropped(flow, positions, join.counted, before)
        self._most_rows = max(self._most_rows, len(result))
        flow.deliver(join.joins[0].children, Part(join.joins[0], result, flow.refined(positions, known(origin))))

    def _count_dropped(
        self, flow: Flow, positions: Int64Array, names: Collection[str], before: Counter[Dropped]
    ) -> None:
        """Note the records that `names` have dropped since `before`, at the first of `positions`."""
        dropped = self._dropped_by(names) - before
        if dropped:
            flow.dropped.append((int(positions[0]), dropped))

    def _run_node(self, flow: Flow, node: ProcessorNode, entering: InputBatch) -> None:
        parts = flow.waiting.pop(node.name, None)
        processor = node.processor
        if parts is None or not isinstance(processor, ColumnProcessor):
            return
        part = merged(parts)
        positions = part.positions
        if not len(part.batch):
            return
        takes_arrays = isinstance(processor, BatchProcessor) and processor.takes_arrays
        if not takes_arrays:
            part = part._replace(batch=listed(part.batch))
        batch, partitions = part.batch, flow.partitions_of(part, entering)
        self._began(node, partitions, batch)
        self._task.sources = partitions
        failed = partial(self._failed, flow, node, part, partitions)
        names = (node.name, *node.stores)
        before = Counter[Dropped]() if positions is None else self._dropped_by(names)
        try:
            if isinstance(processor, BranchingProcessor):
                result, origin, branches = processor.branch_batch(batch, failed)
            else:
                (result, origin), branches = processor.process_batch(batch, failed), None
        except (ProcessingError, RowError):
            raise
        except Exception as error:
            self._task.metadata = RecordMetadata(*partitions.at(0), int(batch.offsets[0]))
            if isinstance(error.__cause__, ClassCastError):
                _raise_above(part.parent, entering.entries, error)
            raise ProcessingError(node.name, error) from error
        if positions is not None:
            self._count_dropped(flow, positions, names, before)
        self._most_rows = max(self._most_rows, len(result))
        if rows := node.take_dropped_rows():
            origin = np.arange(len(result), dtype=np.int64) if origin is None else origin
            positions = self._hold_dropped(flow, node, part, rows, origin, entering)
        elif positions is not None and origin is not None:
            positions = flow.refined(positions, origin)
        if branches is None:
            flow.deliver(node.children, Part(node, result, positions))
        else:
            flow.branch(branches, Part(node, result, positions))

    def _hold_dropped(
        self,
        flow: Flow,
        node: ProcessorNode,
        part: Part,
        rows: Sequence[DroppedRow],
        origin: Int64Array,
        entering: InputBatch,
    ) -> Int64Array:
        """Hold dropped rows of `part` for their sinks, before the results of the same rows.

        Returns the positions of the results; `origin` is the row of each.
        """
        task = self._task
        dropped = np.array([each.row for each in rows], np.int64)
        times = np.full(len(rows), task.stream_time, np.int64)
        if entering.stream_times is not None:
            times = np.maximum(times, entering.stream_times[known(part.positions)[dropped] // flow.scale])
        partitions = flow.partitions_of(part, entering).take(dropped).each()
        offsets = part.batch.offsets[dropped].tolist()
        places = [task.source_records.place_in(*each) for each in zip(partitions, offsets, strict=False)]
        batch = dropped_batch(node.name, rows, part.batch.take(dropped), times, places)
        before, after = flow.refined_both(known(part.positions), dropped, origin)
        for sink in node.dropped_sinks:
            flow.hold(sink.name, Part(node, batch, before))
        return after

    def _bury(self, flow: Flow, part: Part, row: int, letter: ProducerRecord) -> None:
        """Hold the dead letter of a row until its position in the columns' output."""
        batch = part.batch.slice(row, row + 1)
        positions = known(part.positions)[row : row + 1]
        letters = RecordBatch([None], [letter], batch.timestamps, batch.offsets)
        flow.hold(self._dead_letters.name, Part(part.parent, letters, positions))

    def _leave(self, plan: ColumnPlan, flow: Flow, entering: InputBatch) -> None:
        """Pass the rows that left the columns to sinks and record sections."""
        below = (child for node in plan.nodes for child in (*node.children, *node.dropped_sinks))
        outward = [*(child for entry in plan.entries for child in entry.children), *below]
        children: dict[str, Child] = {child.name: child for child in outward}
        children[self._dead_letters.name] = self._dead_letters
        leaving = [(children[name], part) for name, parts in flow.waiting.items() for part in parts if len(part.batch)]
        if plan.record_sections:
            self._enter_record_sections(leaving, flow, entering)
            return
        highest = max(
            (int(part.positions[-1]) + 1 if part.positions is not None else len(part.batch) for _, part in leaving),
            default=0,
        )
        first = self._collector.reserve(highest)
        for child, part in leaving:
            if not isinstance(child, ProcessorNode):
                sequence = np.arange(len(part.batch), dtype=np.int64) if part.positions is None else part.positions
                self._task.sources = partitions = flow.partitions_of(part, entering)
                self._task.metadata = RecordMetadata(*partitions.at(0), int(part.batch.offsets[0]))
                try:
                    child.process_columns(part.batch, sequence + first)
                except Exception as error:
                    _raise_above(part.parent, entering.entries, error)

    def _enter_record_sections(self, leaving: list[tuple[Child, Part]], flow: Flow, entering: InputBatch) -> None:
        """Pass the rows on one by one in the order of their positions.

        Between two input rows, stream time advances and punctuations run, up to the failed input row, if any.
        """
        task, scale, failed_at = self._task, flow.scale, flow.failed_at
        leaving = [(child, part._replace(batch=listed(part.batch))) for child, part in leaving]
        edges = np.concatenate(
            [np.full(len(part.batch), edge, np.int64) for edge, (_, part) in enumerate(leaving)]
            or [np.empty(0, np.int64)]
        )
        rows = np.concatenate(
            [np.arange(len(part.batch), dtype=np.int64) for _, part in leaving] or [np.empty(0, np.int64)]
        )
        positions = np.concatenate([known(part.positions) for _, part in leaving] or [np.empty(0, np.int64)])
        order = np.argsort(positions, kind="stable")
        timestamps = [part.batch.timestamps.tolist() for _, part in leaving]
        offsets = [part.batch.offsets.tolist() for _, part in leaving]
        before = 0
        for edge, row, position in zip(
            edges[order].tolist(), rows[order].tolist(), positions[order].tolist(), strict=True
        ):
            input_row = position // scale
            if input_row > before:
                self._pass_time(entering.stream_times, before, input_row)
                before = input_row
            if entering.stream_times is not None:
                task.stream_time = max(task.stream_time, int(entering.stream_times[input_row]))
            child, (parent, batch, _) = leaving[edge]
            task.metadata = RecordMetadata(*entering.partitions.at(input_row), offsets[edge][row])
            record = Record(batch.keys[row], batch.values[row], timestamps[edge][row], batch.headers_at(row))
            try:
                _enter(child, parent, entering.entries, record)
            except Exception:
                flow.failed_at = position
                raise
        end = len(entering.batch) if failed_at is None else failed_at // scale
        if before < end:
            self._pass_time(entering.stream_times, before, end)

    def _pass_time(self, stream_times: Int64Array | None, start: int, stop: int) -> None:
        """Advance stream time over the input rows from `start` up to, excluding, `stop`.

        Due punctuations run at each of them.
        """
        if stream_times is None:
            return
        task = self._task
        for row in range(start, stop):
            due = task.schedules.next_time(_STREAM_TIME)
            if due is None:
                break
            time = int(stream_times[row])
            if due <= time:
                task.stream_time = time
                self._punctuate()
        task.stream_time = int(stream_times[stop - 1])

    def _run_each(self, entering: InputBatch) -> None:
        """Run a batch record by record from the start.

        Each row has its own partition, and goes to the children of its own entry.
        """
        task, batch = self._task, entering.batch
        entries, partitions = entering.entry_of_each(), entering.partitions.each()
        times: Iterable[int | None] = repeat(None) if entering.stream_times is None else entering.stream_times.tolist()
        headers = repeat(()) if batch.headers is None else batch.headers
        timestamps, offsets = batch.timestamps.tolist(), batch.offsets.tolist()
        for entry, (topic, partition), key, value, timestamp, offset, header, time in zip(
            entries, partitions, batch.keys, batch.values, timestamps, offsets, headers, times, strict=False
        ):
            task.metadata = RecordMetadata(topic, partition, offset)
            if time is not None:
                task.stream_time = time
            record = Record(key, value, timestamp, header)
            for child in entry.children:
                _enter(child, entry, (entry,), record)
            if time is not None:
                due = task.schedules.next_time(_STREAM_TIME)
                if due is not None and due <= time:
                    self._punctuate()


def _names(sources: Sequence[Entry]) -> tuple[str, ...]:
    if len(sources) == 1:
        return (sources[0].name,)
    return tuple(dict.fromkeys(source.name for source in sources))


def _enter(child: Child, parent: Entry, entries: Sequence[Entry], record: Record[Any, Any]) -> None:
    """Pass one record from the columns to a node outside them."""
    try:
        child.process(record)
    except ProcessingError:
        raise
    except Exception as error:
        _raise_above(parent, entries, error)


def _raise_above(parent: Entry, entries: Sequence[Entry], error: Exception) -> NoReturn:
    """Raise the error of a sink, or a node's StreamsError without a handler call.

    As in Kafka, it is the parent's error. Directly below the entry, a source or a node whose store is flushed, a
    StreamsError is raised unchanged.
    """
    if parent in entries and isinstance(error, StreamsError):
        raise error
    raise ProcessingError(parent.name, error) from error
