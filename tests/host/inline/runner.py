"""Runs topologies in the test driver, for tests that run on each host: what a runner does without a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.plan.topology import Topology
from penstock.testing import TopologyTestDriver
from tests.host.support import InputRecord, OutputRecord


class DriverRunner:
    """Keeps topics, and runs a topology over all of their records."""

    def __init__(self) -> None:
        self._written: list[tuple[str, InputRecord]] = []
        self._read: dict[str, list[OutputRecord]] = {}

    def config(self, application_id: str, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the configuration of an application."""
        return {"application.id": application_id, "statestore.cache.max.bytes": 0, **(values or {})}

    def create_topics(self, partitions: Mapping[str, int]) -> None:
        """Create topics; the driver has one partition of each."""
        self._read.update({name: [] for name in partitions})

    def write(self, topic: str, records: Iterable[InputRecord]) -> None:
        """Write `records` in order."""
        self._written += [(topic, record) for record in records]

    def run_here(self, topology: Topology, config: Mapping[str, Any]) -> None:
        """Process all records; raises the error that ended the run."""
        with TopologyTestDriver(topology, config) as driver:
            for topic, each in self._written:
                driver.pipe_bytes(topic, each.key, each.value, each.timestamp, each.headers)
            for found in driver.read_all_bytes():
                record = OutputRecord(0, found.key, found.value, found.timestamp, found.headers)
                self._read.setdefault(found.topic, []).append(record)

    def read(self, topic: str) -> list[OutputRecord]:
        """Return the records of `topic`."""
        return self._read[topic]
