"""Fixtures of the Spark host: one session for all tests that can share one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock.host.spark import transactions
from penstock.host.spark.epochs import planning
from penstock.host.spark.worker import sink, task_epoch, task_state
from tests.spark.crashes import Crashes
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


@pytest.fixture
def crashes(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, float, int], Crashes]:
    """A function that has crashes strike from then on, given seed, probability and how many at most."""

    def install(seed: int, probability: float, most: int) -> Crashes:
        installed = Crashes(seed, probability, most)
        for module in (planning, sink, task_epoch, task_state, transactions):
            monkeypatch.setattr(module, "crash_point", installed)
        return installed

    return install
