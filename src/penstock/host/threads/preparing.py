"""The preparation of an instance before it joins its group: its topics and its tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial

from penstock.client.api import Admin, OffsetAndMetadata
from penstock.client.confluent import ConfluentFetcher
from penstock.config import StreamsConfig
from penstock.errors import RetriableError, StreamsError
from penstock.host.deployment.internal_topics import internal_topics, make_internal_topics
from penstock.host.deployment.layout import Layout, layout_of
from penstock.host.deployment.listed_topics import listed_topics
from penstock.host.deployment.lost_topics import check_topics, recorded_topics
from penstock.host.deployment.topics import check_sink_topics, named_topics, source_topics
from penstock.host.supervision.restarts import TaskTimeout
from penstock.host.threads.clients import GroupAdmin
from penstock.host.threads.plan_check import refused_plan
from penstock.host.threads.uncalled import UncalledRecords
from penstock.plan.subtopology import BuiltTopology
from penstock.record import TopicPartition
from penstock_broker.common.clock import elapsed_milliseconds

_log = logging.getLogger(__name__)


def first_layout(
    built: BuiltTopology,
    config: StreamsConfig,
    admin: Admin,
    wait: Callable[[float], bool],
    now_ms: Callable[[], int] = elapsed_milliseconds,
) -> Layout:
    """Return `checked_layout`, repeated while brokers answer but cannot serve the requests.

    For example, the coordinator of the group loads after a failover. This may take `task.timeout.ms`.

    Args:
        built: the topology.
        config: its configuration.
        admin: the client.
        wait: pauses for some seconds; returns True, at once, if the application is closed.
        now_ms: the time (ms) on a monotonic clock.

    Raises:
        BrokerNotFoundError: no broker answers the first request.
        StreamsError: as `checked_layout`.
    """
    admin.topics()  # a wrong address is an error at once
    timeout = TaskTimeout(config["task.timeout.ms"])
    pause_ms: int = config["penstock.restart.backoff.ms"]
    while True:
        try:
            return checked_layout(built, config, admin)
        except RetriableError as error:
            if not timeout.allows(error, now_ms()) or wait(pause_ms / 1000):
                raise
            _log.warning("The brokers cannot prepare %s yet; they are asked again: %s", config["application.id"], error)


def checked_layout(built: BuiltTopology, config: StreamsConfig, admin: Admin) -> Layout:
    """Return the tasks of an application, and create its new internal topics.

    Raises StreamsError if a topic is missing, wrong, or not the same topic that the application has used before.
    """
    topics = listed_topics(admin, named_topics(built, config))
    layout = layout_of(built, config, topics)
    check_sink_topics(layout.topology, topics, config)
    committed = _committed(layout, admin)
    if (why := refused_plan(layout, topics, committed)) is not None:
        raise StreamsError(why)
    used = source_topics(layout.topology).union(topic.name for topic in internal_topics(layout))
    before = recorded_topics(used, committed).keys()
    if not topics.keys() >= before:  # the broker that answered may not have them in its metadata yet
        topics = listed_topics(admin, before)
    check_topics(layout, topics, admin.topic_ids(before & topics.keys()), committed)
    make_internal_topics(layout, admin, topics)
    UncalledRecords(layout, admin, partial(ConfluentFetcher, config)).warn(topics, committed)
    return replace(layout, topic_ids=admin.topic_ids(used))


def refused_change(built: BuiltTopology, config: StreamsConfig) -> str | None:
    """Return the reason not to assign the tasks for the current topics, or None.

    Returns None also if their preparation raises an error; the next rebalance reports it.
    """
    try:
        with closing(GroupAdmin(config)) as admin:
            topics = listed_topics(admin, named_topics(built, config))
            layout = layout_of(built, config, topics)
            # with the partitions of internal topics, checked by `make_internal_topics` too: this makes no topics
            return refused_plan(layout, topics, _committed(layout, admin))
    except Exception:  # a partition.grouper may raise anything
        return None


def _committed(layout: Layout, admin: Admin) -> Mapping[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets of the group for the partitions that tasks read."""
    partitions = sorted(layout.readers)
    return admin.committed_offsets(str(layout.config["application.id"]), partitions, stable=False)
