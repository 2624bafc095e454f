"""Changelog topics of an application on Spark.

At each start they must have the same state as the checkpoint, or be empty if there is no checkpoint. From then on the
sink keeps both in step.

The offsets of the consumer group prove this, because the sink commits them together with the changelogs: another host
that continued from them has advanced them, and a run without changelog topics has added a text to their metadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from penstock.client.api import Admin, OffsetAndMetadata
from penstock.client.confluent import ConfluentFetcher
from penstock.client.sockets.cluster import Cluster
from penstock.client.sockets.offsets import committed_offsets
from penstock.config import StreamsConfig
from penstock.errors import IncompatibleCheckpointError
from penstock.host.api import STATE_ELSEWHERE
from penstock.host.deployment.internal_topics import make_internal_topics
from penstock.host.deployment.layout import Layout
from penstock.host.deployment.lost_topics import lost_topics
from penstock.host.spark.checkpoints.carried import first_held
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Metadata
from penstock.host.spark.checkpoints.manifests import last_manifest, planned_offset
from penstock.host.spark.protocol.transactions import commits_topic
from penstock.record import TopicPartition

_PATIENCE_MS = 60_000
"""How long (ms) a start waits for the end of an open transaction of the group."""


class PositionsInStep(NamedTuple):
    """The positions of the group if the changelog topics match a checkpoint.

    Args:
        last: the next offset of each partition to process after the last epoch; empty before the first epoch.
        planned: the position of each partition after the following epoch if its output may be written, otherwise None.
    """

    last: Mapping[TopicPartition, int]
    planned: Mapping[TopicPartition, int] | None


def positions_in_step(checkpoint: Checkpoint, metadata: Metadata, config: StreamsConfig) -> PositionsInStep:
    """Return the positions of the group if the changelog topics match `checkpoint`.

    Args:
        checkpoint: the checkpoint of the application.
        metadata: its metadata.
        config: of the application.

    Raises:
        TaskCorruptedError: files of the checkpoint are damaged.
    """
    manifest = last_manifest(checkpoint, metadata)
    planned = planned_offset(checkpoint, metadata, manifest)
    if planned is not None and metadata.transactional:
        marker = TopicPartition(commits_topic(metadata.application_id), 0)
        found = _committed(config, marker.topic, [marker]).get(marker)
        if found is None or found.offset < planned.epoch:
            planned = None
    return PositionsInStep(
        {**_by_partition(manifest.offsets), **first_held(checkpoint, manifest)},
        None if planned is None else _by_partition(planned.positions),
    )


def prepare_changelogs(
    layout: Layout, admin: Admin, topics: Mapping[str, int], in_step: PositionsInStep | None
) -> None:
    """Create the missing internal topics, after checking the changelogs against the checkpoint.

    Args:
        layout: of the application.
        admin: a client of its brokers.
        topics: the number of partitions of each topic of the brokers.
        in_step: the expected positions of the group; None if there is no checkpoint.

    Raises:
        IncompatibleCheckpointError: the changelogs have another state.
        StreamsError: an internal topic has another number of partitions.
    """
    if layout.stateful:
        _check_in_step(layout, admin, topics, in_step or PositionsInStep({}, None))
    make_internal_topics(layout, admin, topics)


def _check_in_step(layout: Layout, admin: Admin, topics: Mapping[str, int], in_step: PositionsInStep) -> None:
    name = str(layout.config.required("application.id"))
    inputs = sorted(p for p in layout.readers if p.topic not in layout.topology.repartition_topics)
    of_group = _committed(layout.config, name, sorted(layout.readers))
    committed = {partition: of_group[partition] for partition in inputs if partition in of_group}
    if any(found.metadata == STATE_ELSEWHERE for found in committed.values()):
        raise _out_of_step(name, "the application has run on Spark without penstock.changelog.topics since")
    if lost := lost_topics(layout, topics, {}, of_group):  # only the threads host stores topic ids
        raise _out_of_step(name, f"the topics {', '.join(each.name for each in lost)} were deleted")
    if _are_written(committed, in_step):
        return
    # Kafka Streams commits no offset for a partition that never had a record
    begins = admin.beginning_offsets([each for each in inputs if each not in committed]) if committed else {}
    for partition in inputs:
        wanted, found = in_step.last.get(partition), committed.get(partition)
        if found is None and wanted is None:
            continue
        start = begins.get(partition) if found is None else found.offset
        if start is None or wanted is None or not _are_equal(layout, partition, start, wanted):
            there = "no offset" if found is None else f"offset {found.offset}"
            expected = "no offset" if wanted is None else f"offset {wanted}"
            raise _out_of_step(name, f"the group {name} has committed {there} of {partition}, expected {expected}")
    if not in_step.last and (full := _with_records(layout, admin, topics)):
        raise _out_of_step(name, f"the topics {', '.join(full)} have records, and the checkpoint has no state")


def _committed(
    config: StreamsConfig, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets of a group. Waits for open transactions that may commit more."""
    with Cluster(config, _PATIENCE_MS) as cluster:
        return committed_offsets(cluster, group, partitions)


def _are_written(committed: Mapping[TopicPartition, OffsetAndMetadata], in_step: PositionsInStep) -> bool:
    """Return whether the offsets can be those of the planned epoch. Some of its input may be waiting."""
    if in_step.planned is None or not committed:
        return False
    return all(
        in_step.last.get(partition, 0) <= found.offset <= in_step.planned.get(partition, -1)
        for partition, found in committed.items()
    )


def _are_equal(layout: Layout, partition: TopicPartition, committed: int, wanted: int) -> bool:
    """Return whether both offsets precede the same record.

    There may be transaction markers in between; a task without input commits nothing for those.
    """
    return committed <= wanted and not _has_records(layout, partition, committed, wanted)


def _with_records(layout: Layout, admin: Admin, topics: Mapping[str, int]) -> list[str]:
    """Return the changelog topics that have records."""
    written = {topic for task in layout.groups for topic in layout.written_changelogs(task).values()}
    partitions = [TopicPartition(topic, n) for topic in sorted(written & topics.keys()) for n in range(topics[topic])]
    begins, ends = admin.beginning_offsets(partitions), admin.end_offsets(partitions, read_committed=True)
    return sorted({each.topic for each in partitions if _has_records(layout, each, begins[each], ends[each])})


def _has_records(layout: Layout, partition: TopicPartition, start: int, end: int) -> bool:
    """Return whether there are committed records from offset `start` to before `end`."""
    if start >= end:
        return False
    with closing(ConfluentFetcher(layout.config)) as fetcher:
        return any(len(batch) for batch in fetcher.fetch(partition, start, end, read_committed=True))


def _by_partition(positions: Mapping[str, list[int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, n): at for topic, offsets in positions.items() for n, at in enumerate(offsets)}


def _out_of_step(application_id: str, why: str) -> IncompatibleCheckpointError:
    return IncompatibleCheckpointError(
        f"penstock.changelog.topics=true, and the changelog topics of {application_id} do not have the state of its "
        f"checkpoint: {why}. To continue with the state of the checkpoint, write it to the topics first (penstock "
        "savepoint take, then penstock savepoint export --to-kafka). To continue with the state of the topics, which "
        "another host has written, make a new checkpoint from them (penstock savepoint import --from-kafka, into an "
        "empty penstock.checkpoint.dir)."
    )
