"""Names and configurations of the topics that an application makes for itself: repartition and changelog topics.
Creates nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.plan.subtopology import InternalTopic
from penstock.state.api import StoreBuilder

REPARTITION_SUFFIX = "-repartition"
CHANGELOG_SUFFIX = "-changelog"

_REPARTITION_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "-1",
    "segment.bytes": str(50 * 1024 * 1024),
}
_CHANGELOG_CONFIG: Mapping[str, str] = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}


def full_name(application_id: str, topic: str) -> str:
    """Return the name of an internal topic as brokers know it: with the prefix of the application."""
    return f"{application_id}-{topic}"


def repartition_topic(application_id: str, topic: str, partitions: int | None) -> InternalTopic:
    """Return the repartition topic `topic` (name without prefix); `partitions` is the number that the user fixed
    (Kafka class: RepartitionTopicConfig).
    """
    if partitions is not None and partitions < 1:
        raise ValueError("Number of partitions must be at least 1.")
    return InternalTopic(full_name(application_id, topic), dict(_REPARTITION_CONFIG), partitions)


def changelog_topic(
    application_id: str, store: StoreBuilder, source_topic: str | None = None
) -> tuple[str, Mapping[str, str]]:
    """Return full name and configuration of the changelog topic of `store`, which is `source_topic` for a store kept
    from one; what the user set goes before what Kafka sets.
    """
    name = full_name(application_id, store.name + CHANGELOG_SUFFIX) if source_topic is None else source_topic
    return name, {**_CHANGELOG_CONFIG, **store.changelog_config}
