"""Runs topologies on Spark to the end of their inputs, many in one session, and reads what came out: topics and stores.

Used by the tests of the host and by the interpreter of the oracle's cases. A runner is not a fixture: make one with a
broker's address and a directory, close it at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.config import StreamsConfig
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest
from penstock.host.spark.driver.spark_host import SparkHost
from penstock.host.spark.session import make_session, open_for_calls
from penstock.plan.topology import Topology, built_topology
from penstock.state.memory import MemoryBase
from penstock.state.segment_log import log_from_json, path
from penstock.state.segments import decode
from penstock.task.task_checkpoint import TaskCheckpoint
from penstock_broker.common.clock import Clock
from tests.host.spark.inline import InlineProgram, InlineQuery
from tests.host.support import Runner


class SparkRunner(Runner):
    """Runs topologies on one broker in one local session."""

    def __init__(self, bootstrap_servers: str, directory: Path, partitions: int = 2) -> None:
        """Connect to the broker; the session starts with the first run. partitions: of each level of a topology."""
        super().__init__(bootstrap_servers, directory)
        self._partitions = partitions
        self._session: SparkSession | None = None

    def close(self) -> None:
        """End the session and the clients."""
        if self._session is not None:
            self._session.stop()
            self._session = None
        super().close()

    @property
    def session(self) -> SparkSession:
        """The session, started when first asked for."""
        if self._session is None:
            config = self.config("penstock-tests")
            self._session = make_session(config, self.directory / "session")
            open_for_calls(self._session)  # before the clients of many tests are open in this process
        return self._session

    def config(self, application_id: str, values: Mapping[str, Any] | None = None) -> StreamsConfig:
        """Return the configuration of an application; its state goes below the runner's directory."""
        return StreamsConfig(
            {
                "application.id": application_id,
                "bootstrap.servers": self.bootstrap_servers,
                "state.dir": str(self.directory / "state"),
                "statestore.cache.max.bytes": 0,
                "penstock.spark.partitions": self._partitions,
                "penstock.poll.ms": 20,
                **(values or {}),
            }
        )

    def host(
        self, topology: Topology, config: StreamsConfig, until_end: bool = False, session: SparkSession | None = None
    ) -> SparkHost:
        """Return a host in the runner's session, or in another one, not yet started."""
        built = topology.build(str(config["application.id"]))
        return SparkHost(built, config, session=session or self.session, until_end=until_end)

    def options(self) -> dict[str, Any]:
        """Return the runner's session."""
        return {"spark": self.session}

    @property
    def with_changelogs(self) -> Mapping[str, Any]:
        """The key that makes this host write them."""
        return {"penstock.changelog.topics": True}

    def entries(self, table: Any) -> dict[Any, Any]:
        """Return the keys and values of a DataFrame."""
        return {row.key: row.value for row in table.collect()}

    def program(self, topology: Topology, config: StreamsConfig, clock: Clock | None = None) -> InlineProgram:
        """Start a program with Spark's part played in this process."""
        return InlineProgram(InlineQuery(topology, config, self.admin, clock=clock))

    def run_here(self, topology: Topology, config: StreamsConfig) -> None:
        """As `run`, with Spark's part played in this process."""
        built = built_topology(topology, str(config["application.id"]))
        own = config.overridden(built.config_overrides)
        program = InlineProgram(InlineQuery(topology, own, self.admin, until_end=True))
        try:
            program.run_to_end()
        finally:
            program.close()

    def manifest(self, config: StreamsConfig) -> Manifest:
        """Return the last manifest of an application."""
        checkpoint = Checkpoint(config.checkpoint_directory())
        manifest = checkpoint.read_manifest(checkpoint.last_epoch(), "")
        assert manifest is not None
        return manifest

    def store(self, config: StreamsConfig, name: str) -> dict[bytes, bytes]:
        """Return the content of a store over all tasks, as the last commit left it, from the segments alone."""
        return {key: value for content in self.store_by_task(config, name).values() for key, value in content.items()}

    def store_by_task(self, config: StreamsConfig, name: str) -> dict[str, dict[bytes, bytes]]:
        """As `store`, task by task."""
        checkpoint = Checkpoint(config.checkpoint_directory())
        contents = {}
        for task, entry in self.manifest(config).tasks.items():
            base = MemoryBase()
            for info in path(log_from_json(dict(entry.segments)), None).segments:
                data = checkpoint.read_segment(task, info.id.hex())
                assert data is not None, f"segment {info.id.hex()} of task {task} is missing"
                base.apply(decode(data, info.id).changes, info.last)
            contents[task] = dict(base.view(name).range(None, None, False))
        return contents

    def processor_metadata(self, config: StreamsConfig) -> dict[str, int]:
        """Return what the processors and stores of all tasks remember after the last commit, the largest of each."""
        checkpoint = Checkpoint(config.checkpoint_directory())
        found: dict[str, int] = {}
        for task, entry in self.manifest(config).tasks.items():
            for info in path(log_from_json(dict(entry.segments)), None).segments:
                data = checkpoint.read_segment(task, info.id.hex())
                assert data is not None, f"segment {info.id.hex()} of task {task} is missing"
                encoded = decode(data, info.id).checkpoint
                remembered = TaskCheckpoint.decode(encoded).processor_metadata if encoded else {}
                found.update({name: max(value, found.get(name, value)) for name, value in remembered.items()})
        return found
