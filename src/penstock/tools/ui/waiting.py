"""The records that wait in operators as plain data: for the answers of calls, and for another attempt.

The figures of operators are metrics. The keys of parked records are read from their stores, on request only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.application.parked_records import ParkedKey, ParkedRecords
from penstock.application.running_topology import RunningTopology
from penstock.config import StreamsConfig
from penstock.errors import StreamsStoppedError, UnknownStateStoreError
from penstock.host.api import State
from penstock.metrics.host_metrics import (
    CALL,
    CALL_LATENCIES,
    CALL_RETRIES,
    CALLS_ANSWERED,
    CALLS_FAILED,
    CALLS_IN_FLIGHT,
    CALLS_WAITING,
    NODE_ID,
    PARKED_RECORDS,
)
from penstock.notebook import value_text, xml_text
from penstock.tools.ui.formatting import LONGEST
from penstock.tools.ui.observer import Observer
from penstock.tools.ui.topologies import Topologies
from penstock.tools.ui.waiting_schema import (
    CallsAnswer,
    ParkedAnswer,
    ParkedKeyAnswer,
    ParkedKeysAnswer,
    WaitingAnswer,
)

SHOWN_KEYS: Final = 100
"""Maximum number of parked keys in an answer."""

_MEANS: Final = frozenset((f"{CALL}-latency-avg",))
_LARGEST: Final = frozenset((f"{CALL}-latency-max", *CALL_LATENCIES))


@dataclass(frozen=True)
class Waiting:
    """Answers about the records that wait.

    Args:
        observer: observes the application.
        config: its configuration.
        topologies: its topologies.
    """

    observer: Observer
    config: StreamsConfig
    topologies: Topologies

    def operators(self) -> WaitingAnswer:
        """Return the operators with calls, and those that park records, with their figures."""
        calls: list[CallsAnswer] = []
        parked: list[ParkedAnswer] = []
        for topology, running in self.observer.application.running_topologies().items():
            description, measured = running.describe(), self._measured(topology)
            for node, capacity in sorted(description.capacities.items()):
                calls.append(_calls(topology, node, capacity, measured.get(node, {})))
            for node, store in sorted(description.parked.items()):
                records = measured.get(node, {}).get(PARKED_RECORDS)
                parked.append({"topology": topology, "node": node, "store": store, "records": _whole(records)})
        return {"seen_at_ms": self.observer.newest.time_ms, "calls": calls, "parked": parked}

    def parked_keys(self, store: str, topology: str | None) -> ParkedKeysAnswer:
        """Return the keys whose records are parked in a store, as of the newest commit.

        Args:
            store: the name of the store.
            topology: the topology of the store; None for the first.

        Raises:
            StreamsStoppedError: the application neither runs nor rebalances.
            UnknownStateStoreError: there is no such store of parked records.
            StreamsError: the store is not readable now.
        """
        name, running = self.topologies.named(topology)
        known = running.describe().parked.values()
        if store not in known:
            raise UnknownStateStoreError(
                f"There is no store {store!r:.200} of parked records; there are: {', '.join(known) or 'none'}."
            )
        _check_runs(running)
        records = ParkedRecords(running, {store: running.state_stores()[store]}, self.config)
        found = list(records.keys(store))
        return {
            "topology": name,
            "store": store,
            "keys": len(found),
            "records": sum(each.records for each in found),
            "bytes": sum(each.bytes for each in found),
            "oldest_at_ms": min((each.timestamp for each in found), default=None),
            "next_attempt_at_ms": min((each.due_ms for each in found), default=None),
            "first": [_key(each) for each in found[:SHOWN_KEYS]],
        }

    def _measured(self, topology: str) -> Mapping[str, Mapping[str, float]]:
        """Return the metrics of each node over all tasks and processes."""
        found: dict[str, dict[str, list[float]]] = {}
        for name, metric in self.observer.metrics().get(topology, {}).items():
            node, value = name.tags.get(NODE_ID), metric.metric_value
            if node is not None and not isinstance(value, str) and value == value:
                found.setdefault(node, {}).setdefault(name.name, []).append(float(value))
        return {node: {name: _combined(name, values) for name, values in each.items()} for node, each in found.items()}


def _check_runs(running: RunningTopology) -> None:
    state = running.state()
    if state not in (State.RUNNING, State.REBALANCING):
        raise StreamsStoppedError(f"The stores cannot be read: the state is {state.value}.")


def _combined(name: str, values: list[float]) -> float:
    if name in _LARGEST:
        return max(values)
    return sum(values) / len(values) if name in _MEANS else sum(values)


def _calls(topology: str, node: str, capacity: int, measured: Mapping[str, float]) -> CallsAnswer:
    median, most = CALL_LATENCIES
    return {
        "topology": topology,
        "node": node,
        "capacity": capacity,
        "in_flight": _whole(measured.get(CALLS_IN_FLIGHT)),
        "waiting": _whole(measured.get(CALLS_WAITING)),
        "answered": _whole(measured.get(f"{CALLS_ANSWERED}-total")),
        "answered_per_second": measured.get(f"{CALLS_ANSWERED}-rate"),
        "failed": _whole(measured.get(f"{CALLS_FAILED}-total")),
        "failed_per_second": measured.get(f"{CALLS_FAILED}-rate"),
        "retries": _whole(measured.get(f"{CALL_RETRIES}-total")),
        "latency_avg_ms": measured.get(f"{CALL}-latency-avg"),
        "latency_p50_ms": measured.get(median),
        "latency_p99_ms": measured.get(most),
        "latency_max_ms": measured.get(f"{CALL}-latency-max"),
    }


def _key(parked: ParkedKey) -> ParkedKeyAnswer:
    return {
        "partition": parked.partition,
        "key": value_text(parked.key),
        "records": parked.records,
        "attempts": parked.attempts,
        "next_attempt_at_ms": parked.due_ms,
        "failure": xml_text(parked.failure[:LONGEST]),
        "timestamp": parked.timestamp,
        "topic": parked.topic,
        "source_partition": parked.source_partition,
        "offset": parked.offset,
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
