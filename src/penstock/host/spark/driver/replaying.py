"""`penstock replay`: runs one epoch of an application again, in this process, from its checkpoint and topics.

An epoch depends on its offset, on the manifest before it, on the segments and rows that this manifest names, and on the
records of the topics; so the same functions give the same result. Tasks run one after the other, level by level, as
workers run them. Their writes are kept in memory: checkpoint, topics and state directory do not change. The position of
a task is a digest of everything that it has committed, so it shows whether the replay arrives at the same state. A task
with a result log takes its result from there and calls no function, as when the epoch runs again on workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn

from penstock.client.confluent.admin import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.deployment.topics import resolve_patterns
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Metadata, TopicFigures, checkpoint_of
from penstock.host.spark.checkpoints.documents import damaged
from penstock.host.spark.checkpoints.format_3 import with_headers_named
from penstock.host.spark.checkpoints.manifests import existing_metadata, last_manifest, planned_offset, start_offset
from penstock.host.spark.checkpoints.stored_description import load_from_checkpoint, of_run
from penstock.host.spark.checkpoints.stored_history import stored_histories
from penstock.host.spark.driver.preparation import internal_topics
from penstock.host.spark.planner.task_controls import task_controls, task_ranges
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.epoch_offset import EpochOffset
from penstock.host.spark.protocol.history_bounds import live_position
from penstock.host.spark.protocol.messages import GlobalControl, TaskControl, TaskReport
from penstock.host.spark.protocol.placement import differences, shape
from penstock.host.spark.worker.determinism import TaskResult
from penstock.host.spark.worker.global_state import global_stores
from penstock.host.spark.worker.logged_results import found_result
from penstock.host.spark.worker.printing import PrintBuffer
from penstock.host.spark.worker.reading import check_topics, read_range
from penstock.host.spark.worker.task_epoch import TaskEpoch
from penstock.host.storage.files import Files, FoundFile
from penstock.plan.subtopology import BuiltTopology, TaskId
from penstock.record import PartitionBatch, TopicPartition, size_of
from penstock.state.api import StateStore
from penstock.task.stream_task import StreamTask

_TRACE: Final = "penstock.trace.order"


@dataclass(frozen=True)
class TaskReplay:
    """The result of one task in a replay.

    Args:
        task: its id.
        records: the number of records that it processed.
        differences: its differences from the committed epoch, in words; empty if it has no differences, or if the epoch
            was never committed.
        is_logged: whether the result is that of the result log, and no function was called.
    """

    task: TaskId
    records: int
    differences: tuple[str, ...]
    is_logged: bool


@dataclass(frozen=True)
class Replay:
    """The result of a replay.

    Args:
        application_id: the application.id.
        epoch: number of the epoch.
        planned_ms: its time, in ms since the Unix epoch.
        is_committed: whether there is a committed result to compare with.
        tasks: the tasks that ran.
        output: the records for topics, by task, as bytes.
        differences: between the output and the figures of the manifest, in words.
    """

    application_id: str
    epoch: int
    planned_ms: int
    is_committed: bool
    tasks: tuple[TaskReplay, ...]
    output: tuple[tuple[TaskId, PartitionBatch], ...]
    differences: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Whether the replay equals the committed epoch."""
        return not self.differences and not any(task.differences for task in self.tasks)


