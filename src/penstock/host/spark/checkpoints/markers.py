"""The markers of committed epochs in Kafka.

A driver compares them with the checkpoint before it starts. The sink writes each epoch of a sink partition in one
transaction with a *marker*: the number of the epoch, as an offset of the commits topic, with the topology version, the
checkpoint and a digest of the epoch's offset as metadata. So Kafka remembers the application's progress, independent of
the checkpoint. A checkpoint that was lost, or is an older copy, is detected here, before it writes anything twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from penstock.client.api import Admin, OffsetAndMetadata
from penstock.config import StreamsConfig
from penstock.errors import IncompatibleCheckpointError, UnstableOffsetCommitError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest, Metadata
from penstock.host.spark.checkpoints.manifests import planned_offset
from penstock.host.spark.protocol.epoch_offset import EpochOffset
from penstock.host.spark.protocol.transactions import commits_topic, transactional_writer
from penstock.record import TopicPartition

T = TypeVar("T")

_FENCED_AT_ONCE = 16


class Marker(NamedTuple):
    """The newest epoch that a sink partition has committed.

    Args:
        sink_partition: number of the sink partition.
        epoch: number of the epoch.
        query_id: of the topology version.
        checkpoint_id: of the checkpoint; empty if Penstock wrote the marker before markers had it.
        digest: of the epoch's offset; empty likewise.
    """

    sink_partition: int
    epoch: int
    query_id: str
    checkpoint_id: str = ""
    digest: str = ""


def with_markers(
    config: StreamsConfig,
    admin: Admin,
    topics: Mapping[str, int],
    check: Callable[[Sequence[Marker]], T],
) -> T:
    """Return the result of `check` on the markers of an application without open transactions.

    A transaction that a killed driver left open is ended here, by a producer that fences the driver's own. That happens
    only if `check` accepts the existing markers: an application that is started on the wrong checkpoint does not
    disturb the running one.

    Args:
        config: of the application.
        admin: a client of its brokers.
        topics: the partitions of each topic of the brokers.
        check: takes the markers; raises if the application must not continue.

    Raises:
        KafkaError: the brokers do not answer, or do not allow it; and any error of `check`.
    """
    application_id = str(config.required("application.id"))
    topic = commits_topic(application_id)
    partitions = [TopicPartition(topic, number) for number in range(topics.get(topic, 0))]
    if not partitions:
        return check(())
    try:
        moved = move_markers(admin, application_id, partitions)
    except UnstableOffsetCommitError:
        found = {
            **admin.committed_offsets(application_id, partitions, stable=False),
            **admin.committed_offsets(topic, partitions, stable=False),
        }
        check(_markers(found))
        _fence(config, application_id, len(partitions))
        moved = move_markers(admin, application_id, partitions)
    return check(_markers(moved))


def move_markers(
    admin: Admin, former_group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Commit offsets of `former_group` for `partitions` in the group named as their commits topic.

    Earlier versions stored the markers in `former_group`. Offsets that the group already has are kept. Return the
    offsets of the group afterwards.

    Raises UnstableOffsetCommitError if an open transaction does not end within a moment.
    """
    group = partitions[0].topic
    known = admin.committed_offsets(group, partitions)
    former = admin.committed_offsets(former_group, [tp for tp in partitions if tp not in known])
    moved = {tp: found for tp, found in former.items() if found.metadata}
    admin.commit_offsets(group, moved)
    return {**known, **moved}


def _fence(config: StreamsConfig, application_id: str, sink_partitions: int) -> None:
    """End and fence the open transactions of all sink partitions.

    No other producer can continue them afterwards.
    """

    def fence(sink_partition: int) -> None:
        writer = transactional_writer(config, application_id, sink_partition)
        try:
            writer.fence()
        finally:
            writer.close()

    with ThreadPoolExecutor(_FENCED_AT_ONCE) as pool:
        list(pool.map(fence, range(sink_partitions)))


def _markers(committed: Mapping[TopicPartition, OffsetAndMetadata]) -> tuple[Marker, ...]:
    return tuple(_marker(partition, found) for partition, found in sorted(committed.items()) if found.metadata)


def _marker(partition: TopicPartition, found: OffsetAndMetadata) -> Marker:
    query_id, checkpoint_id, digest, *_ = (*found.metadata.split(" "), "", "")
    return Marker(partition.partition, found.offset, query_id, checkpoint_id, digest)


# ---------------------------------------- comparison with a checkpoint


