"""Topologies that share the processing time of one process by their weights, on the threads host."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentProducer
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.host.api import State
from penstock.host.threads.driver import ThreadsHost
from penstock.host.turns import Turns
from penstock.named_topologies import KafkaStreamsNamedTopologyWrapper
from penstock.plan.topology import built_topology
from penstock.serdes import Serdes
from tests.host.threads.support import AloneMembership, Listening
from tests.support.brokers import RunningBroker
from tests.support.waiting import until

pytestmark = pytest.mark.one_broker

PARTITIONS, RECORDS = 40, 30
RECORD_NS = 10_000


class Work:
    """Topologies that read a topic of their own, and a clock that goes on by the records that they process alone."""

    def __init__(self, broker: RunningBroker, directory: Path, unique_name: Callable[[str], str]) -> None:
        self.settings: dict[str, Any] = {
            "application.id": unique_name("app"),
            "bootstrap.servers": broker.bootstrap_servers,
            "state.dir": str(directory / "state"),
            "default.key.serde": Serdes.string(),
            "default.value.serde": Serdes.string(),
            "session.timeout.ms": 60_000,  # nobody leaves because a machine is busy
            "penstock.host": "threads",
        }
        self.now = 0
        self.turns = Turns(lambda: self.now)
        self.processed: list[str] = []
        self.topics = {name: unique_name(name) for name in ("heavy", "light")}
        self._admin = ConfluentAdmin(StreamsConfig(self.settings))
        self._admin.create_topics([NewTopic(topic, PARTITIONS) for topic in self.topics.values()])

    def process(self, builder: StreamsBuilder, name: str) -> None:
        def record(key: str, value: str) -> None:
            self.now += RECORD_NS
            self.processed.append(name)

        builder.stream(self.topics[name]).foreach(record)

    def host(self, name: str, weight: int | None) -> ThreadsHost:
        builder = StreamsBuilder()
        self.process(builder, name)
        app = f"{self.settings['application.id']}-{name}"
        given = {} if weight is None else {"penstock.topology.weight": weight}
        config = StreamsConfig({**self.settings, "application.id": app, **given})
        built = built_topology(builder.build(), app)
        return ThreadsHost(built, config, make_membership=AloneMembership, turns=self.turns)

    def arrived(self, host: ThreadsHost, name: str) -> int:
        """Return how many records of a topology wait for its tasks, or were processed."""
        records: int = host.statistics()["consumed"].get(self.topics[name], (0, 0))[0]
        return records

    def write(self, name: str, records: int = RECORDS) -> None:
        producer = ConfluentProducer(StreamsConfig(self.settings))
        for number in range(records * PARTITIONS):
            producer.send(self.topics[name], b"key", b"value", number % PARTITIONS)
        producer.close()


@pytest.fixture
def work(broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str]) -> Work:
    return Work(broker, tmp_path, unique_name)


def test_records_are_processed_in_proportion_to_the_weights(work: Work) -> None:
    for name in work.topics:
        work.write(name)
    hosts = {"heavy": work.host("heavy", 3), "light": work.host("light", None)}
    held = work.turns.join(1)
    with ExitStack() as stack:
        for host in hosts.values():
            stack.callback(host.close, 60_000)
            host.pause()
            host.start(Listening())
        assert until(lambda: all(work.arrived(host, name) == PARTITIONS * RECORDS for name, host in hosts.items()))
        with held.taken():
            for host in hosts.values():
                host.resume()
            assert until(lambda: work.turns.waiting() == 2)
        held.leave()
        assert until(lambda: work.processed.count("heavy") == PARTITIONS * RECORDS)
        assert until(lambda: work.processed.count("light") == PARTITIONS * RECORDS)
    until_heavy_was_through = work.processed[: len(work.processed) - work.processed[::-1].index("heavy")]
    light = until_heavy_was_through.count("light")
    assert light == pytest.approx(PARTITIONS * RECORDS / 3, rel=0.1)


def test_a_topology_without_records_takes_nothing_from_others(work: Work) -> None:
    with ExitStack() as stack:
        for name, weight in (("heavy", 100), ("light", 1)):
            host = work.host(name, weight)
            stack.callback(host.close, 60_000)
            host.start(Listening())
        work.write("heavy", 1)
        assert until(lambda: work.processed.count("heavy") == PARTITIONS)
        # The clock stands still while nothing is processed: a wait for the heavy one would not end.
        work.write("light")
        assert until(lambda: work.processed.count("light") == PARTITIONS * RECORDS)


def test_a_paused_and_a_closed_topology_take_nothing_from_others(work: Work) -> None:
    work.write("heavy")
    heavy, light = work.host("heavy", 100), work.host("light", 1)
    with ExitStack() as stack:
        for host in (heavy, light):
            stack.callback(host.close, 60_000)
            host.start(Listening())
        assert until(lambda: "heavy" in work.processed)
        heavy.pause()
        work.write("light")
        assert until(lambda: work.processed.count("light") == PARTITIONS * RECORDS)
        heavy.resume()
        assert until(lambda: work.processed.count("heavy") == PARTITIONS * RECORDS)
        assert heavy.close(60_000)
        work.write("light")
        assert until(lambda: work.processed.count("light") == 2 * PARTITIONS * RECORDS)


def test_named_topologies_take_their_weights(work: Work) -> None:
    with KafkaStreamsNamedTopologyWrapper(work.settings) as streams:
        for name, weight in (("heavy", 3), ("light", 1)):
            work.write(name)
            builder = streams.new_named_topology_builder(name, {"penstock.topology.weight": weight})
            work.process(builder, name)
            streams.add_named_topology(builder.build()).all().result()
        assert until(lambda: len(work.processed) == 2 * PARTITIONS * RECORDS)
        assert streams.state() is State.RUNNING


def test_worker_processes_take_no_turns_and_the_key_is_named(work: Work, caplog: pytest.LogCaptureFixture) -> None:
    work.settings["num.stream.threads"] = 2
    app = f"{work.settings['application.id']}-workers"
    builder = StreamsBuilder()
    builder.stream(work.topics["heavy"]).foreach(print)
    config = StreamsConfig({**work.settings, "application.id": app, "penstock.topology.weight": 2})
    host = ThreadsHost(built_topology(builder.build(), app), config, make_membership=AloneMembership, turns=work.turns)
    listening = Listening()
    with caplog.at_level(logging.WARNING):
        host.start(listening)
        try:
            assert listening.running.wait(120)
        finally:
            assert host.close(60_000)
    assert any("penstock.topology.weight is ignored" in message for message in caplog.messages)