class EpochReplay:
    """One epoch that can be run again; see the module.

    Args:
        built: the topology of the program, with the functions to run.
        config: its configuration, with brokers and checkpoint.
        scratch: an empty directory for bases of stores.
        epoch: its number; None for an epoch that was started and not committed, or else the last committed one.

    Raises:
        StreamsError: there is no checkpoint, it no longer has the epoch, or the program has another shape.
        TaskCorruptedError: files of the checkpoint are damaged or missing.
    """

    def __init__(self, built: BuiltTopology, config: StreamsConfig, scratch: Path, epoch: int | None = None) -> None:
        checkpoint = checkpoint_of(config)
        metadata = existing_metadata(checkpoint, StreamsError)
        last = last_manifest(checkpoint, metadata)
        planned = planned_offset(checkpoint, metadata, last)
        newest = last.epoch if planned is None else planned.epoch
        self.epoch = newest if epoch is None else epoch
        if not metadata.start_epoch < self.epoch <= newest:
            raise StreamsError(
                f"Epoch {self.epoch} cannot be replayed: the checkpoint {checkpoint.uri} has begun epochs "
                f"{metadata.start_epoch + 1} to {newest} with the present topology."
            )
        before = checkpoint.read_manifest(self.epoch - 1, metadata.query_id)
        self._manifest = checkpoint.read_manifest(self.epoch, metadata.query_id) if self.epoch <= last.epoch else None
        if before is None or before.query_id != metadata.query_id or (self.epoch <= last.epoch and not self._manifest):
            raise StreamsError(
                f"Epoch {self.epoch} cannot be replayed: its manifest, or the one before it, is deleted. The oldest is "
                f"of epoch {checkpoint.first_epoch()}: penstock.manifests.retained says how many are kept."
            )
        self._before = before
        self._start = start_offset(metadata, before)
        self._description = _description(built, config, checkpoint, metadata, scratch)
        self._end = planned if planned is not None and self.epoch > last.epoch else self._committed_offset(metadata)
        self._checkpoint = _UnchangedCheckpoint(checkpoint.uri)
        self._trace: str | None = config[_TRACE]
        self._scratch = scratch

    @property
    def tasks(self) -> tuple[TaskId, ...]:
        """The tasks of the epoch."""
        return self._description.placement.tasks

    def run(self, task: TaskId | None = None, prepare: Callable[[StreamTask], None] = lambda task: None) -> Replay:
        """Run the epoch.

        Args:
            task: run only this task, after those that send to it; None for all.
            prepare: called with each task before it processes.

        Raises:
            StreamsError: a function fails, records of the topics or logged results are deleted, or there is no such
                task.
            KafkaError: brokers do not answer.
        """
        wanted = self._wanted(task)
        self._check_records(wanted)
        description, placement = self._description, self._description.placement
        controls = dict(task_controls(description, self._before, self._start, self._end, {}))
        waiting: dict[TaskId, list[PartitionBatch]] = {}
        tasks: list[TaskReplay] = []
        output: list[tuple[TaskId, PartitionBatch]] = []
        with global_stores(description, self._checkpoint, GlobalControl.of(self._end)) as stores:
            for each in (each for level in placement.levels for each in level if each in wanted):
                arrived = waiting.pop(each, [])
                logged = self._logged(each, controls[each])
                sent, report = logged or self._run_task(each, controls[each], arrived, stores, prepare)
                found = tuple(self._differences(each, report))
                tasks.append(TaskReplay(each, report.processed, found, logged is not None))
                for part in sent:
                    consumer = placement.consumers.get(TopicPartition(part.topic, part.partition))
                    if part.topic not in description.topics_for_other_hosts:
                        output.append((each, part))
                    elif consumer in wanted and placement.places[consumer].level > placement.places[each].level:
                        waiting.setdefault(consumer, []).append(part._replace(lane=placement.places[each].lane))
        return Replay(
            description.application_id,
            self.epoch,
            self._end.planned_ms,
            self._manifest is not None,
            tuple(tasks),
            tuple((each, part) for each, part in output if task in (None, each)),
            tuple(self._other_output(output)) if task is None else (),
        )

    def _wanted(self, task: TaskId | None) -> frozenset[TaskId]:
        """Return the tasks to run: `task`, and its upstream tasks on lower levels."""
        if task is None:
            return frozenset(self.tasks)
        if task not in self.tasks:
            raise StreamsError(f"Epoch {self.epoch} has no task {task}; it has {', '.join(map(str, self.tasks))}.")
        subtopologies, topology = {task.subtopology}, self._description.topology
        while True:
            reads = {t for number in subtopologies for t in self._description.subtopologies[number].source_topics}
            feeding = {spec.id for spec in topology.subtopologies if reads.intersection(spec.sink_topics)}
            if feeding <= subtopologies:
                break
            subtopologies |= feeding
        places = self._description.placement.places
        level = places[task].level
        others = (each for each in self.tasks if each.subtopology in subtopologies and places[each].level < level)
        return frozenset((task, *others))

    def _check_records(self, tasks: frozenset[TaskId]) -> None:
        """Raise StreamsError if a topic no longer has all records that the epoch read."""
        ranges = [each for task in tasks for each in task_ranges(self._description, task, self._start, self._end)]
        if not ranges:
            return
        check_topics(self._description, {each.partition.topic for each in ranges})
        with closing(ConfluentAdmin(self._description.config)) as admin:
            begins = admin.beginning_offsets([each.partition for each in ranges])
        for each in ranges:
            start = live_position(self._description.histories, each.partition, each.start)
            if start < each.end and begins[each.partition] > start:
                raise StreamsError(
                    f"Epoch {self.epoch} cannot be replayed: it has read {each.partition} from offset {start}, "
                    f"and the records before offset {begins[each.partition]} are deleted."
                )

    def _logged(self, task: TaskId, control: TaskControl) -> TaskResult | None:
        """Return the result of a task in the result log, None if it has none."""
        if not self._logs_results(task):
            return None
        return found_result(self._description, self._checkpoint, task, control)

    def _logs_results(self, task: TaskId) -> bool:
        return self._description.logs_results(self._description.subtopologies[task.subtopology])

    def _run_task(
        self,
        task: TaskId,
        control: TaskControl,
        sent: list[PartitionBatch],
        stores: Mapping[str, StateStore],
        prepare: Callable[[StreamTask], None],
    ) -> TaskResult:
        inputs = sorted((*self._fetched(task), *sent), key=lambda part: part.lane)
        if self._manifest is not None and self._logs_results(task):
            prepare = self._refuse
        epoch = TaskEpoch(self._description, self._checkpoint, task, control, stores, prepare)
        return TaskResult(*epoch.run(inputs, PrintBuffer()))

    def _refuse(self, task: StreamTask) -> NoReturn:
        """Raise StreamsError for a task that has work to do, and whose committed result is deleted."""
        raise StreamsError(
            f"Epoch {self.epoch} cannot be replayed: the result of task {task.task_id} in the result log is deleted, "
            "and its functions may return something else now. The checkpoint keeps the results of the last committed "
            "epoch, and of a later one that is not committed: omit --epoch."
        )

    def _fetched(self, task: TaskId) -> Iterator[PartitionBatch]:
        for each in task_ranges(self._description, task, self._start, self._end):
            for batch in read_range(self._description, each.partition, each.start, each.end, self._end.planned_ms):
                yield PartitionBatch(*each.partition, batch)

    # ---------------------------------------- the committed epoch

    def _committed_offset(self, metadata: Metadata) -> EpochOffset:
        """Return the offset of a committed epoch, as planned."""
        logged, manifest = self._checkpoint_offset(metadata), self._manifest
        assert manifest is not None
        if logged is not None:
            # a later run than the one that logged the offset may have committed the epoch, see `calling_again`
            return replace(logged, call_again_before=manifest.call_again_before)
        may_wait = any(self._description.placement.awaitable.values())
        if manifest.idle_ms is None and may_wait:
            raise StreamsError(
                f"Epoch {self.epoch} cannot be replayed: an earlier version of Penstock has committed it, which did "
                "not keep what its tasks waited for."
            )
        return replace(
            self._start,
            epoch=manifest.epoch,
            planned_ms=manifest.planned_ms,
            positions=manifest.offsets,
            global_positions=manifest.global_offsets,
            lagging=manifest.lagging,
            idle_ms=manifest.idle_ms or 0,
            read_to_ms=manifest.read_to_ms,
            leader_epochs=manifest.leader_epochs,
            call_again_before=manifest.call_again_before,
        )

    def _checkpoint_offset(self, metadata: Metadata) -> EpochOffset | None:
        """Return the offset of the epoch, or None if it is no longer logged."""
        fields = Checkpoint(self._description.checkpoint).read_offset(self.epoch)
        if fields is None or fields.get("query_id") != metadata.query_id:
            return None
        return EpochOffset.from_json(fields)

    def _differences(self, task: TaskId, report: TaskReport) -> Iterator[str]:
        """Yield the differences between a task's replay and its commit, in words."""
        if self._manifest is None:
            return
        committed, processed = self._manifest.entry(str(task)), self._manifest.processed.get(str(task), 0)
        if report.processed != processed:
            yield f"it processes {report.processed} records, and has processed {processed}"
        if report.entry.head != committed.head:
            yield "its state, schedules or times differ from those that it has committed"
        if _file(report.entry.carried) != _file(committed.carried):
            yield "the records that it carries to the next epoch differ from those that it has committed"
        if self._trace is not None:
            name = f"{task}/{self.epoch:012d}"
            traced, here = Path(self._trace, name), Path(str(self._description.config[_TRACE]), name)
            if traced.is_file() and here.is_file() and traced.read_bytes() != here.read_bytes():
                yield "it takes its records in another order than the order trace says"

    def _other_output(self, output: list[tuple[TaskId, PartitionBatch]]) -> Iterator[str]:
        """Yield the differences between the output and the manifest's figures, by topic."""
        if self._manifest is None:
            return
        totals: dict[str, TopicFigures] = {}
        for _, part in output:
            total = totals.get(part.topic, TopicFigures(0, 0))
            totals[part.topic] = TopicFigures(total.records + len(part.batch), total.bytes + size_of(part.batch))
        for topic in sorted({*totals, *self._manifest.output}):
            here, then = totals.get(topic, TopicFigures(0, 0)), self._manifest.output.get(topic, TopicFigures(0, 0))
            if here != then:
                yield (
                    f"topic {topic} would get {here.records} records of {here.bytes} bytes, and got {then.records} of "
                    f"{then.bytes} bytes"
                )


