"""A classic session: its JVM runs on the driver's machine, as a child of this process or of spark-submit."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager

from pyspark.sql import SparkSession

from penstock.host.spark import session
from penstock.host.spark.driver.dependencies import send_code
from penstock.host.spark.driver.driver_session import DriverSession
from penstock.host.storage.files import Files


class ClassicSession(DriverSession):
    """Uses the SparkContext of a session (implements DriverSession)."""

    def check(self) -> None:
        """Check the Python of the workers."""
        session.check_python(self.spark)
        master = str(self.spark.sparkContext.master)
        session.warn_of_local_checkpoint(master, self._application.checkpoint.local_path)

    def send_code(self, modules: Iterable[object]) -> None:
        """Send the code to the executors of a cluster."""
        send_code(self.spark.sparkContext, modules)

    def parallelism(self) -> int:
        """Return the default parallelism of the SparkContext."""
        return self.spark.sparkContext.defaultParallelism

    def mailboxes(self) -> Files:
        """Return a directory on this machine, where Spark also runs the source process."""
        return Files(str(self._application.directory / "control"))

    def new_location(self, run: str) -> str:
        """Return the URI of an empty directory on this machine."""
        directory = self._application.directory.absolute() / "spark"
        shutil.rmtree(directory, ignore_errors=True)
        return (directory / run).as_uri()

    def starting(self) -> AbstractContextManager[SparkSession]:
        """Return a session on the same SparkContext."""
        return session.query_session(self.spark)

    def release(self, of_query: SparkSession) -> None:
        """Do nothing: the JVM collects the session."""
