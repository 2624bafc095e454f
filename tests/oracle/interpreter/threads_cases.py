"""Runs cases on the running threads host, on a broker: real clients, real threads, a member of a group. Each step is
committed before the next one, as the test driver does. `threads_host` runs the core alone, in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from penstock import StreamsConfig, Topology
from penstock.client.sockets.cluster import Cluster
from penstock.client.sockets.offsets import committed_offsets
from penstock.host.commits.committing import PartitionMetadata
from penstock.plan.subtopology import BuiltTopology
from penstock.record import TopicPartition
from tests.host.threads.runner import AT_ONCE, ThreadsRunner
from tests.oracle.interpreter import case_runner, threads_host
from tests.oracle.interpreter.broker_cases import BrokerCases, CaseClock, RunToEnd, store_content
from tests.oracle.interpreter.hosts import read_topics
from tests.oracle.interpreter.settings import APPLICATION_ID

Case = case_runner.Case


def missing(case: Case) -> list[str]:
    """Return why a case cannot be run or compared on a running instance; an empty list says that it can."""
    if any("in" not in step for step in case.get("steps", [])):
        return ["on threads: a step of the wall clock, behind which nobody sees whether a punctuation is due"]
    return threads_host.missing(case)


class ThreadsCases(BrokerCases):
    """A broker and the threads host for many cases; a context manager."""

    def __init__(self, bootstrap_servers: str | None = None) -> None:
        """Connect to a broker, or start an embedded one."""
        super().__init__(ThreadsRunner, bootstrap_servers)

    def run_settings(self) -> Mapping[str, Any]:
        """Return the keys of the configuration that each case has on this host."""
        return {**AT_ONCE, "commit.interval.ms": 0}

    def epochs_of(self, case: Case, built: BuiltTopology) -> list[list[int]]:
        """Return each step alone."""
        return [[number] for number in range(len(case.get("steps", [])))]

    @contextmanager
    def application(self, topology: Topology, settings: StreamsConfig, clock: CaseClock) -> Iterator[RunToEnd]:
        """Run the topology inside the block."""
        program = self._runner.program(topology, settings, clock)
        try:
            yield program.run_to_end
        finally:
            program.close()

    def stores(self, case: Case, built: BuiltTopology, settings: StreamsConfig) -> dict[str, Any]:
        """Return the content of the stores that the case names, as this machine has them."""
        builders = {name: store for part in built.subtopologies for name, store in part.stores.items()}
        if built.global_topology is not None:
            builders |= built.global_topology.stores
        names, remembered = case_runner.named_stores(case), _remembered(built, settings)
        return {
            name: store_content(case, builder, settings, self._runner.store(settings, name), remembered)
            for name, builder in sorted(builders.items())
            if name in names
        }


def _remembered(built: BuiltTopology, settings: StreamsConfig) -> dict[str, int]:
    """Return what the processors and stores of all tasks remember, beside the committed offsets."""
    cluster = Cluster(settings)
    try:
        places = [TopicPartition(topic, 0) for topic in read_topics(built) | {*built.repartition_topics}]
        committed = committed_offsets(cluster, APPLICATION_ID, places, stable=True)
    finally:
        cluster.close()
    found: dict[str, int] = {}
    for each in committed.values():
        found |= PartitionMetadata.decode(each.metadata).processor_metadata
    return found