class _UnchangedFiles(Files):
    """A directory with the names of its new files kept in memory, as those of the votes for a result."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._noted: set[tuple[str, str]] = set()  # each directory and name

    def find(self, directory: str) -> list[FoundFile]:
        """Return the entries of a directory, including new ones."""
        found = super().find(directory)
        new = {name for uri, name in self._noted if uri == self.uri} - {each.name for each in found}
        return [*found, *(FoundFile(name, None, False) for name in new)]

    def write_once(self, path: str, data: bytes, before_rename: Callable[[], None] | None = None) -> None:
        """Keep the name of a file in memory."""
        self._noted.add((self.uri, path))


class _UnchangedCheckpoint(Checkpoint):
    """A checkpoint with its writes kept in memory."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._written: dict[tuple[str, str], bytes] = {}

    def check_generation(self, generation: int) -> None:
        """Do nothing: the application may run, and another driver may take it over."""

    def read_segment(self, task: str, segment: str) -> bytes | None:
        """Return the bytes of a segment, including segments written here."""
        return self._written.get((task, segment)) or super().read_segment(task, segment)

    def read_segment_range(self, task: str, segment: str, offset: int, length: int) -> bytes | None:
        """Return a range of bytes of a segment, including segments written here."""
        written = self._written.get((task, segment))
        if written is not None:
            return written[offset : offset + length]
        return super().read_segment_range(task, segment, offset, length)

    def write_segment(self, task: str, segment: str, data: bytes, before_rename: Callable[[], None]) -> None:
        """Keep a segment in memory."""
        self._written[task, segment] = data

    def results(self) -> Files:
        """Return the directory with the result log of each epoch, for reading: a reader of it notes its vote."""
        return _UnchangedFiles(super().results().uri)

    def write_restore_state(self, name: str, data: bytes) -> None:
        """Do nothing: this restore has no watcher."""

    def delete_restore_state(self, name: str) -> None:
        """Do nothing."""


