"""Fixtures of brokers: the embedded one, a real Kafka, and one parameter for both, so that a test runs on all brokers.

Each is started once a session, when the first test asks for it. Tests share them, so a test uses its own topics and
groups: the fixture `unique_name` gives names.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from penstock_broker.process import BrokerProcess
from tests.support.kafka import RealKafka, require_kafka


@dataclass(frozen=True)
class RunningBroker:
    """A broker that tests may use.

    Args:
        kind: 'embedded' or 'kafka'.
        bootstrap_servers: its address.
    """

    kind: str
    bootstrap_servers: str


KEEPS_RECORDS = tuple(f"--log-{name}-ms=86400000" for name in ("retention-check-interval", "initial-task-delay"))
"""Arguments of an embedded broker for records of long ago: none is deleted for its age while a test reads it."""


@pytest.fixture(scope="session")
def embedded_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The embedded broker of the session."""
    # Exported topics of state have the retention that their stores need, and may hold records of long ago.
    # As on Kafka below, groups of Kafka Streams move tasks with each heartbeat. Each check of the cleaner looks at the
    # topics of all tests, and few tests wait for one.
    fast = ("--log-cleaner-backoff-ms", "500", "--group-streams-heartbeat-interval-ms", "100")
    arguments = (*fast, *KEEPS_RECORDS)
    with BrokerProcess(tmp_path_factory.mktemp("broker"), arguments=arguments) as process:
        yield process


@pytest.fixture(scope="session")
def real_kafka() -> Iterator[RealKafka]:
    """A real Kafka of one broker; the test is skipped where there is none."""
    require_kafka()
    # By default, a compaction begins after 15 seconds, a transaction is aborted up to ten seconds behind its time-out,
    # and groups of Kafka Streams move tasks with each heartbeat, every five seconds.
    settings = {
        "log.cleaner.backoff.ms": "100",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "group.streams.initial.rebalance.delay.ms": "0",
        "group.streams.min.assignment.interval.ms": "0",
        "group.streams.assignment.interval.ms": "0",
        "group.streams.min.heartbeat.interval.ms": "100",
        "group.streams.heartbeat.interval.ms": "100",
    }
    with RealKafka(settings=settings) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def real_kafka_cluster() -> Iterator[RealKafka]:
    """A real Kafka of three brokers, for tests that end one of them; the test is skipped where there is none."""
    require_kafka()
    # A broker that is killed is missed after four seconds instead of nine, and a quota makes clients wait for three at
    # most instead of eleven.
    with RealKafka(brokers=3, settings={"broker.session.timeout.ms": "4000", "quota.window.num": "3"}) as kafka:
        yield kafka


# One worker of a parallel run takes all tests on Kafka, so that one Kafka is started.
ON_KAFKA = (pytest.mark.kafka, pytest.mark.xdist_group("kafka"))
"""Marks of a test that needs a real Kafka or its jars."""
ON_KAFKA_CLUSTER = (pytest.mark.kafka, pytest.mark.xdist_group("kafka-cluster"))
"""Marks of a test that needs a real Kafka of three brokers."""

EMBEDDED_ONLY = pytest.mark.parametrize("broker", ["embedded"], indirect=True)
"""Mark of a test of the fixture `broker` that would show nothing more on Kafka."""


def first_on_kafka(seeds: Sequence[Any]) -> list[Any]:
    """Return the seeds of a test that runs on each broker: by default, it runs on a real Kafka with the first alone."""
    first, *others = (seed if isinstance(seed, tuple) else (seed,) for seed in seeds)
    return [pytest.param(*first), *(pytest.param(*seed, marks=pytest.mark.one_broker) for seed in others)]


@pytest.fixture(scope="session", params=["embedded", pytest.param("kafka", marks=ON_KAFKA)])
def broker(request: pytest.FixtureRequest) -> RunningBroker:
    """A broker; a test that asks for it runs on the embedded one and on a real Kafka."""
    kind: str = request.param
    fixture = "embedded_broker" if kind == "embedded" else "real_kafka"
    running: BrokerProcess | RealKafka = request.getfixturevalue(fixture)
    return RunningBroker(kind, running.bootstrap_servers)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave Kafka out of tests that show nothing of brokers, unless PENSTOCK_BROKERS is `all`."""
    if os.environ.get("PENSTOCK_BROKERS") == "all":
        return
    left_out = [item for item in items if item.get_closest_marker("one_broker") and _is_on_kafka(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _is_on_kafka(item: pytest.Item) -> bool:
    """Return whether a test that runs on each broker runs on a real Kafka here; only parametrised tests have a
    callspec."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.params.get("broker") == "kafka"


_numbers = itertools.count()


@pytest.fixture
def unique_name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """A function that makes a name for a topic or a group which no other test uses."""
    test: str = request.node.name.partition("[")[0]
    return lambda base: f"{test}-{next(_numbers)}-{base}"
