"""KafkaStreams: an application with one topology.

`application` has its life, `application.running_topology` its queries; this module has the topology, and its host,
which is opened by name at the start of the application.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from penstock.application.close_options import DEFAULT_CLOSE_TIMEOUT_MS
from penstock.application.life import ApplicationLife
from penstock.application.running_topology import Identity, RunningTopology
from penstock.application.topology_edit import TopologyEdit
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.extras import load
from penstock.host.api import Host, StreamThreadExceptionResponse
from penstock.host.open import open_host
from penstock.metrics import Metric, MetricName, RecordingLevel
from penstock.notebook import mime_bundle
from penstock.plan.describe import TopologyDescription
from penstock.plan.subtopology import BuiltTopology
from penstock.plan.topic_loops import warn_of_topic_loops
from penstock.plan.topology import Topology, built_topology

if TYPE_CHECKING:
    from penstock.host.lake.writing import LakeWriter


class KafkaStreams(ApplicationLife[Host], RunningTopology):
    """Runs a topology (Kafka class: KafkaStreams).

    `with KafkaStreams(topology, config) as streams:` starts it at the beginning of the block and closes it at the end.
    A started application keeps the program alive until it ends, as in Java. If the main thread fails, or if a test has
    started the application, the end of the program closes it.

    Args:
        topology: the topology to run; built and checked by the constructor, which starts nothing.
        config: the configuration, with application.id and bootstrap.servers.
        spark: an existing pyspark.sql.SparkSession, which stays open; None creates one for the application.

    Raises:
        ConfigError: a key is missing or its value is invalid.
        TopologyError: the topology cannot be run.
    """

    def __init__(self, topology: Topology, config: StreamsConfig | Mapping[str, Any], spark: Any = None) -> None:
        super().__init__(config)
        self._given = self._config
        self._lake: LakeWriter | None = None
        self._spark = spark
        self._take(topology, built_topology(topology, self._application_id))

    def _take(self, topology: Topology, built: BuiltTopology) -> None:
        """Use `topology` and its built form `built` from the next start on."""
        self._topology, self._built = topology, built
        warn_of_topic_loops(built)
        self._config = self._given.overridden(built.config_overrides)
        self._description = topology.describe()

    def edit(self, topology: Topology, removing: Collection[str] = ()) -> TopologyEdit:
        """Continue with a changed topology and the present state: compare, close after the last commit, and start.

        A closed or failed application is started again. Views of stores end.

        Args:
            topology: the changed topology.
            removing: the names of stores that it may omit. Their state is kept, and continues if a later topology has
                the store again.

        Returns:
            The changes, which display in a notebook.

        Raises:
            TopologyError: the topology cannot be run.
            StreamsError: it cannot use the state of a store, or omits a store missing from `removing`: the application
                keeps running unchanged. Or it must not start, as for `start`: the state is then ERROR.
            TimeoutError: the application has not ended in time; it ends later, and `edit` can be called again.
        """
        self._only_outside_of_loading()
        built = built_topology(topology, self._application_id)
        savepoints = load("penstock.savepoints", "KafkaStreams.edit")
        before = savepoints.shape_of(self._topology, self._config)
        evolution = savepoints.changes(topology, self._given.overridden(built.config_overrides), before)
        left_out = [
            f"store {name} is not in the changed topology. Give the store the same name in both (Materialized.as_), or "
            f"call edit(topology, removing=[{name!r}]), which keeps its state for a later topology"
            for name in evolution.removed
            if name not in removing
        ]
        if reasons := (*evolution.refused, *left_out):
            told = "\n".join(f"  - {reason}" for reason in reasons)
            raise StreamsError(
                f"{self._application_id} cannot continue with the changed topology, so the old one keeps running:\n"
                f"{told}"
            )
        for view in self._views.values():
            view.close()
        self._start_again(lambda: self._take(topology, built))
        return TopologyEdit(
            self._application_id, tuple(evolution.lines()) if evolution.differences else (), self._description
        )

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

    def _serve(self) -> None:
        super()._serve()
        if self._built.lake_sinks:
            writing = load("penstock.host.lake.writing", "to_lake", extra="lake")
            self._lake = writing.LakeWriter(self._built.lake_sinks, self._config, self._is_ended_by)
            self._servers.append(self._lake)

    def _is_ended_by(self, error: BaseException) -> bool:
        """Follow the response to an error of the copy to tables; return whether the application ends."""
        if self._uncaught.response_to(error) is StreamThreadExceptionResponse.REPLACE_THREAD:
            return False
        self._fail(error)
        self._release(DEFAULT_CLOSE_TIMEOUT_MS)
        return True

    def _reached_the_end(self) -> None:
        try:
            if self._lake is not None:
                self._lake.finish()
        except Exception as error:
            self._fail(error)
        else:
            super()._reached_the_end()

    def _shown_metrics(self) -> Mapping[MetricName, Metric]:
        return self.metrics()

    def _identity(self) -> Identity:
        errors, _ = self.uncaught_errors()
        level = RecordingLevel[self._config["metrics.recording.level"]]
        return Identity(self._application_id, self._config.client_id(), str(self._description), errors, level)

    def describe(self) -> TopologyDescription:
        """Return the description of the topology."""
        return self._description

    def _current_topologies(self) -> Mapping[str, Topology]:
        return {"": self._topology}

    def running_topologies(self) -> Mapping[str, RunningTopology]:
        """Return this application under an empty name."""
        return {"": self}

    def _topology_host(self) -> Host:
        return self._running_host()
