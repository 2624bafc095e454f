"""Start offsets of partitions without a valid position (Kafka: StreamThread.resetOffsets).

They depend on `auto.offset.reset` or the reset of the source.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from penstock.client.api import Admin, EpochPosition, OffsetAndMetadata
from penstock.config import StreamsConfig
from penstock.config.offset_reset import LATEST, NONE, duration_of
from penstock.errors import LogTruncationError, StreamsError
from penstock.plan.subtopology import BuiltTopology, SourceSpec
from penstock.record import TopicPartition

_log = logging.getLogger(__name__)


def offset_resets(topology: BuiltTopology, config: StreamsConfig) -> dict[str, str]:
    """Return the reset of each source topic of `topology`, whose patterns are resolved."""
    return {
        topic: node.offset_reset or config["auto.offset.reset"]
        for spec in topology.subtopologies
        for node in spec.nodes
        if isinstance(node, SourceSpec)
        for topic in node.topics
    }


def recreated_topics_error(names: Sequence[str]) -> StreamsError:
    """Return the error for recreated topics of an application that reads them by name."""
    return StreamsError(
        f"Source topics that were deleted and created again since the application read them: {', '.join(names)}. Its "
        "state belongs to the old topics: start with a new checkpoint, or with another application.id. If they are "
        "copies with the same offsets on other brokers, take a savepoint and restore it: penstock savepoint."
    )


def reset_offsets(
    admin: Admin, resets: Mapping[TopicPartition, str], ends: Mapping[TopicPartition, int], now_ms: int
) -> dict[TopicPartition, int]:
    """Return the start offsets of partitions.

    Args:
        admin: a client of the brokers.
        resets: the reset of each partition.
        ends: the end offsets of the partitions, for those that start there.
        now_ms: the time from which a duration counts back.

    Raises:
        StreamsError: a reset is `none`.
    """
    refused = sorted(tp for tp, reset in resets.items() if reset == NONE)
    if refused:
        raise StreamsError(
            f"There is no position for topic {refused[0].topic}, partition {refused[0].partition}, or its records were "
            "deleted before they were read, and the offset reset of its source is none. Give the source another reset, "
            "or start where the application was: on Spark with its checkpoint, on threads with its group's offsets."
        )
    first = admin.beginning_offsets([tp for tp, reset in resets.items() if reset != LATEST])
    offsets = {tp: first.get(tp, ends[tp]) for tp in resets}
    by_duration: dict[int, list[TopicPartition]] = {}
    for tp, reset in resets.items():
        duration = duration_of(reset)
        if duration is not None:
            by_duration.setdefault(duration, []).append(tp)
    for duration, partitions in by_duration.items():
        found = admin.offsets_for_time(partitions, now_ms - duration)
        offsets.update({tp: found.get(tp, ends[tp]) for tp in partitions})
    return offsets


def truncation(partition: TopicPartition, at: EpochPosition, left: EpochPosition) -> str:
    """Return the error text for a truncated log, with the lost and remaining ends."""
    end = "an unknown offset" if left.offset < 0 else f"offset {left.offset} (epoch {left.leader_epoch})"
    return (
        f"The log of topic {partition.topic}, partition {partition.partition}, was truncated: records up to offset "
        f"{at.offset} of leader epoch {at.leader_epoch} were processed, and what is left ends at {end}. The brokers "
        "have lost records that they had acknowledged, such as by the election of an unclean leader, and others may "
        "have taken their offsets."
    )


def after_truncation(
    admin: Admin, committed: Mapping[TopicPartition, OffsetAndMetadata], resets: Mapping[str, str]
) -> dict[TopicPartition, int | None]:
    """Return the offsets from which to continue after truncations below committed offsets.

    A log may have grown beyond the offset again. Reading continues, as in Kafka, with the first record that replaced a
    processed and lost one. None means that brokers do not know that record, so that the reset of the source decides.

    Args:
        admin: a client of the brokers.
        committed: offsets, with the leader epochs of the previous records.
        resets: the reset of each source topic.

    Raises:
        LogTruncationError: the reset of a source is `none`.
    """
    positions = {p: EpochPosition(each.offset, each.leader_epoch) for p, each in committed.items()}
    known = {p: each for p, each in positions.items() if each.leader_epoch >= 0}
    result: dict[TopicPartition, int | None] = {}
    for partition, left in sorted((admin.truncated(known) if known else {}).items()):
        text = truncation(partition, known[partition], left)
        if resets.get(partition.topic) == NONE:
            raise LogTruncationError(
                f"{text} The offset reset of the source is none. To go on at the first other record, give the source "
                "another reset for one start; to process what is left from the beginning, use penstock reset FILE."
            )
        result[partition] = None if left.offset < 0 else left.offset
        goes_on = "where the offset reset of the source says" if left.offset < 0 else f"at offset {left.offset}"
        _log.warning("%s What was made of the lost ones stays; reading continues %s.", text, goes_on)
    return result
