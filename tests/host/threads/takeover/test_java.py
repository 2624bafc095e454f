"""An application goes from Kafka Streams in Java to the threads host, to Spark and back, on a real Kafka, with all its
state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import savepoints
from penstock.errors import KafkaError
from penstock.host.threads.takeover import plan_takeover
from penstock.plan.topology import built_topology
from tests.host.spark.inline import InlineQuery
from tests.host.threads.support import Listening
from tests.host.threads.takeover import twin
from tests.host.threads.takeover.running import Application, JavaTwin, make_inputs, now_ms, split, write
from tests.support.brokers import ON_KAFKA
from tests.support.kafka import RealKafka
from tests.support.waiting import WAIT_SECONDS, until

pytestmark = [*ON_KAFKA]

LOSING = "sales"
"""Kafka Streams 4.3.0 loses the order of time in the buffer of a join with a versioned table when it restores it."""


@pytest.fixture
def java(real_kafka: RealKafka) -> Iterator[JavaTwin]:
    with JavaTwin() as started:
        yield started


def _refused(place: Application) -> KafkaError:
    """Return the error with which an instance ends."""
    host, listening = place.host(), Listening()
    host.start(listening)
    try:
        assert listening.ended.wait(WAIT_SECONDS)
    finally:
        assert host.close(60_000)
    assert isinstance(listening.error, KafkaError)
    return listening.error


def test_an_application_goes_from_java_and_back(
    real_kafka: RealKafka, java: JavaTwin, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    servers, settings = real_kafka.bootstrap_servers, twin.settings("exactly_once_v2", "headers")
    # Java starts behind a third and two thirds, where no record is late for a clock that Kafka Streams does not keep.
    sixths = split(twin.records(3, now_ms()), 6)
    parts = [sixths[0] + sixths[1], sixths[2], sixths[3], sixths[4] + sixths[5]]
    inputs = unique_name("in-")
    make_inputs(servers, inputs)
    place = Application(servers, unique_name("app"), inputs, tmp_path, settings)
    built = built_topology(twin.topology(inputs, place.name), place.name)
    write(servers, inputs, parts[0])
    java.start(place, tmp_path / "before")
    assert until(place.is_done)
    assert "has members of another program" in str(_refused(place))
    [obstacle] = plan_takeover(built, place.config).obstacles
    assert f"The group {place.name} has 1 member" in obstacle
    java.close(place)

    write(servers, inputs, parts[1])
    plan = plan_takeover(built, place.config)
    assert (plan.obstacles, plan.warnings) == ((), ())
    assert {store.name for store in plan.stores} >= {"counts", "sessions", "held-store", "prices", "latest"}
    place.run()

    topology, saved = twin.topology(inputs, place.name), str(tmp_path / "saved")
    savepoints.import_from_kafka(topology, place.config)
    write(servers, inputs, parts[2])
    query = InlineQuery(topology, place.config, place.admin)
    query.run_to_end()
    query.close()
    before, meanwhile, on_spark, behind = twin.expected(parts, settings)
    assert place.outputs() == twin.outputs([*before, *meanwhile, *on_spark])
    savepoints.take(place.config, saved)
    assert savepoints.export_to_kafka(saved, topology, place.config) > 0

    write(servers, inputs, parts[3])
    java.start(place, tmp_path / "before")  # where it has a copy of its stores, of an earlier time
    assert until(place.is_done)
    java.close(place)
    found, expected = place.outputs(), twin.outputs([*before, *meanwhile, *on_spark, *behind])
    for name in twin.OUTPUTS:
        if name != LOSING:
            assert found[name] == expected[name], name