def _description(
    built: BuiltTopology, config: StreamsConfig, checkpoint: Checkpoint, metadata: Metadata, scratch: Path
) -> ApplicationDescription:
    """Return the epoch's description from the checkpoint, with the functions of the program."""
    data = checkpoint.read_description(metadata)
    if data is None:
        raise damaged(f"{checkpoint.uri}/plans/{metadata.plan}", "it is missing")
    try:
        stored = load_from_checkpoint(data)
    except Exception as error:  # unpickling may raise anything: user objects run code
        raise StreamsError(
            f"The description of the application in the checkpoint {checkpoint.uri} cannot be loaded: {error}."
        ) from error
    name = str(config.required("application.id"))
    internal = internal_topics(built, name)
    topology = resolve_patterns(built, stored.topic_partitions, internal, config).without_data_frames()
    placement = replace(
        stored.placement, partitions=tuple(metadata.partitions), sink_partitions=metadata.sink_partitions
    )
    now = shape(topology, placement, config)
    if now != with_headers_named(checkpoint, metadata).shape:
        lines = "\n".join(f"  {line}" for line in differences(metadata.shape, now))
        raise StreamsError(
            "The program has another shape than the application in the checkpoint, so it cannot replay its epochs. "
            f"Functions may differ, and nothing else:\n{lines}"
        )
    run = replace(
        stored,
        config=config,
        checkpoint=checkpoint.uri,
        generation=checkpoint.read_generation(),
        histories=stored_histories(checkpoint.uri),
    )
    settled = of_run(stored, run)
    given = {key: value for key, value in settled.config.given().items() if key != _TRACE}
    given |= {"state.dir": str(scratch / "state"), "penstock.execution": config["penstock.execution"]}
    if config[_TRACE] is not None:
        given[_TRACE] = str(scratch / "order")
    return replace(
        settled,
        config=StreamsConfig(given, environment={}),
        topology=topology,
        placement=placement,
        checkpoint_id=metadata.checkpoint_id,
        query_id=metadata.query_id,
        program=metadata.plan,
        process_id="replay",
    )


def _file(carried: Mapping[str, Any] | None) -> str | None:
    return None if carried is None else carried["id"]
