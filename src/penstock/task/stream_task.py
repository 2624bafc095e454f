"""The unit of work: one sub-topology on one partition (Kafka class: StreamTask).

It is free of I/O, threads and clocks. Record batches go in; output, changes of state and a checkpoint come out. A host
fills a task, drains it and commits it: `add_records`, `process`, `advance_wall_clock`, `prepare_commit`, and, when
everything is durable, `committed`. A host that sends output before the commit calls `take_output`. An error leaves the
task unusable: the host drops it and restarts from the last commit, whose state is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NoReturn

from penstock.config import StreamsConfig
from penstock.errors import StreamsError, TaskCorruptedError, TaskMigratedError
from penstock.metrics import RecordingLevel, SensorReport
from penstock.metrics.drop_reasons import Dropped, by_place
from penstock.metrics.host_metrics import CACHE_BYTES, DEAD_LETTER_RECORDS
from penstock.metrics.measurements import Measurement, measured_once
from penstock.metrics.observer import NOT_OBSERVED, RecordingObserver, TaskObserver
from penstock.plan.subtopology import SinkSpec, SourceSpec, SubtopologySpec, TaskId
from penstock.processor.api import HeldResults, PunctuationType
from penstock.processor.timestamps import fail_on_invalid_timestamp
from penstock.processor.waiting_records import Waiting
from penstock.record import NO_METADATA, PartitionBatch, Record, RecordBatch, TopicPartition
from penstock.state.api import Base, Changes, RecordContext, StateStore
from penstock.state.record_cache import RecordCache
from penstock.task.context import NodeContext, TaskContext, TaskStores
from penstock.task.environment import TaskEnvironment
from penstock.task.error_handling import ErrorHandling, ProcessingError, told_cause
from penstock.task.execution import Execution
from penstock.task.idling import NO_WAIT, Idling, InputWait
from penstock.task.intake import Intake, order_trace
from penstock.task.key_placement import KeyPlacement
from penstock.task.order_trace import TracedCommit
from penstock.task.partition_group import BufferSize, PartitionGroup
from penstock.task.processor_state_manager import ProcessorStateManager
from penstock.task.processor_topology import ProcessorTopology
from penstock.task.punctuation import Schedule
from penstock.task.record_collector import RecordCollector, SentRecord
from penstock.task.record_sender import DeadLetterSink, RecordSender
from penstock.task.run_processing import RunProcessing
from penstock.task.stream_time import MAXIMUM, partitions_ahead, task_stream_time
from penstock.task.taps import TappedRecord
from penstock.task.task_calls import TaskCalls
from penstock.task.task_checkpoint import TaskCheckpoint
from penstock.task.task_measurements import TaskMeasurements


@dataclass(frozen=True)
class TaskCommit:
    """The content of a commit, to be made durable in one step.

    Args:
        changes: by store and key.
        checkpoint: the task's persistent values besides stores.
        output: by partition.
        dropped_records: by node or store and reason, since the creation of the task.
        order: the records taken since the last commit, if the task traces them.
        measured: by operation (`host_metrics`).
        sensors: the recorded values of the processors' sensors.
    """

    changes: Changes
    checkpoint: TaskCheckpoint
    output: list[PartitionBatch]
    dropped_records: Mapping[Dropped, int]
    order: TracedCommit | None
    measured: Mapping[str, Measurement]
    sensors: Sequence[SensorReport]


class StreamTask:
    """Runs one sub-topology on one partition.

    The constructor creates nodes and stores; no user code runs before `initialize`. `base` has the committed state,
    `partitions` the number of partitions of each topic that sinks write to, and `environment` the services of the host.
    `checkpoint` is that of the last commit, None for a new task.
    """

    def __init__(
        self,
        spec: SubtopologySpec,
        task_id: TaskId,
        config: StreamsConfig,
        base: Base,
        partitions: Mapping[str, int],
        checkpoint: TaskCheckpoint | None = None,
        wall_clock_ms: int = 0,
        environment: TaskEnvironment | None = None,
    ) -> None:
        environment = environment or TaskEnvironment()
        checkpoint = checkpoint or TaskCheckpoint()
        self.task_id = task_id
        self.awaited: frozenset[TopicPartition] = frozenset()
        """The partitions awaited by the records that `process` has left."""
        self._lane_offsets = dict(checkpoint.lane_offsets)
        self._idling = Idling(checkpoint.idle_deadlines)
        # The observer reads the clock of the context, which needs the observer first.
        observer = _observer(config, environment.nanoseconds, lambda: self._context.wall_clock)
        self._measurements = TaskMeasurements(observer, environment.nanoseconds)
        self._context = TaskContext(
            str(task_id),
            config,
            environment.schedules,
            wall_clock_ms,
            checkpoint.stream_time,
            observer,
            environment.node_lines,
        )
        self._context.processor_metadata.update(checkpoint.processor_metadata)
        self._collector = RecordCollector()
        cache_bytes = environment.cache_bytes
        self._cache = RecordCache(
            config["statestore.cache.max.bytes"] if cache_bytes is None else cache_bytes, observer
        )
        self._log_prefix = f"stream-thread [main] task [{task_id}] "
        state_log_prefix = environment.state_log_prefix
        self._state = ProcessorStateManager(
            spec,
            self._log_prefix if state_log_prefix is None else state_log_prefix,
            self._context,
            base,
            self._cache,
            environment.change_log,
            environment.spilled,
            checkpoint.sweep_cursors,
        )
        self._context.stores = TaskStores(self._state.stores, environment.global_stores)
        self._sender = RecordSender(self._collector, partitions, task_id, self._context.offset)
        self._placement = KeyPlacement(spec, config, partitions, self._context.described)
        self._make_nodes(spec, config, self._sender)
        self._group = _group(self._topology, self._context, self._execution, self._errors, checkpoint)
        stream_time = task_stream_time(spec, task_id, config, checkpoint.partition_times, environment.input_partitions)
        self._intake = Intake(self._context, self._measurements, stream_time, order_trace(config))
        self._processing = RunProcessing(
            self._context, self._intake, self._execution, self._state.evict, self._fail, environment.tracing
        )
        self._calls = TaskCalls(spec, self._context.stores.calls.inboxes)

    def _make_nodes(self, spec: SubtopologySpec, config: StreamsConfig, sender: RecordSender) -> None:
        self._context.sender = sender.send
        sources = [node for node in spec.nodes if isinstance(node, SourceSpec)]
        repartition_topics = {topic for node in sources if node.repartition for topic in node.topics}
        self._context.stores.calls.repartition_topics = repartition_topics
        self._errors = ErrorHandling.of_task(self._context, sender)
        self._topology = ProcessorTopology(spec, self._context, self._collector, sender, self._errors)
        sinks = [node for node in spec.nodes if isinstance(node, SinkSpec)]
        self._repartition_topics = {sink.topic for sink in sinks if sink.repartition and sink.topic is not None}
        self._execution = Execution(
            self._topology,
            self._context,
            self._collector,
            DeadLetterSink(sender),
            self._errors,
            config["penstock.execution"] == "auto" and not config["penstock.check.shared.values"],
            self._punctuate_stream_time,
        )

    def initialize(self) -> None:
        """Call `init` of every processor; raises StreamsError with the name of a failed one."""
        for node in self._topology.processors:
            node.init()
        self._state.expiry.schedule()

    def add_source_topic(self, topic: str, source_name: str) -> None:
        """Also read `topic`, which matches the pattern of node `source_name`; raises StreamsError if unknown."""
        for source in self._topology.sources:
            if source.name == source_name:
                self._group.add_source_topic(topic, source)
                self._intake.add_partition(TopicPartition(topic, self.task_id.partition))
                return
        raise StreamsError(f"Task {self.task_id} has no source node {source_name!r}.")

    def add_records(self, topic: str, partition: int, batch: RecordBatch, lane: int = 0) -> None:
        """Buffer records of a partition, as bytes, offsets ascending.

        lane: the upstream task of a shuffle. Raises StreamsError for a topic that no source of the task reads.
        """
        self._placement.look(TopicPartition(topic, partition), batch)
        self._group.add(TopicPartition(topic, partition), lane, batch)

    def process(self, wait: InputWait = NO_WAIT) -> int:
        """Process all buffered records that need not wait; return the number of records taken.

        Answers of calls come first. As soon as so many records wait for answers that the task takes no others, the rest
        stays buffered. Stream-time punctuations run in between.

        Raises StreamsError with node, topic, partition and offset if a user's function fails.
        """
        answers = self.process_answers()
        if self.waits_for_answers:
            self.awaited = frozenset()
            return answers
        wait = self._calls.without_answers(wait)
        now = self._context.wall_clock
        awaited = self._idling.awaited(wait, self._group.buffered(), now)
        taken = self._process_input(awaited)
        left = self._group.buffered() if awaited else frozenset()
        self.awaited = frozenset(awaited - left) if left and not self.waits_for_answers else frozenset()
        if wait.idle_ms > 0:
            self._idling.found_empty(awaited - wait.lagging - left, now + wait.idle_ms)
        return answers + taken

    def _process_input(self, awaited: Set[TopicPartition]) -> int:
        """Process the buffered records that need not wait, in pieces if they may fill an inbox of calls."""
        if not self._calls.has_inboxes:
            return self._processing.process(self._group.take(awaited))
        taken, before = 0, -1
        while not self.waits_for_answers and before != self._group.rows:
            before = self._group.rows
            piece = self._processing.process(self._group.take(awaited, self._calls.room()))
            self._calls.took(piece)
            taken += piece
        return taken

    def process_answers(self) -> int:
        """Process all buffered answers of calls, and requests about parked records; return their number.

        Raises StreamsError as `process` does.
        """
        return self._processing.process(self._group.take_answers()) if self._calls.reads_answers else 0

    @property
    def waits_for_answers(self) -> bool:
        """Whether so many records wait for answers that the task takes no others."""
        return self._calls.waits_for_answers

    @property
    def adds_calls(self) -> bool:
        """Whether records wait for a commit before their calls."""
        return self._calls.has_uncommitted

    @property
    def waiting_calls(self) -> int:
        """The number of records that wait for the answers of their calls."""
        return self._calls.waiting

    def call_again_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Ignore failures among the answers before these offsets of answers topics; their calls are made again.

        For the opening of a task, before it processes records: a failure that ended the last run, or the process, must
        not end this one too. It concerns operators that raise the failures of their calls, and answers that their
        operators cannot use.
        """
        self._context.stores.calls.repeated_before.update(offsets)

    def take_calls(self) -> Mapping[str, list[Waiting]]:
        """Remove and return the committed records that wait for a call, by operator, with their numbers.

        The first call returns all records of the stores, later ones those of the commits since the last call.
        """
        return self._calls.take()

    def process_next(self, wait: InputWait = NO_WAIT) -> TopicPartition | None:
        """Like `process`, for the single record that Kafka takes next, also with equal timestamps.

        Returns its partition, or None if no record is available or all must wait. For a host that commits after each
        record.
        """
        wait = self._calls.without_answers(wait)
        if self.waits_for_answers:
            return None
        self._group.find_heads()
        buffered = self._group.buffered()
        if not buffered or self._idling.must_wait(wait, buffered, self._context.wall_clock):
            return None
        run = self._group.take_next()
        if run is None:
            return None
        self._processing.process([run])
        return run.partition

    def give_up_buffered(self) -> tuple[list[PartitionBatch], int | None]:
        """Remove and return the waiting records, unchanged, with the time of the next check.

        The time is for the case that no record arrives (wall clock in ms); None for never.
        """
        records = self._group.give_up()
        return records, self._idling.next_deadline(self._context.wall_clock) if records else None

    def partitions_to_pause(self) -> frozenset[TopicPartition]:
        """Return the partitions too far ahead of the task's slowest one.

        The limit is `partition.pause.threshold.ms`: the host does not read them until the others have caught up. Empty
        without a threshold.
        """
        threshold: int | None = self._context.config["partition.pause.threshold.ms"]
        return frozenset() if threshold is None else partitions_ahead(self._group.partition_times, threshold)

    def advance_wall_clock(self, now_ms: int) -> bool:
        """Set the wall-clock time, possibly to an earlier one, and run due punctuations.

        Returns whether there were any. Raises StreamsError if one fails.
        """
        self._context.set_wall_clock(now_ms)
        return self._punctuate(PunctuationType.WALL_CLOCK_TIME, now_ms)

    def emit_held_results(self) -> None:
        """Emit the due final results that an interval of wall-clock time holds back.

        For the end of an epoch, on hosts whose tasks live for one. Raises StreamsError if a user's function fails.
        """
        self.flush()
        while any(self._emit_held(*each) for each in self._context.held_results):  # emitted results may close more
            self.flush()

    def _emit_held(self, context: NodeContext, results: HeldResults) -> bool:
        """Emit results held back by an operator; return whether there were any."""
        held = results.take_held()
        if held is None:
            return False
        record, metadata = held
        cause = RecordContext(record.timestamp, record.headers, *(metadata or NO_METADATA))
        with context.in_stored_record_context(cause):
            try:
                results.emit(record)
            except ProcessingError as failure:
                self._fail(failure)
            except (TaskCorruptedError, TaskMigratedError):
                raise
            except Exception as error:
                self._processing_failed(context.node_name, record, error)
        return True

    def _processing_failed(self, node: str, record: Record[Any, Any], error: Exception) -> None:
        """Call the handler; raises StreamsError unless the task continues."""
        try:
            self._errors.processing_failed(node, record, error)
        except ProcessingError as failure:
            self._fail(failure)

    def take_output(self) -> list[PartitionBatch]:
        """Remove and return the output since the last call, by partition, without a commit."""
        return self._collector.drain(self._repartition_topics, self._lane_offsets)

    def positions(self) -> Mapping[TopicPartition, int]:
        """Return the next offset to be processed, for each partition with added records.

        It may be committed while later records wait. For a host whose records all come from brokers.
        """
        return self._group.positions()

    def waiting(self) -> Mapping[TopicPartition, BufferSize]:
        """Return the size of the waiting records of each partition with waiting records."""
        return self._group.sizes()

    @property
    def uncommitted_bytes(self) -> int:
        """The approximate memory size (bytes) of the stores' uncommitted changes, without the record cache."""
        return self._state.uncommitted_bytes()

    def next_wall_clock_ms(self) -> int | None:
        """Return the time of the next action without new records, or None.

        It is a wall-clock time in ms: of a punctuation, or the end of the wait for a partition.
        """
        waits = self._idling.next_deadline(self._context.wall_clock) if self._group.buffered() else None
        punctuation = self._context.schedules.next_time(PunctuationType.WALL_CLOCK_TIME)
        return punctuation if waits is None else waits if punctuation is None else min(waits, punctuation)

    def prepare_commit(self) -> TaskCommit:
        """Flush the caches and return the content of the commit; removes the output."""
        self.flush()
        output = self.take_output()
        measured, sensors = self.take_measured()
        return TaskCommit(
            self._state.changes(),
            self.checkpoint(),
            output,
            dict(self._context.dropped_records),
            self._intake.traced_commit(),
            measured,
            sensors,
        )

    @property
    def punctuation_nanoseconds(self) -> int:
        """The duration of the punctuations since `take_measured`, 0 without a clock for durations."""
        return self._measurements.punctuation_nanoseconds

    def take_measured(self) -> tuple[Mapping[str, Measurement], Sequence[SensorReport]]:
        """Remove and return the measurements since the last call, by operation, and sensor values."""
        measured = self._measurements.take()
        buried, self._sender.dead_letters = self._sender.dead_letters, 0
        measured[DEAD_LETTER_RECORDS] = Measurement(buried, float(buried), 1.0, 1.0)  # each counts as 1
        measured.update(self._topology.parked_records())
        if self._state.stores:
            measured[CACHE_BYTES] = measured_once(self._cache.size_bytes)
            measured.update(self._state.num_keys())
        return {name: each for name, each in measured.items() if each.number}, self._context.metrics.take_reports()

    def before_each(self, node: str, call: Callable[[Record[Any, Any]], None]) -> None:
        """Call `call` with each record before `node` processes it alone.

        Does nothing if the task does not have the node. With `penstock.execution` record, these are all records.
        """
        if node in self._topology.nodes:
            self._topology.before_each(node, call)

    def tap(self, node: str, limit: int) -> None:
        """Keep the last `limit` records that reach `node`, for `tapped`. Does nothing without such a node."""
        if node in self._topology.nodes and self._context.taps.open(node, limit):
            self._topology.tap(node)

    def untap(self, node: str) -> None:
        """Stop keeping the records of `node`."""
        if self._context.taps.close(node):
            self._topology.untap(node)

    def tapped(self, node: str) -> list[TappedRecord]:
        """Return the last records that have reached `node` since `tap`, newest last."""
        return self._context.taps.records(node)

    def flush(self) -> None:
        """Flush the caches: their entries are written to the stores and forwarded."""
        try:
            self._state.flush_caches()
        except ProcessingError as failure:
            self._fail(failure)
        self._context.metadata = None
        self._context.source_records.forget()

    def drain_in_order(self) -> Iterator[SentRecord]:
        """Remove and yield the output by record in the order of sending, across topics. A driver displays it."""
        return self._collector.drain_in_order()

    def changes(self) -> Changes:
        """Return the changes of the stores since the last commit."""
        return self._state.changes()

    def committed(self, changes: Changes, stamp: bytes) -> None:
        """Apply the changes of a commit to the base, once the rest is durable."""
        self._state.committed(changes, stamp)
        self._calls.committed()
        self._context.commit_requested = False

    def checkpoint(self) -> TaskCheckpoint:
        """Return the task's persistent values besides stores. Lane offsets include the output taken so far."""
        return TaskCheckpoint(
            self._context.stream_time,
            dict(self._group.partition_times),
            self._context.schedules.states(),
            dict(self._lane_offsets),
            dict(self._context.processor_metadata),
            dict(self._idling.deadlines),
            dict(self._state.expiry.cursors),
        )

    def store(self, name: str) -> StateStore:
        """Return the store `name` as processors receive it; raises StreamsError for an unknown name."""
        if name not in self._state.stores:
            raise StreamsError(
                f"Task {self.task_id} has no store {name!r}: expected one of {', '.join(self._state.stores) or 'none'}."
            )
        return self._state.stores[name].exposed()

    @property
    def dropped_records(self) -> Mapping[str, int]:
        """The number of records dropped since the task began, by node (Kafka metric: dropped-records-total)."""
        return by_place(self._context.dropped_records)

    @property
    def commit_requested(self) -> bool:
        """Whether a processor has requested a commit since the last one."""
        return self._context.commit_requested

    def close(self) -> None:
        """Close processors, then stores; uncommitted data is lost. Raises the first error of a processor at the end."""
        first: StreamsError | None = None
        for node in self._topology.processors:
            try:
                node.close()
            except StreamsError as error:
                first = first or error
        self._state.close()
        if first is not None:
            raise first

    def _punctuate_stream_time(self) -> None:
        self._punctuate(PunctuationType.STREAM_TIME, self._context.stream_time)

    def _punctuate(self, kind: PunctuationType, now: int) -> bool:
        context = self._context
        punctuated = False
        while (schedule := context.schedules.take_due(kind, now)) is not None:
            context.metadata, context.record, context.punctuation_time = NO_METADATA, None, now
            try:
                self._call(schedule, now)
            except ProcessingError as failure:
                if context.source_records.are_stored:
                    self._fail(failure)
                error = StreamsError(
                    failure.message
                    or f"{self._log_prefix}Exception caught while punctuating processor '{schedule.node}'"
                )
                error.add_note(told_cause(failure.error, failure.node, self._context.described(failure.node)))
                raise error from failure.error
            schedule.advance(now)
            context.schedules.put_back(schedule)
            punctuated = True
        return punctuated

    def _call(self, schedule: Schedule, now: int) -> None:
        """Call the punctuator of `schedule`; raises ProcessingError unless the handler ignores its error."""
        try:
            self._measurements.punctuate(lambda: schedule.callback(now))
        except (ProcessingError, TaskCorruptedError, TaskMigratedError):
            raise
        except Exception as error:
            self._errors.processing_failed(schedule.node, None, error)

    def _fail(self, failure: ProcessingError) -> NoReturn:
        raise _process_error(failure, self.task_id, self._context) from failure.error


