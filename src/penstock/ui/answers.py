"""What an application shows of itself, as plain data for JSON and for the pages. Times are in ms, since the epoch where
they end with `_at_ms`. Nothing here asks a broker, but what the observer saw is a few seconds old."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, Final

import orjson

import penstock
from penstock.application.running_topology import RunningTopology
from penstock.application.store_entries import Selection, StoreEntries, plain
from penstock.config import StreamsConfig
from penstock.errors import StreamsStoppedError, UnknownTopologyError, UnsupportedOperationError
from penstock.exception_handlers import DEAD_LETTER_QUEUE_TOPIC
from penstock.host.api import State
from penstock.metrics import Metric, MetricName
from penstock.metrics.host_metrics import DROPPED_RECORDS, NODE_ID, OUTPUT_AGE, STATE_SIZE, STREAM_TIME
from penstock.notebook import xml_text
from penstock.plan.describe import (
    GlobalStoreDescription,
    NodeDescription,
    ProcessorDescription,
    SinkDescription,
    SourceDescription,
    SubtopologyDescription,
    TopologyDescription,
)
from penstock.plan.internal_topics import full_name
from penstock.plan.subtopology import TaskId
from penstock.transfers.redrive import RedriveOptions, plan_redrive
from penstock.ui.observer import INTERVAL_MS, Look, Observer, behind_ms

Answer = dict[str, Any]
"""What JSON has as an object."""

_OLD_MS: Final = 10 * INTERVAL_MS
"""A look that is older says nothing about now: a broker does not answer, or the machine stood still."""
MEASURES: Final = {"lag": "lag", "records": "process-rate", "age": "record-e2e-latency-max"}
"""What nodes can be coloured by, and the figure: the lag of sources, records a second, the age of records (ms)."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of JSON of entries in one answer, but for the last one."""
_TASK_ID: Final = "task-id"
_PROCESS_LATENCY: Final = "process-latency-avg"
_PROCESS_RATE: Final = "process-rate"
_SIZES: Final = (STATE_SIZE, "total-sst-files-size")
_OF_TASKS: Final = (_PROCESS_LATENCY, _PROCESS_RATE, *_SIZES)
_DROPPED: Final = f"{DROPPED_RECORDS}-total"
_REASONS: Final = {
    "source": "not readable, or without a valid timestamp",
    "processor": "without a key, too late, or refused by a handler",
    "sink": "not writable, or without a partition",
    "store": "too late for what the store retains",
}
"""Why nodes and stores drop records, by their kinds."""


