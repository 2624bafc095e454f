"""Runs topologies on the threads host, for tests that run on each host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.config import StreamsConfig
from penstock.host.api import StateQueries
from penstock.host.storage.directories import application_path
from penstock.host.threads.directories import StateDirectory
from penstock.host.threads.host import ThreadsHost
from penstock.host.threads.vocabulary import GLOBAL_TASK
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import Topology, built_topology
from penstock.record import TopicPartition
from penstock_broker.common.clock import Clock
from tests.host.support import Listening, Runner, wait_for

AT_ONCE: Mapping[str, Any] = {
    "commit.interval.ms": 10,
    "heartbeat.interval.ms": 100,
    "penstock.restart.backoff.ms": 10,
    "poll.ms": 10,
    "session.timeout.ms": 60_000,  # nobody leaves because a machine is busy
}
"""Settings with which a test waits for nothing."""


class ThreadsRunner(Runner):
    """Runs topologies on one broker in threads of this process."""

    def config(self, application_id: str, values: Mapping[str, Any] | None = None) -> StreamsConfig:
        """Return the configuration of an application; its state goes below the runner's directory."""
        return StreamsConfig(
            {
                "penstock.host": "threads",
                "application.id": application_id,
                "bootstrap.servers": self.bootstrap_servers,
                "state.dir": str(self.directory / "state"),
                "statestore.cache.max.bytes": 0,
                **AT_ONCE,
                **(values or {}),
            }
        )

    def host(
        self, topology: Topology, config: StreamsConfig, until_end: bool = False, clock: Clock | None = None
    ) -> ThreadsHost:
        """Return a host, not yet started."""
        built = built_topology(topology, config.required("application.id"))
        return ThreadsHost(built, config.overridden(built.config_overrides), until_end=until_end, clock=clock)

    def options(self) -> dict[str, Any]:
        """Return nothing: this host has no session."""
        return {}

    @property
    def with_changelogs(self) -> Mapping[str, Any]:
        """Nothing: this host always writes them."""
        return {}

    def check(self, host: ThreadsHost) -> None:
        """Check how `host` runs. Raises AssertionError if it is not as the settings of the runner say."""
        assert all(worker.startswith("thread ") for worker in host.statistics().workers.values())

    def entries(self, table: Any) -> dict[Any, Any]:
        """Return the keys and values of a table of Arrow."""
        return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))

    def program(self, topology: Topology, config: StreamsConfig, clock: Clock | None = None) -> ThreadsProgram:
        """Start a program."""
        return ThreadsProgram(self, topology, config, clock)

    def store(self, config: StreamsConfig, name: str) -> dict[bytes, bytes]:
        """Return the content of a store over all tasks that this machine has; nothing may run."""
        content: dict[bytes, bytes] = {}
        directory = StateDirectory(config)
        directory.acquire()
        try:
            paths = application_path(config).glob("*_*/")
            for task in [TaskId.parse(path.name) for path in paths] + [GLOBAL_TASK]:
                if not directory.has_base(task):
                    continue
                base = directory.open_base(task)
                content.update(base.view(name).range(None, None, False))
                base.close()
            directory.seal()
        finally:
            directory.release()
        return content


class ProcessesRunner(ThreadsRunner):
    """Runs topologies on one broker in worker processes."""

    def config(self, application_id: str, values: Mapping[str, Any] | None = None) -> StreamsConfig:
        """Return the configuration of an application; its state goes below the runner's directory."""
        return super().config(application_id, {"num.stream.threads": 2, **(values or {})})

    def check(self, host: ThreadsHost) -> None:
        """Check that no task of `host` is in this process: a program that cannot be sent to others runs here."""
        assert all(worker.startswith("process ") for worker in host.statistics().workers.values())


class ThreadsProgram:
    """One instance of an application (implements Program)."""

    def __init__(self, runner: ThreadsRunner, topology: Topology, config: StreamsConfig, clock: Clock | None) -> None:
        """Start it."""
        self._runner = runner
        self._config = config
        self._group = config.required("application.id")
        self._clock = clock
        self._start(topology)

    def _start(self, topology: Topology) -> None:
        self._topology = topology
        built = topology.build(self._group)
        self._read = {topic for part in built.subtopologies for topic in part.source_topics}
        self._global = set() if built.global_topology is None else {*built.global_topology.source_topics}
        self._global_starts = self._global_ends()
        self.host = self._runner.host(topology, self._config, clock=self._clock)
        self._listening = Listening()
        self.host.start(self._listening)

    def change(self, topology: Topology) -> None:
        """End the program and start another one in its place."""
        self.close()
        self._start(topology)

    def advance(self) -> None:
        """Do nothing: the instance runs. Raises the error that has ended it."""
        if self._listening.error is not None:
            raise self._listening.error

    def pause(self) -> None:
        """Process nothing until `resume`."""
        self.host.pause()

    def resume(self) -> None:
        """Continue after `pause`."""
        self.host.resume()

    def restart(self) -> None:
        """End the program and start it again."""
        self.change(self._topology)

    def run_to_end(self) -> None:
        """Wait until all that was written is committed; raises the error that ends the application."""
        wait_for(lambda: self._listening.ended.is_set() or self._is_through())
        if self._listening.error is not None:
            raise self._listening.error
        self._runner.check(self.host)

    def _is_through(self) -> bool:
        if "RUNNING" not in self._listening.states:
            return False
        admin, topics = self._runner.admin, self._runner.admin.topics()
        read = [TopicPartition(topic, number) for topic in self._read for number in range(topics[topic])]
        # The offset of a record is committed after what came of it was written: so the ends are asked for last.
        committed = admin.committed_offsets(self._group, read, stable=False)
        # The offsets of a transaction may be committed before its marker is in the topics that it wrote to: its records
        # are then behind the end for readers of committed records.
        ends = admin.end_offsets(read)
        return self._has_followed() and all(
            end == (committed[place].offset if place in committed else 0) for place, end in ends.items()
        )

    def _has_followed(self) -> bool:
        """Return whether the records of global topics have arrived: what is written behind them is processed later."""
        consumed = self.host.statistics().consumed
        return all(
            consumed.get(topic, (0, 0))[0] >= end - self._global_starts[topic]
            for topic, end in self._global_ends().items()
        )

    def _global_ends(self) -> dict[str, int]:
        """Return how many records the topics of global stores have."""
        counts = self._runner.admin.topics() if self._global else {}
        ends = self._runner.admin.end_offsets(
            [TopicPartition(topic, number) for topic in self._global for number in range(counts[topic])]
        )
        return {topic: sum(end for place, end in ends.items() if place.topic == topic) for topic in self._global}

    def queries(self) -> StateQueries:
        """Return what reads the stores of the instance that runs now."""
        return self.host.queries()

    def close(self) -> None:
        """Commit, and leave the group."""
        assert self.host.close(60_000)