def _group(
    topology: ProcessorTopology,
    context: TaskContext,
    execution: Execution,
    errors: ErrorHandling,
    checkpoint: TaskCheckpoint,
) -> PartitionGroup:
    return PartitionGroup(
        topology.sources,
        context.config["default.timestamp.extractor"] or fail_on_invalid_timestamp,
        checkpoint.partition_times,
        execution,
        context.count_dropped,
        errors.need_source_records or topology.writes_dropped,
        context.config["stream.time.policy"] == MAXIMUM,
        lambda: context.wall_clock,
    )


def _process_error(failure: ProcessingError, task_id: TaskId, context: TaskContext) -> StreamsError:
    """Return the error of a task for a record that a node could not process."""
    metadata = context.metadata or NO_METADATA
    error = StreamsError(
        failure.message
        or f"Exception caught in process. taskId={task_id}, processor={failure.node}, "
        f"topic={metadata.topic}, partition={metadata.partition}, "
        f"offset={metadata.offset}"
    )
    error.failed_record = failure.failed_record(metadata)
    error.add_note(told_cause(failure.error, failure.node, context.described(failure.node)))
    return error


def _observer(
    config: StreamsConfig, nanoseconds: Callable[[], int] | None, wall_clock_ms: Callable[[], int]
) -> TaskObserver:
    """Return an observer that records from `metrics.recording.level` DEBUG on, if the host shows measurements."""
    if nanoseconds is None or RecordingLevel[config["metrics.recording.level"]] < RecordingLevel.DEBUG:
        return NOT_OBSERVED
    return RecordingObserver(nanoseconds, wall_clock_ms)