@dataclass(frozen=True)
class Answers:
    """Answers for one application. observer: looks at it. config: its configuration. find_changes: returns what a
    program would change of it, in lines; None if there is none to compare with."""

    observer: Observer
    config: StreamsConfig
    find_changes: Callable[[], Sequence[str]] | None = None

    # ---------------------------------------- what it does

    def overview(self) -> Answer:
        """Return how the application is: its state, how fast it is, how far behind, and when it committed last."""
        application, look, rates = self.observer.application, self.observer.newest, self.observer.rates()
        error = application.error()
        falls = -rates.lag if rates.lag is not None else 0
        return {
            "application_id": self.config.required("application.id"),
            "version": penstock.__version__,
            "host": self.config["penstock.host"],
            "state": application.state().value,
            "paused": application.is_paused(),
            "watched": look.statistics.get("watched", False),
            "error": None if error is None else str(error),
            "errors": application.uncaught_errors()[0],
            "uptime_ms": self.observer.uptime_ms,
            "seen_at_ms": look.time_ms,
            "records_in": look.statistics.get("records_in", 0),
            "records_out": look.statistics.get("records_out", 0),
            "records_in_per_second": rates.records_in,
            "records_out_per_second": rates.records_out,
            "records_processed_per_second": rates.processed,
            "records_dropped": sum(
                sum(look.statistics_of(name).get("dropped", {}).values()) for name in application.running_topologies()
            ),
            "dropped": self.dropped(),
            "lag": look.lag,
            "lag_per_second": rates.lag,
            "behind_ms": behind_ms(look.lag, rates.processed),
            "behind_since_ms": self.observer.behind_since_ms,
            "catch_up_ms": round(1000 * look.lag / falls) if look.lag and falls > 0 else None,
            "output_age_ms": self._output_age(),
            "stream_time": self._stream_time(),
            "topologies": [
                {
                    "name": name,
                    "state": topology.state().value,
                    "lag": None if name not in look.topologies else look.topologies[name].lag,
                    "commit": self._commit(look, name),
                    "problem": None if name not in look.topologies else look.topologies[name].problem,
                }
                for name, topology in application.running_topologies().items()
            ],
        }

    def _commit(self, look: Look, topology: str) -> Answer | None:
        """Return the last commit of a topology: its number, its time, and how long ago it was."""
        seen = look.topologies.get(topology)
        if seen is None or seen.committed is None or seen.committed.age_ms is None:
            return None
        age_ms = seen.committed.age_ms + self.observer.age_ms
        return {"number": seen.committed.epoch, "made_at_ms": seen.committed.committed_ms, "age_ms": age_ms}

    def _output_age(self) -> Answer | None:
        """Return the age (ms) that 50, 95 and 99 % of the output had at most when it was committed, over the samples of
        the metrics; of several topologies the largest; None if nothing was written."""
        found = {
            f"p{percent}": [
                float(metric.metric_value)
                for metrics in self.observer.metrics().values()
                for name, metric in metrics.items()
                if name.name == f"{OUTPUT_AGE}-p{percent}"
            ]
            for percent in (50, 95, 99)
        }
        return {name: max(values) for name, values in found.items()} if all(found.values()) else None

    def _stream_time(self) -> Answer | None:
        """Return the smallest and the largest stream time of the tasks, and the skew between them; None if no task has
        taken a record since the start."""
        times = self._stream_times().values()
        if not times:
            return None
        return {"min_at_ms": min(times), "max_at_ms": max(times), "skew_ms": max(times) - min(times)}

    def _stream_times(self) -> Mapping[tuple[str, str], int]:
        """Return the stream time (ms since the epoch) of tasks by topology and task; those that have left this program
        are left out."""
        here = {
            (name, str(task.task_id))
            for name, seen in self.observer.newest.topologies.items()
            for task in seen.tasks or ()
        }
        found = {
            (topology, name.tags[_TASK_ID]): int(metric.metric_value)
            for topology, metrics in self.observer.metrics().items()
            for name, metric in metrics.items()
            if name.name == STREAM_TIME
        }
        return {task: time for task, time in found.items() if not here or task in here}

    def dropped(self) -> list[Answer]:
        """Return which nodes and stores have dropped records since the start, how many, and why such ones do."""
        kinds = {
            (topology["name"], node["name"]): node["kind"]
            for topology in self.topologies()["topologies"]
            for part in (*topology["subtopologies"], *topology["global_stores"])
            for node in part["nodes"]
        }
        return [
            {
                "topology": topology,
                "name": place,
                "records": int(figures[_DROPPED]),
                "reason": _REASONS[kinds.get((topology, place), "store")],
            }
            for (topology, place), figures in sorted(self.nodes().items())
            if _DROPPED in figures
        ]

    def errors(self) -> Answer:
        """Return the errors that have stopped all tasks: their number since the start, and the last ones, the newest
        first."""
        count, last = self.observer.application.uncaught_errors()
        shown = [
            {
                "seen_at_ms": each.time_ms,
                "error": xml_text(each.error),
                "traceback": xml_text(each.traceback),
                "response": each.response.value,
            }
            for each in reversed(last)
        ]
        return {"count": count, "errors": shown}

    @property
    def dead_letter_topic(self) -> str | None:
        """The topic of the dead letters of the built-in handlers; None if they write none."""
        topic: str | None = self.config[DEAD_LETTER_QUEUE_TOPIC]
        return topic

    def dead_letters(self) -> Answer:
        """Return the dead letters that a redrive would write, by origin and class of errors; asks the brokers.

        Raises:
            UnsupportedOperationError: the handlers write no dead letters.
            StreamsError: see `plan_redrive`.
        """
        if self.dead_letter_topic is None:
            raise UnsupportedOperationError(f"There are no dead letters: {DEAD_LETTER_QUEUE_TOPIC} is not set.")
        planned = plan_redrive(self.config, self.dead_letter_topic, RedriveOptions(skip_invalid=True))
        letters = [
            {**asdict(each), "exception": xml_text(each.exception), "message": xml_text(each.message)}
            for each in planned.letters
        ]
        return {
            "topic": planned.dead_letter_topic,
            "records": planned.records,
            "without_source": planned.without_source,
            "invalid": planned.invalid,
            "letters": letters,
            "command": redrive_command(self.dead_letter_topic),
        }

    # ---------------------------------------- its topologies

    def topology_named(self, name: str | None) -> tuple[str, RunningTopology]:
        """Return a topology with its name; None for the first one. Raises UnknownTopologyError."""
        topologies = self.observer.application.running_topologies()
        if name is None and topologies:
            name = next(iter(topologies))
        if name is None or name not in topologies:
            raise UnknownTopologyError(
                f"This application has no topology {name!r}; it has: {', '.join(map(repr, topologies)) or 'none'}."
            )
        return name, topologies[name]

    def topologies(self) -> Answer:
        """Return the topologies, their sub-topologies and nodes."""
        return {
            "topologies": [
                {"name": name, **self._described(topology.describe(), self._of_subtopologies(name))}
                for name, topology in self.observer.application.running_topologies().items()
            ]
        }

    def _of_subtopologies(self, topology: str) -> Mapping[int, Answer]:
        """Return which share (0 to 1) of the time of all tasks each sub-topology takes, and the bytes of its state in
        local databases, over all tasks; None where that was not measured."""
        tasks: dict[str, dict[str, float]] = {}
        for name, metric in self.observer.metrics().get(topology, {}).items():
            if name.name in _OF_TASKS and _TASK_ID in name.tags and NODE_ID not in name.tags:
                for value in _numbers([metric]):
                    tasks.setdefault(name.tags[_TASK_ID], {})[name.name] = value
        spent: dict[int, float] = {}
        sizes: dict[int, int] = {}
        for task, figures in tasks.items():
            id = TaskId.parse(task).subtopology
            if _PROCESS_LATENCY in figures:
                spent[id] = spent.get(id, 0.0) + figures[_PROCESS_LATENCY] * figures.get(_PROCESS_RATE, 0.0)
            for size in (figures[name] for name in _SIZES if name in figures):
                sizes[id] = sizes.get(id, 0) + int(size)
        total = sum(spent.values())
        return {
            id: {"share_of_time": spent[id] / total if total and id in spent else None, "state_bytes": sizes.get(id)}
            for id in {*spent, *sizes}
        }

    def _described(self, description: TopologyDescription, measured: Mapping[int, Answer]) -> Answer:
        """Return a description of a topology as plain data."""
        parts: Mapping[str, Sequence[SubtopologyDescription | GlobalStoreDescription]] = {
            "subtopologies": description.subtopologies,
            "global_stores": description.global_stores,
        }
        return {
            kind: [
                {
                    "id": part.id,
                    **measured.get(part.id, {"share_of_time": None, "state_bytes": None}),
                    "nodes": [self._node(node, description) for node in part.nodes],
                }
                for part in found
            ]
            for kind, found in parts.items()
        }

    def _node(self, node: NodeDescription, description: TopologyDescription) -> Answer:
        serdes = description.serdes.get(node.name)
        shown = (
            None if serdes is None else {"key": self._serde("key", serdes[0]), "value": self._serde("value", serdes[1])}
        )
        return {**_described_node(node), "line": description.lines.get(node.name), "serdes": shown}

    def _serde(self, part: str, name: str | None) -> str:
        """Return the name of a serde, of None that of the configuration for keys or values."""
        default = self.config[f"default.{part}.serde"]
        return name or ("none" if default is None else f"{type(default).__name__} (default.{part}.serde)")

    def tasks(self) -> Answer:
        """Return the tasks of this program, with what they processed, and the partitions that they read."""
        look, times = self.observer.newest, self._stream_times()
        found: list[Answer] = []
        for name, seen in look.topologies.items():
            statistics = look.statistics_of(name)
            for task in seen.tasks or ():
                id = str(task.task_id)
                partitions = [
                    {
                        "topic": each.topic,
                        "partition": each.partition,
                        "committed_offset": task.committed_offsets[each],
                        "end_offset": task.end_offsets[each],
                        "lag": task.lag_of(each),
                    }
                    for each in sorted(task.topic_partitions)
                ]
                found.append(
                    {
                        "topology": name,
                        "task": id,
                        "processed": statistics.get("processed", {}).get(id, 0),
                        "dropped": statistics.get("dropped", {}).get(id, 0),
                        "stream_time_at_ms": times.get((name, id)),
                        "lag": task.lag,
                        "partitions": partitions,
                    }
                )
        return {
            "seen_at_ms": look.time_ms,
            "tasks": found,
            "standby_tasks": self._of_tasks(look, "standbys"),
            "restoring_tasks": self._of_tasks(look, "restoring"),
            "problems": [seen.problem for seen in look.topologies.values() if seen.problem],
        }

    def _of_tasks(self, look: Look, figure: str) -> list[Answer]:
        """Return the tasks that a figure of the host names."""
        return [
            {"topology": name, "task": task}
            for name in look.topologies
            for task in sorted(look.statistics_of(name).get(figure, {}))
        ]

    def commits(self) -> Answer:
        """Return the last commits of each topology, the newest last, with what they took by phase."""
        look = self.observer.newest
        found = [
            {"name": name, "commits": [each._asdict() for each in look.statistics_of(name).get("recent_commits", ())]}
            for name in self.observer.application.running_topologies()
        ]
        return {"seen_at_ms": look.time_ms, "topologies": found}

    def changes(self) -> Answer:
        """Return what a program would change; raises UnsupportedOperationError if there is none, and StreamsError where
        it cannot be compared."""
        if self.find_changes is None:
            raise UnsupportedOperationError("There is no other program to compare with: use penstock ui FILE.")
        return {"changes": list(self.find_changes())}

    def stores(self) -> Answer:
        """Return the stores of the topologies: their kinds, and the processors that use them."""
        found: list[Answer] = []
        for name, topology in self.observer.application.running_topologies().items():
            users = _users(topology.describe())
            for store, builder in sorted(topology.state_stores().items()):
                found.append(
                    {"topology": name, "store": store, "kind": builder.kind, "processors": users.get(store, [])}
                )
        return {"stores": found}

    def nodes(self) -> Mapping[tuple[str, str], Mapping[str, float]]:
        """Return what was measured of nodes over all tasks, by topology and node: totals and rates added up, the
        largest of the others."""
        found: dict[tuple[str, str], dict[str, float]] = {}
        for topology, metrics in self.observer.metrics().items():
            for name, metric in metrics.items():
                node = dict(name.tags).get(NODE_ID)
                for value in _numbers([metric]) if node is not None else ():
                    figures = found.setdefault((topology, str(node)), {})
                    before = figures.get(name.name, 0.0)
                    adds = name.name.endswith(("-total", "-rate"))
                    figures[name.name] = before + value if adds else max(before, value)
        return found

    def measured(self, topology: str, measure: str) -> Mapping[str, float]:
        """Return what was measured of the nodes of a topology, by their names: one of MEASURES."""
        if measure == "lag":
            return self._lags(topology)
        wanted = MEASURES[measure]
        nodes = self.nodes()
        return {node: each[wanted] for (name, node), each in nodes.items() if name == topology and wanted in each}

    def _lags(self, topology: str) -> Mapping[str, int]:
        """Return how far each source is behind in its topics; those without tasks here are left out."""
        seen = self.observer.newest.topologies.get(topology)
        lags: dict[str, int] = {}
        for task in (seen.tasks if seen is not None else None) or ():
            for partition in task.topic_partitions:
                lags[partition.topic] = lags.get(partition.topic, 0) + task.lag_of(partition)
        found: dict[str, int] = {}
        for part in self.topology_named(topology)[1].describe().subtopologies:
            for node in part.nodes:
                if isinstance(node, SourceDescription) and (topics := self._topics_of(node, topology, lags)):
                    found[node.name] = sum(lags[topic] for topic in topics)
        return found

    def _topics_of(self, source: SourceDescription, topology: str, known: Iterable[str]) -> list[str]:
        """Return those of the known topics that a source reads."""
        if source.topic_pattern is not None:
            return [topic for topic in known if re.fullmatch(source.topic_pattern, topic)]
        id = self.config.required("application.id") + (f"-{topology}" if topology else "")
        own = {name for topic in source.topics for name in (topic, full_name(id, topic))}
        return [topic for topic in known if topic in own]

    def metrics(self) -> Mapping[MetricName, Metric]:
        """Return the metrics of all topologies as they are now, by their names."""
        topologies = self.observer.application.running_topologies().values()
        return {name: metric for topology in topologies for name, metric in topology.metrics().items()}

    def entries(self, store: str, topology: str | None, chosen: Selection, limit: int) -> Answer:
        """Return entries of a store, and as of which commit they are.

        Args:
            store: its name. topology: the one that has it; None for the first.
            chosen: which entries.
            limit: the most entries; an answer also ends where it is MOST_BYTES long.

        Raises:
            StreamsStoppedError: the application neither runs nor rebalances.
            StreamsError: see `StoreEntries.of`.
        """
        name, running = self.topology_named(topology)
        state = running.state()
        if state not in (State.RUNNING, State.REBALANCING):
            raise StreamsStoppedError(f"The stores cannot be read: the state is {state.value}.")
        staleness = running.staleness()
        shown: list[Answer] = []
        size, more = 0, False
        with closing(StoreEntries(running, running.state_stores(), self.config).of(store, chosen)) as found:
            for entry in found:
                if len(shown) == limit or size > MOST_BYTES:
                    more = True
                    break
                readable = {field: _readable(value) for field, value in entry.items()}
                size += len(orjson.dumps(readable))
                shown.append(readable)
        commit = None
        if staleness.age_ms is not None:
            commit = {"number": staleness.epoch, "made_at_ms": staleness.committed_ms, "age_ms": staleness.age_ms}
        return {"topology": name, "store": store, "commit": commit, "entries": shown, "more": more}

    # ---------------------------------------- health

    def is_live(self) -> tuple[bool, Answer]:
        """Return whether the application has not ended with an error, and its state."""
        state = self.observer.application.state()
        return state not in (State.PENDING_ERROR, State.ERROR), {"state": state.value}

    def is_ready(self, max_lag: int | None, max_commit_age_ms: int | None) -> tuple[bool, Answer]:
        """Return whether the application runs and keeps up, and why not.

        max_lag: the most offsets that all tasks may be behind; None for any. max_commit_age_ms: how old the last commit
        of a topology may be while it is behind; None for any.
        """
        state, look = self.observer.application.state(), self.observer.newest
        reasons = [] if state is State.RUNNING else [f"The state is {state.value}."]
        if max_lag is not None or max_commit_age_ms is not None:
            reasons += self._unknown(look)
        if max_lag is not None and look.lag is not None and look.lag > max_lag:
            reasons.append(f"The lag is {look.lag}, more than {max_lag}.")
        if max_commit_age_ms is not None:
            for name, seen in look.topologies.items():
                age_ms = (self._commit(look, name) or {"age_ms": self.observer.uptime_ms})["age_ms"]
                if seen.lag and age_ms > max_commit_age_ms:
                    of = f" of {name}" if name else ""
                    reasons.append(f"The last commit{of} is {age_ms} ms old, more than {max_commit_age_ms} ms.")
        return not reasons, {"state": state.value, "lag": look.lag, "reasons": reasons}

    def _unknown(self, look: Look) -> Iterable[str]:
        """Yield why it is not known how far the application is."""
        if not look.topologies:
            yield "The lag is not known yet."
        elif self.observer.age_ms > _OLD_MS:
            yield f"The lag is not known: the last look was {self.observer.age_ms} ms ago; brokers do not answer."
        for seen in look.topologies.values():
            if seen.problem is not None:
                yield f"The lag is not known: {seen.problem}"


