"""The transactions of the sink, by name: the topic of their commits, and the writer of each sink partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from penstock.client.api import Admin, NewTopic
from penstock.client.confluent.transactions import TransactionalWriter
from penstock.config import StreamsConfig
from penstock.host.spark.crashpoints import crash_point
from penstock.host.spark.epoch_offset import EpochOffset
from penstock.record import TopicPartition


def commits_topic(application_id: str) -> str:
    """Return the internal topic whose offsets are the epochs that each sink partition has committed; also the group
    that commits them."""
    return f"{application_id}-penstock-commits"


def make_commits_topic(
    admin: Admin, topics: Mapping[str, int], name: str, partitions: int, config: StreamsConfig
) -> None:
    """Make a topic of commits with `partitions`, or add those that it lacks: an offset for a partition that does not
    exist would hang until its time-out. topics: those that there are, and their partitions."""
    if name not in topics:
        replication = config["replication.factor"]
        admin.create_topics([NewTopic(name, partitions, replication, {"cleanup.policy": "compact"})])
        admin.committed_offsets(name, [TopicPartition(name, 0)])  # a right that is missing is found before an epoch
    elif topics[name] < partitions:
        admin.create_partitions(name, partitions)


def marker_note(checkpoint_id: str, offset: EpochOffset) -> str:
    """Return what stands beside the life in the marker of the epoch that ends at `offset`."""
    return f"{checkpoint_id} {offset.digest()}"


def transactional_writer(
    config: StreamsConfig,
    application_id: str,
    sink_partition: int,
    was_committed: Callable[[int], bool] = lambda _: False,
    before_write: Callable[[], object] = lambda: None,
) -> TransactionalWriter:
    """Return a writer of the transactions of one sink partition; was_committed, before_write: see
    TransactionalWriter."""
    topic = commits_topic(application_id)
    return TransactionalWriter(
        config,
        transactional_id=f"{application_id}-sink-{sink_partition}",
        group=topic,
        marker=TopicPartition(topic, sink_partition),
        before_commit=partial(crash_point, "transaction.open"),
        was_committed=was_committed,
        before_write=before_write,
    )
