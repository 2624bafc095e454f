"""The events of OpenLineage on each host: a run to its end, topics of a pattern, and stores."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("openlineage.client", reason="openlineage-python is not installed")

from penstock import Consumed, KafkaStreams, Materialized, Produced, Serdes, StreamsBuilder
from penstock.errors import StreamsError
from penstock.plan.topology import Topology
from tests.host.support import WITH_A_SESSION, InputRecord, Runner, wait_for
from tests.tools.openlineage.support import Event, Receiver, receiving

pytestmark = pytest.mark.one_broker

STRING = Serdes.string()


def counted(pattern: str, target: str, fails: bool = False) -> Topology:
    def check(value: str) -> str:
        if fails:
            raise ValueError("no such order")
        return value

    builder = StreamsBuilder()
    orders = builder.stream(re.compile(pattern), Consumed.with_(STRING, STRING)).map_values(check)
    counts = orders.group_by_key().count(Materialized.as_("counts"))
    counts.to_stream().to(target, Produced.with_(STRING, Serdes.long()))
    return builder.build()


def names(event: Event, side: str) -> list[str]:
    return [each["name"] for each in event[side]]


def config_of(runner: Runner, application: str, receiver: Receiver) -> Any:
    keys = {"default.key.serde": STRING, "default.value.serde": STRING, "penstock.openlineage.interval.ms": 1_000}
    return runner.config(application, {**keys, **receiver.config()})


@WITH_A_SESSION
@pytest.mark.partitions(2, 1)
def test_a_run_tells_its_topics_and_stores(
    runner: Runner, application: str, topics: tuple[str, str], unique_name: Callable[[str], str]
) -> None:
    source, target = topics
    runner.write(source, [InputRecord(b"k", b"v", 1_000, number) for number in range(2)])
    with receiving() as receiver:
        config = config_of(runner, application, receiver)
        with KafkaStreams(counted(f"{source}.*", target), config, **runner.options()):
            wait_for(lambda: receiver.events and names(receiver.events[-1], "inputs") == [source])
        assert receiver.states()[0] == "START"
        assert receiver.states()[-1] == "COMPLETE"
        running = next(event for event in receiver.events if names(event, "inputs"))
        assert names(running, "outputs") == [target, "counts"]
        assert running["job"]["name"] == application
        [topic] = running["inputs"]
        assert topic["namespace"] == f"kafka://{runner.bootstrap_servers}"


@WITH_A_SESSION
@pytest.mark.partitions(1, 1)
def test_an_error_in_a_task_is_a_failed_run(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    source, target = topics
    runner.write(source, [InputRecord(b"k", b"v", 1_000)])
    with receiving() as receiver:
        config = config_of(runner, application, receiver)
        with pytest.raises(StreamsError, match="no such order"):
            KafkaStreams(counted(source, target, fails=True), config, **runner.options()).run_to_end()
        assert receiver.states()[-1] == "FAIL"
        facet = receiver.events[-1]["run"]["facets"]["errorMessage"]
        assert "no such order" in facet["message"] + facet["stackTrace"]