def redrive_command(topic: str) -> str:
    """Return the command that redrives the dead letters of a topic."""
    return f"penstock redrive {shlex.quote(topic)}"


def _readable(value: Any) -> Any:
    """Return a key or a value as JSON has it; as text if JSON has no form for it."""
    try:
        return orjson.loads(orjson.dumps(value, default=plain, option=orjson.OPT_NON_STR_KEYS))
    except TypeError:
        return xml_text(repr(value))


def _described_node(node: NodeDescription) -> Answer:
    match node:
        case SourceDescription():
            own: Answer = {"kind": "source", "topics": list(node.topics), "topic_pattern": node.topic_pattern}
            return {"name": node.name, **own, "successors": list(node.successors)}
        case ProcessorDescription():
            ends = {"predecessors": list(node.predecessors), "successors": list(node.successors)}
            return {"name": node.name, "kind": "processor", "stores": list(node.stores), **ends}
        case SinkDescription():
            return {"name": node.name, "kind": "sink", "topic": node.target, "predecessors": list(node.predecessors)}


def _users(description: TopologyDescription) -> Mapping[str, list[str]]:
    """Return the processors that use each store."""
    users: dict[str, list[str]] = {}
    parts: tuple[SubtopologyDescription | GlobalStoreDescription, ...] = (
        *description.subtopologies,
        *description.global_stores,
    )
    for part in parts:
        for node in part.nodes:
            for store in node.stores if isinstance(node, ProcessorDescription) else ():
                users.setdefault(store, []).append(node.name)
    return users


def _numbers(metrics: Iterable[Metric]) -> list[float]:
    """Return the values of metrics that have one: a metric without records has none."""
    found = (metric.metric_value for metric in metrics)
    return [float(value) for value in found if not isinstance(value, str) and value == value]
