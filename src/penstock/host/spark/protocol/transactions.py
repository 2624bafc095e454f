"""The transactions of the sink.

Whether they are used, the topic of their commits, and the writer of each sink partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from penstock.client.api import Admin, NewTopic
from penstock.client.confluent.transactions import TransactionalWriter, transactions_refused
from penstock.config import StreamsConfig
from penstock.config.kafka_keys import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from penstock.errors import ConfigError, TopicExistsError, TransactionalIdAuthorizationError
from penstock.host.crashpoints import crash_point
from penstock.host.spark.protocol.epoch_offset import EpochOffset
from penstock.record import TopicPartition


def commits_topic(application_id: str) -> str:
    """Return the internal topic whose offsets are the epochs that each sink partition has committed.

    It is also the name of the group that commits them.
    """
    return f"{application_id}-penstock-commits"


def make_commits_topic(
    admin: Admin, topics: Mapping[str, int], name: str, partitions: int, config: StreamsConfig
) -> None:
    """Create a topic of commits with `partitions`, or add missing partitions.

    An offset for a partition that does not exist would hang until its timeout.

    Args:
        admin: a client of the brokers.
        topics: the existing topics and their partitions.
        name: of the topic of commits.
        partitions: its number of partitions.
        config: of the application.
    """
    if name not in topics:
        replication = config["replication.factor"]
        with suppress(TopicExistsError):  # by another program; the generation of the checkpoint decides
            admin.create_topics([NewTopic(name, partitions, replication, {"cleanup.policy": "compact"})])
        admin.committed_offsets(name, [TopicPartition(name, 0)])  # a missing right is detected before an epoch
    elif topics[name] < partitions:
        admin.create_partitions(name, partitions)


def marker_note(checkpoint_id: str, offset: EpochOffset) -> str:
    """Return the marker's text after the topology version, for the epoch that ends at `offset`."""
    return f"{checkpoint_id} {offset.digest()}"


def transactional_writer(
    config: StreamsConfig,
    application_id: str,
    sink_partition: int,
    was_committed: Callable[[int], bool] = lambda _: False,
    before_write: Callable[[], object] = lambda: None,
) -> TransactionalWriter:
    """Return a writer of the transactions of one sink partition.

    For was_committed and before_write see TransactionalWriter.
    """
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


def guarantee_of(config: StreamsConfig, application_id: str, is_transactional: bool = False) -> tuple[bool, str]:
    """Return whether topics are written in transactions, and the guarantee in words.

    Args:
        config: of the application.
        application_id: of the application.
        is_transactional: whether the continuing topology version writes transactions: its guarantee is lowered only on
            request.

    Raises:
        ConfigError: exactly_once_v2 is set, or was in use so far, and the brokers do not support transactions.
        TransactionalIdAuthorizationError: the brokers do not allow this user to write transactions.
    """
    wanted = config["processing.guarantee"]
    if wanted == AT_LEAST_ONCE:
        return False, AT_LEAST_ONCE
    way_out = f"or set processing.guarantee={AT_LEAST_ONCE}."
    try:
        refused = transactions_refused(config, f"{application_id}-penstock-probe")
    except TransactionalIdAuthorizationError as error:
        raise TransactionalIdAuthorizationError(
            f"{error} {application_id} processes exactly once, by transactions: allow WRITE and DESCRIBE on the "
            f"transactional ids with the prefix {application_id}-, {way_out}"
        ) from error
    if refused is None:
        return True, EXACTLY_ONCE_V2
    if wanted == EXACTLY_ONCE_V2 or is_transactional:
        why = f"processing.guarantee={EXACTLY_ONCE_V2}" if wanted == EXACTLY_ONCE_V2 else "what it has written so far"
        raise ConfigError(
            f"{application_id} must process exactly once ({why}), which needs transactions, and the brokers at "
            f"{config['bootstrap.servers']} have none: {refused.rstrip('.')}. Use other brokers, {way_out}"
        )
    return False, f"{AT_LEAST_ONCE} (the broker has no transactions)"
