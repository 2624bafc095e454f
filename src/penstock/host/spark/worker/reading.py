"""Reads the topic ranges planned for an epoch, despite changes of the topics. Runs in workers.

A planned range must stay readable forever, or no later epoch can run. So records that retention has deleted are
skipped, by the offset reset of the source, and a deleted topic that a pattern had matched has no more records. Any
other missing record is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator

from penstock.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from penstock.host.deployment.offset_resets import recreated_topics_error, reset_offsets
from penstock.host.spark.checkpoints.stored_history import open_history
from penstock.host.spark.clients import open_admin, open_fetcher
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.record import RecordBatch, TopicPartition
from penstock_broker.common.log_limits import limit_rate

_log = limit_rate(logging.getLogger(__name__))

_MOST_RESETS = 8
"""How often retention may overtake the reading of one range."""


def read_range(
    description: ApplicationDescription, partition: TopicPartition, start: int, end: int, planned_ms: int
) -> Iterator[RecordBatch]:
    """Yield the remaining committed records of `partition` from `start` to before `end`.

    Rows of a history come first.

    Args:
        description: of the application.
        partition: the partition to read.
        start: first offset.
        end: offset after the last.
        planned_ms: the clock of the epoch.

    Raises:
        KafkaError: they cannot be read now.
        StreamsError: records have been deleted and the offset reset is `none`.
        TaskCorruptedError: rows of a history are missing.
    """
    reached, bounds = start, description.histories.get(partition.topic)
    if bounds is not None and start < (live := bounds.live(partition.partition, start)):
        history = open_history(description.checkpoint, partition.topic, bounds)
        yield from history.read(partition.partition, start, min(live, end))
        reached = live
    if reached >= end:
        return
    for attempt in range(_MOST_RESETS):
        try:
            for batch in open_fetcher(description).fetch(partition, reached, end, read_committed=True):
                yield batch
                reached = int(batch.offsets[-1]) + 1
            return
        except OffsetOutOfRangeError:
            if attempt == _MOST_RESETS - 1:
                raise
            reset = {partition: description.offset_resets[partition.topic]}
            found = reset_offsets(open_admin(description), reset, {partition: end}, planned_ms)[partition]
            if found <= reached:
                raise
            _log.warning("Records %d to %d of %s were deleted before they were read.", reached, found - 1, partition)
            reached = min(found, end)
        except UnknownTopicOrPartitionError:
            if partition.topic not in description.pattern_topics or partition.topic in open_admin(description).topics():
                raise
            _log.warning("Topic %s was deleted before its records were read.", partition.topic)
            return


def check_topics(description: ApplicationDescription, topics: Collection[str]) -> None:
    """Raise StreamsError if one of `topics` was deleted and created again since the application's start.

    Records read from it may be of the new topic. Called after all records are read and before any are written. Raises
    KafkaError if brokers do not answer.
    """
    known = {topic: description.topic_ids[topic] for topic in topics if topic in description.topic_ids}
    ids = open_admin(description).topic_ids(known) if known else {}
    recreated = sorted(topic for topic, topic_id in ids.items() if topic_id != known[topic])
    if recreated:
        raise recreated_topics_error(recreated)
