"""The topologies of an application as plain data: sub-topologies and nodes with their measurements.

Hosts measure some figures of nodes, and others of tasks alone, which are those of sub-topologies: nothing is measured
for these pages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.application.running_topology import RunningTopology
from penstock.config import StreamsConfig
from penstock.errors import UnknownTopologyError
from penstock.metrics import Metric
from penstock.metrics.host_metrics import DROPPED_BY_REASON, DROPPED_RECORDS, NODE_ID, REASON, STATE_SIZE
from penstock.notebook import value_text
from penstock.plan.describe import (
    GlobalStoreDescription,
    NodeDescription,
    ProcessorDescription,
    SourceDescription,
    SubtopologyDescription,
    TopologyDescription,
    node_fields,
)
from penstock.plan.internal_topics import full_name
from penstock.plan.subtopology import TaskId
from penstock.task.taps import TappedRecord
from penstock.tools.ui.observer import Observer
from penstock.tools.ui.schema import DroppedAnswer, TappedRecordAnswer

Answer = dict[str, Any]
"""An object of JSON."""

TASK_ID: Final = "task-id"
_DROPPED: Final = f"{DROPPED_RECORDS}-total"
_DROPPED_BY_REASON: Final = f"{DROPPED_BY_REASON}-total"
_PROCESS_LATENCY: Final = "process-latency-avg"
_PROCESS_RATE: Final = "process-rate"
_SIZES: Final = (STATE_SIZE, "total-sst-files-size")
_OF_NODES: Final = {
    "records": "process-total",
    "records_per_second": _PROCESS_RATE,
    "errors": _DROPPED,
    "age_ms": "record-e2e-latency-max",
}
"""The fields of nodes, and their metrics."""
_OF_TASKS: Final = ("share_of_time", "state_bytes", "lag", "records_per_second", "errors")
"""The fields of sub-topologies."""


@dataclass(frozen=True)
class Topologies:
    """Answers for the topologies of one application.

    Args:
        observer: observes the application.
        config: its configuration.
    """

    observer: Observer
    config: StreamsConfig

    def named(self, name: str | None) -> tuple[str, RunningTopology]:
        """Return a topology with its name; None for the first one. Raises UnknownTopologyError."""
        topologies = self.observer.application.running_topologies()
        if name is None and topologies:
            name = next(iter(topologies))
        if name is None or name not in topologies:
            raise UnknownTopologyError(
                f"This application has no topology {name!r}; it has: {', '.join(map(repr, topologies)) or 'none'}."
            )
        return name, topologies[name]

    def all(self) -> list[Answer]:
        """Return the topologies, their sub-topologies and nodes."""
        nodes = self.nodes()
        return [
            {"name": name, **self._described(name, topology.describe(), nodes)}
            for name, topology in self.observer.application.running_topologies().items()
        ]

    def one(self, name: str) -> Answer:
        """Return one topology, its sub-topologies and nodes; raises UnknownTopologyError."""
        return {"name": name, **self._described(name, self.named(name)[1].describe(), self.nodes())}

    def dropped(self) -> list[DroppedAnswer]:
        """Return the nodes and stores that dropped records since the start.

        Each has the number and the reason (`DropReason`).
        """
        found: Counter[tuple[str, str, str]] = Counter()
        for topology, metrics in self.observer.metrics().items():
            for name, metric in metrics.items():
                if name.name == _DROPPED_BY_REASON:
                    found[topology, name.tags[NODE_ID], name.tags[REASON]] += int(metric.metric_value)
        return [
            {"topology": topology, "name": place, "reason": reason, "records": records}
            for (topology, place, reason), records in sorted(found.items())
        ]

    def store_bytes(self, topology: str) -> Mapping[str, int]:
        """Return the bytes of the local databases of each store's tasks.

        Stores of one sub-topology share these databases. Stores without measurements are omitted.
        """
        measured = self._of_subtopologies(topology)
        return {
            store: int(measured[part.id]["state_bytes"])
            for part in self.named(topology)[1].describe().subtopologies
            if measured.get(part.id, {}).get("state_bytes") is not None
            for node in part.nodes
            if isinstance(node, ProcessorDescription)
            for store in node.stores
        }

    def nodes(self) -> Mapping[tuple[str, str], Mapping[str, float]]:
        """Return the measurements of nodes over all tasks, by topology and node.

        Totals and rates are added up; of other figures the largest is taken.
        """
        found: dict[tuple[str, str], dict[str, float]] = {}
        for topology, metrics in self.observer.metrics().items():
            for name, metric in metrics.items():
                node = name.tags.get(NODE_ID)
                if node is not None and REASON not in name.tags and (value := _number(metric)) is not None:
                    figures = found.setdefault((topology, node), {})
                    before = figures.get(name.name, 0.0)
                    adds = name.name.endswith(("-total", "-rate"))
                    figures[name.name] = before + value if adds else max(before, value)
        return found

    # ---------------------------------------- one topology

    def _described(
        self, name: str, description: TopologyDescription, nodes: Mapping[tuple[str, str], Mapping[str, float]]
    ) -> Answer:
        """Return a description of a topology as plain data, with the measurements in `nodes`."""
        measured, lags = self._of_subtopologies(name), self._lags(name, description)
        parts: Mapping[str, Sequence[SubtopologyDescription | GlobalStoreDescription]] = {
            "subtopologies": description.subtopologies,
            "global_stores": description.global_stores,
        }
        return {
            kind: [
                {
                    "id": part.id,
                    **dict.fromkeys(_OF_TASKS),
                    **measured.get(part.id, {}),
                    "nodes": [
                        {
                            **self._node(node, description),
                            **{field: nodes.get((name, node.name), {}).get(of) for field, of in _OF_NODES.items()},
                            "lag": lags.get(node.name),
                            "tapped": self.tapped(name, node.name),
                        }
                        for node in part.nodes
                    ],
                }
                for part in found
            ]
            for kind, found in parts.items()
        }

    def _of_subtopologies(self, topology: str) -> Mapping[int, Answer]:
        """Return the figures of sub-topologies over all of their tasks.

        They are by field name, as far as measured. The figures are the share (0 to 1) of the time of all tasks, the
        bytes of state in local databases, the lag, records per second, and dropped records.
        """
        tasks: dict[str, dict[str, float]] = {}
        for name, metric in self.observer.metrics().get(topology, {}).items():
            tags = name.tags
            if TASK_ID in tags and NODE_ID not in tags and (value := _number(metric)) is not None:
                tasks.setdefault(tags[TASK_ID], {})[name.name] = value
        found: dict[int, Answer] = {}

        def add(task: str, field: str, value: float | None) -> None:
            if value is not None:
                figures = found.setdefault(TaskId.parse(task).subtopology, {})
                figures[field] = figures.get(field, 0) + value

        for task, figures in tasks.items():
            if _PROCESS_LATENCY in figures:
                add(task, "share_of_time", figures[_PROCESS_LATENCY] * figures.get(_PROCESS_RATE, 0.0))
            for size in _SIZES:
                add(task, "state_bytes", int(figures[size]) if size in figures else None)
            add(task, "records_per_second", figures.get(_PROCESS_RATE))
            add(task, "errors", figures.get(_DROPPED))
        seen = self.observer.newest.topologies.get(topology)
        for each in (seen.tasks if seen is not None else None) or ():
            add(str(each.task_id), "lag", each.lag)
        total = sum(part.get("share_of_time", 0.0) for part in found.values())
        for part in found.values():
            if "share_of_time" in part:
                part["share_of_time"] = part["share_of_time"] / total if total else None
        return found

    def _node(self, node: NodeDescription, description: TopologyDescription) -> Answer:
        serdes = description.serdes.get(node.name)
        shown = (
            None if serdes is None else {"key": self._serde("key", serdes[0]), "value": self._serde("value", serdes[1])}
        )
        return {**node_fields(node), "line": description.lines.get(node.name), "serdes": shown}

    def tapped(self, topology: str, node: str) -> list[TappedRecordAnswer] | None:
        """Return the last records that have reached a node, newest first.

        None if no tap of it is open. Keys and values are short texts.
        """
        records = self.named(topology)[1].tapped(node)
        return None if records is None else [_tapped(record) for record in reversed(records)]

    def _serde(self, part: str, name: str | None) -> str:
        """Return the name of a serde; for None, the configured default for keys or values."""
        default = self.config[f"default.{part}.serde"]
        return name or ("none" if default is None else f"{type(default).__name__} (default.{part}.serde)")

    def _lags(self, topology: str, description: TopologyDescription) -> Mapping[str, int]:
        """Return the lag of each source in its topics; sources without tasks here are omitted."""
        seen = self.observer.newest.topologies.get(topology)
        lags: dict[str, int] = {}
        for task in (seen.tasks if seen is not None else None) or ():
            for partition in task.topic_partitions:
                lags[partition.topic] = lags.get(partition.topic, 0) + task.lag_of(partition)
        return {
            node.name: sum(lags[topic] for topic in topics)
            for part in description.subtopologies
            for node in part.nodes
            if isinstance(node, SourceDescription) and (topics := self._topics_of(node, topology, lags))
        }

    def _topics_of(self, source: SourceDescription, topology: str, known: Iterable[str]) -> list[str]:
        """Return the known topics that a source reads."""
        if source.topic_pattern is not None:
            return [topic for topic in known if re.fullmatch(source.topic_pattern, topic)]
        id = self.config.required("application.id") + (f"-{topology}" if topology else "")
        own = {name for topic in source.topics for name in (topic, full_name(id, topic))}
        return [topic for topic in known if topic in own]


def store_users(description: TopologyDescription) -> Mapping[str, list[str]]:
    """Return the processors that use each store."""
    users: dict[str, list[str]] = {}
    for part in _parts(description):
        for node in part.nodes:
            for store in node.stores if isinstance(node, ProcessorDescription) else ():
                users.setdefault(store, []).append(node.name)
    return users


def _parts(description: TopologyDescription) -> tuple[SubtopologyDescription | GlobalStoreDescription, ...]:
    return (*description.subtopologies, *description.global_stores)


def _tapped(record: TappedRecord) -> TappedRecordAnswer:
    return {
        "key": value_text(record.key),
        "value": value_text(record.value),
        "timestamp": record.timestamp,
        "task": record.task,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
    }


def _number(metric: Metric) -> float | None:
    """Return the value of a metric, None without records."""
    value = metric.metric_value
    return None if isinstance(value, str) or value != value else float(value)