def check_new_checkpoint(checkpoint: Checkpoint, application_id: str, markers: Sequence[Marker]) -> None:
    """Check that an application that starts on an empty checkpoint has written nothing before.

    Raises IncompatibleCheckpointError if it has.
    """
    if markers:
        newest = max(markers, key=lambda each: each.epoch)
        raise IncompatibleCheckpointError(
            f"There is no checkpoint at {checkpoint.uri}, and Kafka knows that {application_id} has committed "
            f"{newest.epoch} epochs: the checkpoint was lost or moved, or state.dir (by default no longer among the "
            "temporary files), penstock.checkpoint.dir or application.id has changed. Starting here would process all "
            "input again and write all output twice. Bring the checkpoint back, restore a savepoint (penstock "
            "savepoint restore), or discard the commits: penstock reset FILE, with the program."
        )


def check_commits_topic(checkpoint: Checkpoint, metadata: Metadata, last: Manifest, topics: Collection[str]) -> None:
    """Check that the commits topic exists if the planned epoch needs it.

    This is the topic of the markers.

    Args:
        checkpoint: of an application that writes in transactions.
        metadata: of the checkpoint.
        last: its last manifest.
        topics: those of the brokers.

    Raises:
        IncompatibleCheckpointError: the topic was deleted, and only it recorded whether the output of the planned epoch
            is written.
    """
    topic, planned = commits_topic(metadata.application_id), planned_offset(checkpoint, metadata, last)
    if metadata.transactional and topic not in topics and planned is not None:
        raise IncompatibleCheckpointError(
            f"The topic {topic} was deleted, and it said whether the output of epoch {planned.epoch} of "
            f"{metadata.application_id} is written: {checkpoint.uri} has planned that epoch and not committed it. Look "
            "at the end of the output topics. If the output of the epoch may be there twice, or is not there, create "
            f"the topic (penstock topics create {topic}) and start again: the epoch is written once more. Else start "
            "over: penstock reset FILE."
        )


def check_markers(
    checkpoint: Checkpoint,
    metadata: Metadata,
    last: Manifest,
    planned: EpochOffset | None,
    markers: Iterable[Marker],
) -> tuple[str, ...]:
    """Check the markers in Kafka; return the former owners for the checkpoint's metadata.

    Raises:
        IncompatibleCheckpointError: the checkpoint is an older copy, lacks files, or is not the one that wrote the
            markers.
    """
    former = set(metadata.former_owners or ())
    for marker in markers:
        is_ours = metadata.checkpoint_id == marker.checkpoint_id or metadata.query_id == marker.query_id
        if is_ours:
            _check_own(checkpoint, metadata, last, planned, marker)
        elif metadata.former_owners is None:
            former.add(marker.query_id)
        elif marker.query_id not in former:
            raise IncompatibleCheckpointError(
                f"{checkpoint.uri} is not the checkpoint from which {metadata.application_id} has written: Kafka has "
                f"epoch {marker.epoch} of sink partition {marker.sink_partition} from another one. Start the "
                "application on that checkpoint, or give this one its own application.id."
            )
    return tuple(sorted(former))


def _check_own(
    checkpoint: Checkpoint, metadata: Metadata, last: Manifest, planned: EpochOffset | None, marker: Marker
) -> None:
    if marker.epoch <= last.epoch:
        return
    if marker.query_id == metadata.query_id and marker.epoch == last.epoch + 1 and planned is not None:
        if marker.digest in ("", planned.digest()):
            return
        lost = f"{checkpoint.offset_name(marker.epoch)} is not the offset with which that epoch was written"
    elif marker.query_id == metadata.query_id and marker.epoch == last.epoch + 1:
        lost = f"{checkpoint.offset_name(marker.epoch)}, with which it was written, is missing"
    else:
        lost = f"{checkpoint.manifest_name(marker.epoch - 1)} is missing"
    raise IncompatibleCheckpointError(
        f"The checkpoint {checkpoint.uri} ends with epoch {last.epoch}, and Kafka has epoch {marker.epoch} that "
        f"{metadata.application_id} wrote from it (sink partition {marker.sink_partition}); {lost}: this is an older "
        "copy of the checkpoint, or files of it were deleted. Continuing here would write output twice or leave some "
        "out. Restore the whole checkpoint directory from the newest copy. If there is none: copy this state with "
        "penstock savepoint take, and restore it with penstock savepoint restore into an empty "
        f"directory; the application then continues from epoch {last.epoch} and writes its later "
        "output again."
    )
