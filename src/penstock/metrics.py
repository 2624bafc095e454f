"""Metrics by the names of Kafka Streams, as values at one moment: name, group and tags of each.

Only what a host can tell truly is here; what has no meaning without stream threads, or is not counted, is left out.
Records of repartition topics that pass through no broker are not among those consumed and produced. Nothing here
counts, and nothing here sends metrics anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_STREAM, _TASK, _TOPIC = "stream-metrics", "stream-task-metrics", "stream-topic-metrics"

DESCRIPTIONS: Mapping[tuple[str, str], str] = {
    (_STREAM, "version"): "The version of Penstock",
    (_STREAM, "application-id"): "The application.id",
    (_STREAM, "topology-description"): "The description of the topology that runs",
    (_STREAM, "state"): "The state of the application",
    (_STREAM, "client-state"): "The state of the application as a number, in the order of the states",
    (_TASK, "process-total"): "The number of records that the task has processed",
    (_TASK, "dropped-records-total"): "The number of records that were dropped, by processors or stores",
    (_TOPIC, "records-consumed-total"): "The number of records that were taken from the topic",
    (_TOPIC, "bytes-consumed-total"): "The bytes of the keys and values that were taken from the topic",
    (_TOPIC, "records-produced-total"): "The number of records that were written to the topic",
    (_TOPIC, "bytes-produced-total"): "The bytes of the keys and values that were written to the topic",
}
"""What each metric says, by group and name. Totals begin with the start of the application, and grow with commits."""


@dataclass(frozen=True)
class MetricName:
    """The name of a metric, with the group and the tags that tell it from others (Kafka class: MetricName)."""

    name: str
    group: str
    description: str
    tag_items: tuple[tuple[str, str], ...]

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags by key."""
        return dict(self.tag_items)


@dataclass(frozen=True)
class Metric:
    """A metric with its value when it was asked for, a number or a text (Kafka class: Metric)."""

    metric_name: MetricName
    metric_value: int | str


def streams_metrics(
    client_id: str, facts: Mapping[str, int | str], statistics: Mapping[str, Any]
) -> dict[MetricName, Metric]:
    """Return the metrics of an application.

    Args:
        client_id: tag of all of them.
        facts: values of the group stream-metrics, by name.
        statistics: what the host counts: `consumed` and `produced`, (records, bytes) by topic; `processed` and
            `dropped`, records by task; what is not there is no metric.
    """
    found: dict[MetricName, Metric] = {}

    def add(group: str, name: str, value: int | str, **tags: str) -> None:
        items = (("client-id", client_id), *((key.replace("_", "-"), text) for key, text in tags.items()))
        metric_name = MetricName(name, group, DESCRIPTIONS[group, name], items)
        found[metric_name] = Metric(metric_name, value)

    for name, value in facts.items():
        add(_STREAM, name, value)
    for counted, name in (("processed", "process-total"), ("dropped", "dropped-records-total")):
        for task, records in statistics.get(counted, {}).items():
            add(_TASK, name, records, task_id=task)
    for way in ("consumed", "produced"):
        for topic, (records, size) in statistics.get(way, {}).items():
            add(_TOPIC, f"records-{way}-total", records, topic_name=topic)
            add(_TOPIC, f"bytes-{way}-total", size, topic_name=topic)
    return found
