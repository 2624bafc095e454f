"""The sink of the query: writes the output of an epoch and commits it.

It is a Python data source of Spark. `write` runs in workers, one call per sink partition and epoch; `commit` runs once
per epoch on the driver's machine, in a separate process. A sink partition writes all its output in one transaction, or
nothing if that epoch is already written. The commit checks that every task has reported exactly once and continued from
the head in the previous manifest, then writes the manifest: from then on the epoch is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.client.api import GroupCommit, OffsetAndMetadata
from penstock.client.confluent.at_least_once import AtLeastOnceWriter
from penstock.client.confluent.sending import EpochWriter
from penstock.client.confluent.statistics import STATISTICS
from penstock.client.kept_clients import keep_open
from penstock.errors import (
    AuthenticationError,
    AuthorizationError,
    StreamsError,
    TaskCorruptedError,
    TaskMigratedError,
)
from penstock.host.commits.production import ProductionFailedError
from penstock.host.crashpoints import crash_point
from penstock.host.packing.record_blobs import decode_batch
from penstock.host.spark.checkpoints.checkpoint import Manifest, TopicFigures
from penstock.host.spark.checkpoints.documents import damaged
from penstock.host.spark.checkpoints.manifests import check_follows
from penstock.host.spark.clients import open_admin, open_checkpoint
from penstock.host.spark.planner.taps import write_tapped
from penstock.host.spark.protocol.application_description import ApplicationDescription, load_description
from penstock.host.spark.protocol.epoch_offset import EpochOffset
from penstock.host.spark.protocol.failures import QueryFailedError, encode_failure
from penstock.host.spark.protocol.mailbox import Mailbox
from penstock.host.spark.protocol.messages import AT_END, SinkControl, TaskReport
from penstock.host.spark.protocol.rows import CONTROL, FAILURE, HEAD, OUTPUT, Row
from penstock.host.spark.protocol.transactions import marker_note, transactional_writer
from penstock.host.spark.versions import StreamWriter, stream_writer
from penstock.host.spark.worker.measuring import added_up, measured_by_task, plain
from penstock.host.spark.worker.production import RefusedOutput
from penstock.host.spark.worker.stage import prepare_worker
from penstock.record import PartitionBatch, TopicPartition, size_of
from penstock_broker.common.clock import SystemClock

FORMAT = "penstock-sink"


class SinkBase(DataSource):
    """The data source; `sink_class` adds the description."""

    description: bytes

    @classmethod
    def name(cls) -> str:
        """Return the name of the sink in the query."""
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  # Spark's name
        """Return the writer."""
        return stream_writer(EpochSink(self.description))


def sink_class(description_bytes: bytes) -> type[SinkBase]:
    """Return the data source of one run.

    A class created here is pickled by value, together with the description.
    """

    class PenstockSink(SinkBase):
        description = description_bytes

    return PenstockSink


@dataclass
class PartitionCommit(WriterCommitMessage):
    """The message of one sink partition to the driver.

    Args:
        control: the control of the epoch that it received.
        reports: the task reports that it received.
        output: its output as (topic, records, bytes).
        write_ms: duration of the write.
        measured: reports of its producers, as measurements by operation.
        failure: a failure that ends the query.
    """

    control: bytes | None = None
    reports: list[bytes] = field(default_factory=list)
    output: tuple[tuple[str, int, int], ...] = ()
    write_ms: float = 0.0
    measured: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    failure: bytes | None = None


class EpochSink(StreamWriter):
    """Writes and commits epochs; see the module docstring.

    Args:
        description: of the application, as bytes.
    """

    def __init__(self, description: bytes) -> None:
        self._description = description

    def write(self, rows: Iterator[Row]) -> WriterCommitMessage:
        """Write the output of one sink partition."""
        prepare_worker()
        description = load_description(self._description)
        try:
            return _write(description, list(rows))
        except StreamsError as error:
            raise QueryFailedError(encode_failure(error, ""), description.failure_key) from error

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Check the reports of all tasks and write the manifest.

        Raises QueryFailedError to end the query.
        """
        description = load_description(self._description)
        received = [message for message in messages if isinstance(message, PartitionCommit)]
        for message in received:
            if message.failure is not None:
                raise QueryFailedError(message.failure, description.failure_key)
        if not any(message.control or message.reports for message in received):
            return  # a driver that stopped before its first epoch leaves an empty batch for Spark
        try:
            commit_epoch(description, received)
        except StreamsError as error:
            raise QueryFailedError(encode_failure(error, ""), description.failure_key) from error


