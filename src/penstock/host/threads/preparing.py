"""What an instance checks and makes before it joins its group: the topics, and the tasks that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

from penstock.client.api import Admin, OffsetAndMetadata
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.deployment.internal_topics import internal_topics, make_internal_topics
from penstock.host.deployment.layout import Layout, layout_of
from penstock.host.deployment.listed_topics import listed_topics
from penstock.host.deployment.lost_topics import check_topics, recorded_topics
from penstock.host.deployment.topics import check_sink_topics, named_topics, source_topics
from penstock.host.threads.clients import GroupAdmin
from penstock.host.threads.plan_check import refused_plan
from penstock.plan.subtopology import BuiltTopology
from penstock.record import TopicPartition


def checked_layout(built: BuiltTopology, config: StreamsConfig, admin: Admin) -> Layout:
    """Return the tasks of an application, for which all topics exist now: internal ones that it has not had before are
    made. Raises StreamsError if a topic is missing, wrong, or another one than the application has used."""
    topics = listed_topics(admin, named_topics(built, config))
    layout = layout_of(built, config, topics)
    check_sink_topics(layout.topology, topics, config)
    committed = _committed(layout, admin)
    if (why := refused_plan(layout, topics, committed)) is not None:
        raise StreamsError(why)
    used = source_topics(layout.topology).union(topic.name for topic in internal_topics(layout))
    before = recorded_topics(used, committed).keys()
    if not topics.keys() >= before:  # the broker that answered may not know them yet
        topics = listed_topics(admin, before)
    check_topics(layout, topics, admin.topic_ids(before & topics.keys()), committed)
    make_internal_topics(layout, admin, topics)
    return replace(layout, topic_ids=admin.topic_ids(used))


def refused_change(built: BuiltTopology, config: StreamsConfig) -> str | None:
    """Return why the tasks for the topics that there are now must not be assigned, None if they may, or if their
    preparation raises an error, which a rebalance then tells."""
    try:
        with closing(GroupAdmin(config)) as admin:
            topics = listed_topics(admin, named_topics(built, config))
            layout = layout_of(built, config, topics)
            # with the partitions of internal topics, which `make_internal_topics` checks too: this look makes none
            return refused_plan(layout, topics, _committed(layout, admin))
    except Exception:  # whatever a partition.grouper raises
        return None


def _committed(layout: Layout, admin: Admin) -> Mapping[TopicPartition, OffsetAndMetadata]:
    """Return what the group has committed for the partitions that tasks read."""
    partitions = sorted(layout.readers)
    return admin.committed_offsets(str(layout.config["application.id"]), partitions, stable=False)
