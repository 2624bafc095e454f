"""Fixtures of the Spark host alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.host.spark.checkpoints import handover, savepoint, topology_versions
from penstock.host.spark.planner import epoch_planner
from penstock.host.spark.protocol import transactions
from penstock.host.spark.worker import global_state, logged_results, sink, task_epoch, task_state
from penstock.shadow import switching
from tests.host.spark.crashes import Crashes
from tests.host.spark.inline import end_clients
from tests.host.spark.support import SparkRunner


@pytest.fixture
def runner(spark_runner: SparkRunner) -> SparkRunner:
    """Runs topologies on Spark: the tests here are those of one host."""
    return spark_runner


@pytest.fixture(autouse=True)
def clients_end() -> Iterator[None]:
    """Release the clients of workers that run in this process."""
    yield
    end_clients()


@pytest.fixture
def crashes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Crashes]:
    """A function of the arguments of Crashes that has such strike from then on, at all points of the host."""

    def install(*args: Any, **values: Any) -> Crashes:
        installed = Crashes(*args, **values)
        for module in (
            epoch_planner,
            global_state,
            handover,
            logged_results,
            savepoint,
            sink,
            switching,
            task_epoch,
            task_state,
            topology_versions,
            transactions,
        ):
            monkeypatch.setattr(module, "crash_point", installed)
        return installed

    return install