def _write(description: ApplicationDescription, rows: list[Row]) -> PartitionCommit:
    failures = [row for row in rows if row.kind == FAILURE]
    if failures:
        return PartitionCommit(failure=min(failures, key=lambda row: row.lane).batch)
    result = PartitionCommit()
    for row in rows:
        if row.kind == HEAD:
            result.reports.append(row.batch)
        elif row.kind == CONTROL:
            result.control = row.batch
    output = sorted((row for row in rows if row.kind == OUTPUT), key=lambda row: (row.lane, row.sequence))
    committed = _committed(description, result.reports)
    if not output and not committed:
        return result
    if result.control is None:
        raise TaskCorruptedError("Output arrived in a sink partition without its control row; the shuffle lost rows.")
    offset = SinkControl.decode(result.control).offset
    epoch = offset.epoch
    parts = [(decode_batch(row.batch), row.lane) for row in output]
    if description.writes_changelogs:  # leftover input of a task is older than records from others
        parts.sort(key=lambda part: not _is_left_over(description, *part))
    batches = [batch for batch, _ in parts]
    crash_point("transaction.before", epoch)
    began = SystemClock().nanoseconds()
    refused = RefusedOutput(description, [lane for _, lane in parts])
    try:
        note = marker_note(description.checkpoint_id, offset)
        writer = _writer(description, rows[0].task)
        group_commit = _group_commit(description, offset, committed) if committed else None
        written = writer.write(epoch, description.query_id, batches, refused, note, group_commit)
    except (ProductionFailedError, AuthenticationError, AuthorizationError) as error:  # another attempt would fail too
        return PartitionCommit(failure=encode_failure(error, ""))
    result.write_ms = _ms_since(began)
    result.measured = plain(STATISTICS.take_of(description.config))
    crash_point("transaction.after", epoch)
    if written:
        shown = (each for each in batches if each.topic not in description.topics_for_other_hosts)
        result.output = tuple((each.topic, len(each.batch), size_of(each.batch)) for each in shown)
    return result


def _committed(description: ApplicationDescription, reports: Sequence[bytes]) -> list[tuple[str, int, int, str]]:
    """Return the group's commits for the tasks of `reports`; see TaskReport."""
    if not description.writes_changelogs:
        return []
    return [each for report in reports for each in TaskReport.decode(report).committed]


def _is_left_over(description: ApplicationDescription, output: PartitionBatch, lane: int) -> bool:
    """Return whether `output` is the task's own input, left for the next epoch.

    The task is that of `lane`.
    """
    consumer = description.placement.consumers.get(TopicPartition(output.topic, output.partition))
    return consumer is not None and description.placement.places[consumer].lane == lane


def _group_commit(
    description: ApplicationDescription, end: EpochOffset, committed: Sequence[tuple[str, int, int, str]]
) -> GroupCommit:
    """Return the offsets from which another host continues after the epoch that ends at `end`.

    Records that wait between tasks are written after the current ends of the repartition topics.
    """
    internal = description.topology.repartition_topics
    between = [TopicPartition(topic, partition) for topic, partition, *_ in committed if topic in internal]
    ends = open_admin(description).end_offsets(between) if between else {}
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic, number, waits_from, text in committed:
        partition = TopicPartition(topic, number)
        if topic not in internal:
            ends[partition] = end.position(partition) if waits_from == AT_END else waits_from
        offsets[partition] = OffsetAndMetadata(ends[partition], text)
    return GroupCommit(description.application_id, offsets)


@keep_open(most=64)
def _writer(description: ApplicationDescription, sink_partition: int) -> EpochWriter:
    """Return the writer of a sink partition, kept open for the next epochs.

    It checks for a newer driver before it writes. Markers alone do not stop a worker of an earlier topology version:
    they name the next version, and the producer of this worker would fence the producer of that one.
    """
    alone = partial(_check_generation, description.checkpoint, description.generation)
    if not description.transactional:
        return AtLeastOnceWriter(description.config, before_write=alone)
    known = partial(_is_in_manifest, description.checkpoint, description.query_id)
    return transactional_writer(description.config, description.application_id, sink_partition, known, alone)


def _check_generation(checkpoint: str, generation: int) -> None:
    open_checkpoint(checkpoint).check_generation(generation)


def _is_in_manifest(checkpoint: str, query_id: str, epoch: int) -> bool:
    """Return whether an epoch is completely committed, by its manifest.

    Markers are committed offsets, and once they have expired, only the manifest shows that the output exists.
    """
    manifest = open_checkpoint(checkpoint).read_manifest(epoch, query_id)
    return manifest is not None and manifest.query_id == query_id


