"""Fixtures of the Spark host: one session for all tests that can share one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.host.spark import clients
from penstock.host.spark.checkpoints import savepoint, topology_versions
from penstock.host.spark.planner import epoch_planner
from penstock.host.spark.protocol import transactions
from penstock.host.spark.worker import global_state, sink, task_epoch, task_state
from tests.host.spark.crashes import Crashes
from tests.host.spark.support import SparkRunner
from tests.support.brokers import RunningBroker


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep what runs on a real Kafka here together, and apart from the tests of brokers and clients: two workers share
    the tests on Kafka."""
    for item in items:
        if item.get_closest_marker("kafka") and "spark_runner" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark_runner(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkRunner]:
    """Runs topologies on each of the brokers."""
    runner = SparkRunner(broker.bootstrap_servers, tmp_path_factory.mktemp(f"spark-{broker.kind}"))
    yield runner
    runner.close()


@pytest.fixture(autouse=True)
def clients_end() -> Iterator[None]:
    """Release the clients that a worker of Spark keeps for the life of its process: tests run workers in this process,
    and each client has threads that wake now and then, and open files."""
    yield
    for kept in (clients.open_fetcher, clients.open_admin, sink._writer):
        kept.cache_clear()


@pytest.fixture
def application(unique_name: Callable[[str], str]) -> str:
    """An application.id of the test's own."""
    return unique_name("app")


@pytest.fixture
def topics(
    spark_runner: SparkRunner, unique_name: Callable[[str], str], request: pytest.FixtureRequest
) -> tuple[str, str]:
    """A topic to read from and one to write to, of as many partitions as the mark `partitions` says, or 3 and 2."""
    mark = request.node.get_closest_marker("partitions")
    source, target = unique_name("in"), unique_name("out")
    spark_runner.create_topics(dict(zip((source, target), mark.args if mark else (3, 2), strict=True)))
    return source, target


@pytest.fixture
def crashes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Crashes]:
    """A function of the arguments of Crashes that has such strike from then on, at all points of the host."""

    def install(*args: Any, **values: Any) -> Crashes:
        installed = Crashes(*args, **values)
        for module in (
            epoch_planner,
            global_state,
            savepoint,
            sink,
            task_epoch,
            task_state,
            topology_versions,
            transactions,
        ):
            monkeypatch.setattr(module, "crash_point", installed)
        return installed

    return install
