"""Fixtures of the tests that run on each host: `runner` is a parameter with the names of the hosts. The package of each
is imported by name, for the tests of one host run where those of another are not installed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from typing import Any, NoReturn

import pytest

from penstock.config import StreamsConfig
from penstock.host.deployment import listed_topics
from penstock.log_context import mark_log_records
from penstock.plan.topology import Topology
from penstock_broker.common.clock import Clock
from tests.host.support import Program, Runner
from tests.support.brokers import RunningBroker


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep what runs Spark on a real Kafka together, and apart from the tests of brokers and clients: two workers share
    the tests on Kafka. Spark Connect changes nothing between Spark and the brokers: one kind of them will do."""
    items[:] = [item for item in items if not (item.get_closest_marker("kafka") and _runner(item) == "connect")]
    for item in items:
        if item.get_closest_marker("kafka") and _is_on_spark(item):
            item.add_marker(pytest.mark.xdist_group("spark"))


def _is_on_spark(item: pytest.Item) -> bool:
    return "spark_runner" in getattr(item, "fixturenames", ()) or _runner(item) == "spark"


def _runner(item: pytest.Item) -> object:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("runner")


def _made(module: str, name: str, broker: RunningBroker, directories: pytest.TempPathFactory) -> Iterator[Any]:
    make = vars(import_module(module))[name]
    runner: Runner = make(broker.bootstrap_servers, directories.mktemp(f"{name}-{broker.kind}"))
    yield runner
    runner.close()


@pytest.fixture(scope="session")
def spark_runner(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Runs topologies on Spark, on each of the brokers; one session serves all tests."""
    yield from _made("tests.host.spark.support", "SparkRunner", broker, tmp_path_factory)


@pytest.fixture(scope="session")
def connect_runner(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Runs topologies on Spark Connect; one server serves all tests."""
    pytest.importorskip("grpc", reason="the packages of pyspark[connect] are not installed")
    yield from _made("tests.host.spark.connect", "ConnectRunner", broker, tmp_path_factory)


@pytest.fixture(scope="session")
def threads_runner(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Runs topologies on the threads host, on each of the brokers."""
    yield from _made("tests.host.threads.runner", "ThreadsRunner", broker, tmp_path_factory)


@pytest.fixture(scope="session")
def processes_runner(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Runs topologies in worker processes of the threads host, on each of the brokers."""
    yield from _made("tests.host.threads.runner", "ProcessesRunner", broker, tmp_path_factory)


@pytest.fixture
def driver_runner() -> Any:
    """Runs topologies in the test driver, without a broker."""
    return import_module("tests.host.inline.runner").DriverRunner()


@pytest.fixture(params=["spark", "threads"])
def runner(request: pytest.FixtureRequest, broker: RunningBroker) -> Runner:
    """Runs topologies on each host, on each of the brokers."""
    found: Runner = request.getfixturevalue(f"{request.param}_runner")
    return found


@pytest.fixture
def start(runner: Runner) -> Iterator[Callable[..., Program]]:
    """A function of the arguments of `Runner.program`; what it starts ends with the test."""
    with ExitStack() as programs:

        def started(topology: Topology, config: StreamsConfig, clock: Clock | None = None) -> Program:
            program = runner.program(topology, config, clock)
            programs.callback(program.close)
            return program

        yield started


@pytest.fixture(autouse=True)
def missing_topics_are_not_waited_for(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded broker is alone, and lists each topic that there is."""
    broker = request.getfixturevalue("broker") if "broker" in request.fixturenames else None
    if isinstance(broker, RunningBroker) and broker.kind == "embedded":
        monkeypatch.setattr(listed_topics, "_PATIENCE_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def sessions_start_in_a_group(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test outside of a group that starts a session of Spark fails: each worker of a run would start a JVM."""
    if _is_on_spark(request.node) and not request.node.get_closest_marker("xdist_group"):
        monkeypatch.setattr("tests.host.spark.support.make_session", _refused)


def _refused(*_: object) -> NoReturn:
    raise AssertionError("This test starts a session of Spark: use run_here() or start(), or the mark WITH_A_SESSION.")


@pytest.fixture
def service() -> Iterator[Any]:
    """The service of this test, for operators with calls."""
    made = import_module("tests.host.calling_service").SERVICE
    made.reset()
    yield made
    made.release()


@pytest.fixture
def marked_log() -> Iterator[None]:
    """Log records have their attributes in the test, as in a running application."""
    before = logging.getLogRecordFactory()
    mark_log_records()
    yield
    logging.setLogRecordFactory(before)


@pytest.fixture
def telemetry() -> Iterator[Any]:
    """What OpenTelemetry receives in the test, of this process."""
    yield from import_module("tests.support.telemetry").recorded()


@pytest.fixture
def application(unique_name: Callable[[str], str]) -> str:
    """An application.id of the test's own."""
    return unique_name("app")


@pytest.fixture
def topics(runner: Runner, unique_name: Callable[[str], str], request: pytest.FixtureRequest) -> tuple[str, str]:
    """A topic to read from and one to write to, of as many partitions as the mark `partitions` says, or 3 and 2."""
    mark = request.node.get_closest_marker("partitions")
    source, target = unique_name("in"), unique_name("out")
    runner.create_topics(dict(zip((source, target), mark.args if mark else (3, 2), strict=True)))
    return source, target
