"""A session of Spark Connect: the JVM and all processes of Python run at a server, and this program is its client.

The driver reaches them through the file system of the checkpoint only: there are the mailbox of the running query and
Spark's own temporary checkpoint of it. The module is loaded by name, because it needs more packages (grpcio ...).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import penstock
from penstock.errors import ConfigError, StreamsError
from penstock.host.spark import session
from penstock.host.spark.checkpoints.hadoop import hadoop_uri
from penstock.host.spark.driver.driver_session import DriverSession
from penstock.host.spark.driver.hosted_application import HostedApplication
from penstock.host.spark.protocol.failures import readable
from penstock.host.spark.versions import FEATURES, map_in_arrow
from penstock.host.storage.files import Files

_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_QUERY = "~query"
"""A directory next to those of the topics of DataFrames; no topic has such a name."""


class ConnectSession(DriverSession):
    """Uses the server of a session (implements DriverSession)."""

    def __init__(self, spark: SparkSession, application: HostedApplication) -> None:
        super().__init__(spark, application)
        self._parallelism: int | None = None

    def check(self) -> None:
        """Check that the server has the Spark of this program, and its workers the packages of Penstock."""
        application = self._application
        if not FEATURES.connect:
            raise ConfigError(
                f"{application.id} cannot run on Spark Connect with Spark {pyspark.__version__}: it needs Spark 4.3 or "
                "newer. Pass a SparkSession with a master, as SparkSession.builder.master(...) creates it, or start "
                "the program with spark-submit on the cluster. See Spark Connect in docs/platforms.md."
            )
        built = application.built
        if built.data_frame_sources or built.data_frame_sinks or built.histories:
            topics = ", ".join(sorted({*built.data_frame_topics, *built.histories}))
            raise ConfigError(
                f"{application.id} cannot use stream_from, stream_from_history and to_spark (topics {topics}) on Spark "
                "Connect: the server would run their functions in a process of its own. Write the rows to a topic with "
                "a query of your own and read it with builder.stream, or pass a SparkSession with a master. See Spark "
                "Connect in docs/platforms.md."
            )
        version = self._version()
        if version.split(".")[:2] != pyspark.__version__.split(".")[:2]:
            raise ConfigError(
                f"The server of Spark Connect runs Spark {version}, and this program has pyspark "
                f"{pyspark.__version__}: workers there could not load what this program sends. Install the pyspark "
                "of the server's version."
            )
        self.parallelism()
        host = self.spark.client.host
        master = "local" if host in _THIS_MACHINE else f"sc://{host}"
        session.warn_of_local_checkpoint(master, application.checkpoint.local_path)

    def _version(self) -> str:
        """Return the version of Spark at the server: the first call, since a session is opened without one."""
        try:
            with session.answering_soon(self.spark):
                return self.spark.version
        except PySparkException as error:
            raise StreamsError(
                f"The server of Spark Connect at {self.spark.client.host} does not answer {self._application.id}: "
                f"{readable(str(error))}. Start it, or correct its address."
            ) from error

    def send_code(self, modules: Iterable[object]) -> None:
        """Do nothing: Spark 4.3 gives the artifacts of a session to no process of a streaming query."""

    def parallelism(self) -> int:
        """Return the number of partitions that Spark gives to a small table.

        Raises ConfigError if a worker of the server does not have this Penstock.
        """
        if self._parallelism is None:
            try:
                with session.answering_soon(self.spark):
                    rows = map_in_arrow(self.spark.range(1), _versions, "penstock string").collect()
            except PySparkException as error:
                raise self._unsuitable(readable(str(error))) from error
            if other := {row.penstock for row in rows} - {penstock.__version__}:
                raise self._unsuitable(f"they have version {', '.join(sorted(other))}")
            self._parallelism = len(rows)
        return self._parallelism

    def _unsuitable(self, why: str) -> ConfigError:
        return ConfigError(
            f"The workers of the Spark Connect server at {self.spark.client.host} cannot run {self._application.id}: "
            f"{why}. They need Python {sys.version_info.major}.{sys.version_info.minor}, Penstock "
            f"{penstock.__version__} with its requirements (pip install 'penstock-streams[spark]'), and the modules "
            "that the program imports: Spark Connect cannot send them to a streaming query. See docs/platforms.md."
        )

    def mailboxes(self) -> Files:
        """Return a directory of the checkpoint."""
        return Files(self._application.checkpoint.uri).below("control")

    def new_location(self, run: str) -> str:
        """Return the URI of a directory of the checkpoint."""
        parent = self._application.checkpoint.data_frames()
        parent.delete_directory(_QUERY)
        return hadoop_uri(parent.below(_QUERY).below(run))

    @contextmanager
    def starting(self) -> Iterator[SparkSession]:
        """Yield a new session of the server."""
        own = self.spark.newSession()
        own.client.set_retry_policies([session.connect_retries()])
        for key, value in session.QUERY_SETTINGS.items():
            own.conf.set(key, value)
        yield own

    def release(self, of_query: SparkSession) -> None:
        """Release the session at the server, which would keep it for an hour."""
        # not stop(), which also ends a server in this process that the program's own session uses; nor close(): a call
        # of another thread would raise ValueError, where it gets an error of Spark from a session that was released
        with suppress(PySparkException):
            of_query.client.release_session()


def _versions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a row for each partition, in a worker, which has loaded Penstock to get here."""
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"penstock": [penstock.__version__]})
