"""A session of Spark as the driver uses it: what a classic session and one of Spark Connect do differently."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager

from pyspark.sql import SparkSession

from penstock.host.spark.driver.hosted_application import HostedApplication
from penstock.host.storage.files import Files


class DriverSession(ABC):
    """The session in which an application runs its queries.

    Args:
        spark: the session.
        application: the application.
    """

    def __init__(self, spark: SparkSession, application: HostedApplication) -> None:
        self.spark = spark
        self._application = application

    @abstractmethod
    def check(self) -> None:
        """Warn of a checkpoint that others may not see.

        Raises:
            ConfigError: the application cannot run here.
            StreamsError: the session does not answer.
        """

    @abstractmethod
    def send_code(self, modules: Iterable[object]) -> None:
        """Send Penstock and those of `modules` that are not installed to the executors, if Spark can. Idempotent."""

    @abstractmethod
    def parallelism(self) -> int:
        """Return how many tasks of Spark run at the same time."""

    @abstractmethod
    def mailboxes(self) -> Files:
        """Return the parent directory of the mailboxes of the application's queries."""

    @abstractmethod
    def new_location(self, run: str) -> str:
        """Return the URI of Spark's checkpoint for the next query, and delete those of earlier queries.

        All data that an application depends on is in its own checkpoint.
        """

    @abstractmethod
    def starting(self) -> AbstractContextManager[SparkSession]:
        """Return the session of a new query, with its settings, active while the query starts."""

    @abstractmethod
    def release(self, of_query: SparkSession) -> None:
        """Release the session of a query that has ended."""
