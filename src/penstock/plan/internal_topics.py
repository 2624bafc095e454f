"""Names and configurations of internal topics: repartition and changelog topics.

This module creates no topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from penstock.errors import TopologyError
from penstock.plan.subtopology import InternalTopic
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import (
    SessionBytesStoreSupplier,
    VersionedBytesStoreSupplier,
    WindowBytesStoreSupplier,
)
from penstock.topic_names import CHANGELOG_SUFFIX, changelog_name, why_illegal
from penstock.windows import LONG_MAX

REPARTITION_SUFFIX = "-repartition"
ANSWERS_SUFFIX = "-answers"
REQUESTS_SUFFIX = "-requests"
DATA_FRAME_SOURCE_SUFFIX = "-source"
DATA_FRAME_SINK_SUFFIX = "-sink"
LAKE_SUFFIX = "-lake"
INTERNAL_SUFFIXES = (REPARTITION_SUFFIX, CHANGELOG_SUFFIX)

_PATTERN_CHARACTERS = frozenset("*+?[](){}|^$\\")
"""Regular expression characters that are illegal in topic names (Kafka class: Topic)."""

RECORDS_STAY: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "-1",
}
"""Configuration of topics whose records are never deleted, even with very old timestamps."""

_REPARTITION_CONFIG: Mapping[str, str] = {
    **RECORDS_STAY,
    "segment.bytes": str(50 * 1024 * 1024),
}
DAY_MS = 24 * 60 * 60 * 1000
_CHANGELOG_CONFIG: Mapping[str, str] = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}


def check_topic_name(name: str) -> str:
    """Return `name`; raises TopologyError if it is not a legal topic name (Kafka: Topic.validate)."""
    why = why_illegal(name)
    if why is None:
        return name
    several = [part.strip() for part in name.split(",") if part.strip()]
    hint = f": several topics go in a list, {several!r}" if len(several) > 1 else ""
    raise TopologyError(f"{name!r} cannot be the name of a topic: it {why}{hint}.")


def check_no_pattern(topic: str, written: str) -> None:
    """Raise TopologyError if `topic` is not a legal topic name.

    For a regular expression, the error explains the use of a pattern. `written` is the notation of a pattern in that
    place, as a format string for the expression.
    """
    if not _PATTERN_CHARACTERS.isdisjoint(topic):
        raise TopologyError(
            f"{topic!r} cannot be the name of a topic; to read all topics that a pattern matches, write "
            f"{written.format(topic)}"
        )
    check_topic_name(topic)


def full_name(application_id: str, topic: str) -> str:
    """Return the name of an internal topic on the brokers, with the application's prefix."""
    return f"{application_id}-{topic}"


def repartition_topic(application_id: str, topic: str, partitions: int | None) -> InternalTopic:
    """Return the repartition topic `topic` (Kafka class: RepartitionTopicConfig).

    Args:
        application_id: the prefix of the topic.
        topic: its name without prefix.
        partitions: the number of partitions that the user fixed, or None.

    Raises ValueError if `partitions` is less than 1.
    """
    if partitions is not None and partitions < 1:
        raise ValueError("Number of partitions must be at least 1.")
    return InternalTopic(check_topic_name(full_name(application_id, topic)), dict(_REPARTITION_CONFIG), partitions)


def requests_topic_name(store: str) -> str:
    """Return the name without prefix of the topic with requests about a store of parked records."""
    return f"{store}{REQUESTS_SUFFIX}"


def task_topic(application_id: str, topic: str) -> InternalTopic:
    """Return the topic `topic` (name without prefix) of answers of calls, or of requests about parked records.

    Its number of partitions is that of the tasks that read it.
    """
    return InternalTopic(check_topic_name(full_name(application_id, topic)), dict(_REPARTITION_CONFIG))


def changelog_topic(
    application_id: str, store: StoreBuilder, source_topic: str | None = None
) -> tuple[str, Mapping[str, str]]:
    """Return the full name and the configuration of the changelog topic of `store`.

    The changelog is `source_topic` if the store is filled from that topic. The user's settings override Kafka's.
    """
    name = changelog_name(application_id, store.name) if source_topic is None else source_topic
    return check_topic_name(name), changelog_config(store)


def changelog_config(
    store: StoreBuilder, of_all: Mapping[str, str] = MappingProxyType({}), additional_retention_ms: int = DAY_MS
) -> Mapping[str, str]:
    """Return the configuration of the changelog topic of `store`.

    Kafka classes: UnwindowedChangelogTopicConfig, WindowedChangelogTopicConfig, VersionedChangelogTopicConfig.

    Args:
        store: the store; its own settings override all others.
        of_all: the user's settings for all internal topics (`topic.`); these do not override the retention of entries.
        additional_retention_ms: time (ms) that windows are kept in the topic in addition to the store's retention
            (`windowstore.changelog.additional.retention.ms`).
    """
    kept: Mapping[str, str] = {}
    config = dict(_CHANGELOG_CONFIG)
    match store.supplier:
        case WindowBytesStoreSupplier(retention_ms=retention_ms) | SessionBytesStoreSupplier(retention_ms=retention_ms):
            config["cleanup.policy"] = "compact,delete"
            kept = {"retention.ms": _sum(retention_ms, additional_retention_ms)}
        case VersionedBytesStoreSupplier(history_retention_ms=retention_ms):
            kept = {"min.compaction.lag.ms": _sum(retention_ms, DAY_MS)}
        case _:
            pass
    return {**config, **of_all, **kept, **store.changelog_config}


def _sum(retention_ms: int, additional_ms: int) -> str:
    return str(min(retention_ms + additional_ms, LONG_MAX))
