"""KafkaStreams: an application of one topology.

Its life is in `application`, what it answers in `application.running_topology`; here are the topology, and its host,
which is opened by name when the application starts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from penstock.application import ApplicationLife
from penstock.application.running_topology import Identity, RunningTopology
from penstock.config import StreamsConfig
from penstock.host.api import Host
from penstock.host.open import open_host
from penstock.metrics import Metric, MetricName
from penstock.notebook import mime_bundle
from penstock.plan.describe import TopologyDescription
from penstock.plan.topology import Topology, built_topology


class KafkaStreams(ApplicationLife[Host], RunningTopology):
    """Runs a topology (Kafka class: KafkaStreams).

    `with KafkaStreams(topology, config) as streams:` starts it at the beginning of the block and closes it at the end.
    An application that was started keeps the program alive until it ends, as in Java.
    """

    def __init__(self, topology: Topology, config: StreamsConfig | Mapping[str, Any], spark: Any = None) -> None:
        """Check and build the topology; nothing runs yet.

        Args:
            topology: what to run.
            config: the configuration, with application.id and bootstrap.servers.
            spark: a pyspark.sql.SparkSession to run in, which stays open; None for one of the application's own.

        Raises:
            ConfigError: a key is missing or has a value that cannot be.
            TopologyError: the topology cannot be run.
        """
        super().__init__(config)
        self._built = built_topology(topology, self._application_id)
        self._config = self._config.overridden(self._built.config_overrides)
        self._spark = spark
        self._description = topology.describe()

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        facts = {"state": self.state().value, "host": self._config["penstock.host"]}
        return mime_bundle(self._description.forms(f"KafkaStreams {self._application_id}", facts), include, exclude)

    def _open_host(self, until_end: bool) -> Host:
        return open_host(
            self._built,
            self._config,
            session=self._spark,
            until_end=until_end,
            restore_listener=self._restore_listener,
        )

    def _shown_metrics(self) -> Mapping[MetricName, Metric]:
        return self.metrics()

    def _identity(self) -> Identity:
        errors, _ = self.uncaught_errors()
        return Identity(self._application_id, self._config.client_id(), str(self._description), errors)

    def describe(self) -> TopologyDescription:
        """Return the description of the topology."""
        return self._description

    def running_topologies(self) -> Mapping[str, RunningTopology]:
        """Return this application under the empty name."""
        return {"": self}

    def _topology_host(self) -> Host:
        return self._running_host()