def commit_epoch(description: ApplicationDescription, messages: Sequence[PartitionCommit]) -> None:
    """Write the manifest of the epoch of `messages`.

    Raises:
        TaskMigratedError: a newer driver has taken over.
        TaskCorruptedError: a task did not report, reported twice, or did not continue from the previous manifest.
    """
    began = SystemClock().nanoseconds()
    checkpoint = open_checkpoint(description.checkpoint)
    checkpoint.check_generation(description.generation)
    control = _control(messages)
    end = control.offset
    decoded = (TaskReport.decode(blob) for message in messages for blob in message.reports)
    reports = sorted(decoded, key=lambda report: report.task)
    before = checkpoint.read_manifest(end.epoch - 1, description.query_id)
    if before is None:
        name = checkpoint.manifest_name(end.epoch - 1)
        raise damaged(name, "it was deleted while the application ran")
    _check(description, end, reports, before)
    existing = checkpoint.read_manifest(end.epoch, description.query_id)
    if existing is not None and existing.query_id == description.query_id:
        # A driver that this one has replaced may have been about to write it at the last check.
        check_follows(existing, end, checkpoint.manifest_name(end.epoch))
        return
    crash_point("manifest.before_write", end.epoch)
    # As late as possible: the next topology version, of a newer driver, begins with this epoch number.
    checkpoint.check_generation(description.generation)
    committed_ms, commit_ms = SystemClock().milliseconds(), _longest_write(messages) + _ms_since(began)
    manifest = Manifest(
        query_id=description.query_id,
        epoch=end.epoch,
        generation=description.generation,
        planned_ms=end.planned_ms,
        committed_ms=committed_ms,
        tasks={report.task: report.entry for report in reports},
        offsets=end.positions,
        input=_figures(each for report in reports for each in report.input),
        records_out=sum(records for message in messages for _, records, _ in message.output),
        output=_figures(each for message in messages for each in message.output),
        bytes_sent=sum(report.sent for report in reports),
        processed={report.task: report.processed for report in reports if report.processed},
        dropped={report.task: report.dropped for report in reports if report.dropped},
        printed="".join(report.printed for report in reports),
        removed=before.removed,
        commit_ms=commit_ms,
        phases_ms=_phases(committed_ms - end.planned_ms, control.plan_ms, reports, commit_ms),
        measured=measured_by_task(reports, (message.measured for message in messages)),
        sensors=added_up(report.sensors for report in reports),
        global_offsets=end.global_positions,
        read_to_ms=end.read_to_ms,
        leader_epochs=end.leader_epochs,
        call_again_before=end.call_again_before,
        lagging=end.lagging,
        idle_ms=end.idle_ms,
        workers={report.task: report.worker for report in reports if report.worker},
        awaited={report.task: [*map(list, report.awaited)] for report in reports if report.awaited},
    )
    checkpoint.write_manifest(manifest, partial(crash_point, "manifest.torn_write", end.epoch))
    crash_point("manifest.after_write", end.epoch)
    write_tapped(Mailbox(description.control_directory), (report.tapped for report in reports))


def _longest_write(messages: Sequence[PartitionCommit]) -> float:
    return max((message.write_ms for message in messages), default=0.0)


def _phases(epoch_ms: float, plan_ms: float, reports: Iterable[TaskReport], transaction_ms: float) -> dict[str, float]:
    """Return the duration (ms) of each phase of an epoch of `epoch_ms`.

    The time in which tasks ran, many at a time, is divided in proportion to their own phases; the rest is Spark's.
    """
    ran = sorted(report.phases for report in reports if report.phases is not None)
    busy_ms, until_ms = 0.0, 0.0
    for each in ran:
        busy_ms += max(each.ended_ms - max(each.began_ms, until_ms), 0.0)
        until_ms = max(each.ended_ms, until_ms)
    took = {
        "fetch": sum(each.fetch_ms for each in ran),
        "process": sum(each.process_ms for each in ran),
        "state": sum(each.state_ms for each in ran),
    }
    scale = busy_ms / (sum(took.values()) or 1.0)
    phases = {"plan": float(plan_ms), **{name: value * scale for name, value in took.items()}}
    phases["transaction"] = transaction_ms
    return {**phases, "spark": max(epoch_ms - sum(phases.values()), 0.0)}


def _ms_since(nanoseconds: int) -> float:
    return (SystemClock().nanoseconds() - nanoseconds) / 1e6


def _control(messages: Sequence[PartitionCommit]) -> SinkControl:
    for message in messages:
        if message.control is not None:
            return SinkControl.decode(message.control)
    raise TaskCorruptedError("No sink partition received its control row; the shuffle lost rows.")


def _check(
    description: ApplicationDescription, end: EpochOffset, reports: Sequence[TaskReport], before: Manifest
) -> None:
    expected = {str(task) for task in description.placement.tasks}
    seen: set[str] = set()
    for report in reports:
        if report.generation != description.generation:
            raise TaskMigratedError(
                f"Task {report.task} reports as generation {report.generation}, this program is generation "
                f"{description.generation}: two programs with this application.id are running."
            )
        parent = before.entry(report.task).head
        if report.task in seen or report.task not in expected or report.epoch != end.epoch or report.parent != parent:
            raise TaskCorruptedError(
                f"Task {report.task} reports epoch {report.epoch} after segment {report.parent or 'none'}; expected "
                f"one report of epoch {end.epoch} "
                f"after segment {parent or 'none'}. The epoch is not committed; start the application again."
            )
        seen.add(report.task)
    missing = sorted(expected - seen)
    if missing:
        raise TaskCorruptedError(
            f"The tasks {', '.join(missing)} did not report epoch {end.epoch}; it is not committed. Start the "
            "application again."
        )


def _figures(parts: Iterable[tuple[str, int, int]]) -> dict[str, TopicFigures]:
    """Return records and bytes by topic, added up."""
    totals: dict[str, TopicFigures] = {}
    for topic, records, size in parts:
        total = totals.get(topic, TopicFigures(0, 0))
        totals[topic] = TopicFigures(total.records + records, total.bytes + size)
    return totals
