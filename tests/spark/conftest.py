"""Fixtures of the Spark host: one session for all tests that can share one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.spark.support import SparkRunner
from tests.support.brokers import RunningBroker


@pytest.fixture(scope="session")
def spark_runner(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkRunner]:
    """Runs topologies on each of the brokers."""
    runner = SparkRunner(broker.bootstrap_servers, tmp_path_factory.mktemp(f"spark-{broker.kind}"))
    yield runner
    runner.close()


@pytest.fixture
def application(unique_name: Callable[[str], str]) -> str:
    """An application.id of the test's own."""
    return unique_name("app")
