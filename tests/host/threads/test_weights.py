"""Topologies that share the processing time of one process by their weights, on the threads host."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.host.api import State
from penstock.host.supervision.turns import ApplicationTurns, Turns
from penstock.host.threads.host import ThreadsHost
from penstock.named_topologies import KafkaStreamsNamedTopologyWrapper
from penstock.plan.topology import built_topology
from penstock.serdes import Serdes
from tests.host.threads.support import AloneMembership, Listening
from tests.support.brokers import RunningBroker
from tests.support.plain_producer import PlainProducer
from tests.support.waiting import until

pytestmark = pytest.mark.one_broker

PARTITIONS, RECORDS = 40, 30
RECORD_NS = 10_000  # so little that no wait for a topology ends by this clock, which goes on faster than a busy machine

WHERE = pytest.mark.parametrize("work", [1, 2], ids=["threads", "workers"], indirect=True)


def recording(path: Path, name: str) -> Callable[[str, str], None]:
    """Return a function that writes the first letter of `name` for each record; several processes may call it."""

    def record(key: str, value: str) -> None:
        with path.open("ab") as file:
            file.write(name[:1].encode())

    return record


class Work:
    """Topologies that read a topic of their own, and a clock that goes on by the records that they process alone.
    workers: of each topology, which have one core together; 1 for a thread."""

    def __init__(self, broker: RunningBroker, directory: Path, unique_name: Callable[[str], str], workers: int) -> None:
        self.settings: dict[str, Any] = {
            "application.id": unique_name("app"),
            "bootstrap.servers": broker.bootstrap_servers,
            "state.dir": str(directory / "state"),
            "default.key.serde": Serdes.string(),
            "default.value.serde": Serdes.string(),
            "commit.interval.ms": 600_000,  # what commits flush is measured by the clock of the machine
            "session.timeout.ms": 60_000,  # nobody leaves because a machine is busy
            "penstock.host": "threads",
            "num.stream.threads": workers,
        }
        self.workers = workers
        self._processed = directory / "processed"
        self._processed.touch()
        in_threads, in_workers = (Turns(lambda: self._processed.stat().st_size * RECORD_NS) for _ in range(2))
        self.turns = ApplicationTurns(in_threads, in_workers)
        self.taken = in_threads if workers == 1 else in_workers
        self.topics = {name: unique_name(name) for name in ("heavy", "light")}
        self._admin = ConfluentAdmin(StreamsConfig(self.settings))
        self._admin.create_topics([NewTopic(topic, PARTITIONS) for topic in self.topics.values()])

    def process(self, builder: StreamsBuilder, name: str) -> None:
        builder.stream(self.topics[name]).foreach(recording(self._processed, name))

    def processed(self) -> str:
        """Return the first letter of its topology for each record that was processed, in order."""
        return self._processed.read_text()

    def number_of(self, name: str) -> int:
        """Return how many records of a topology were processed."""
        return self.processed().count(name[:1])

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
        records: int = host.statistics().consumed.get(self.topics[name], (0, 0))[0]
        return records

    def write(self, name: str, records: int = RECORDS) -> None:
        producer = PlainProducer(StreamsConfig(self.settings))
        for number in range(records * PARTITIONS):
            producer.send(self.topics[name], b"key", b"value", number % PARTITIONS)
        producer.close()


@pytest.fixture
def work(
    broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str], request: pytest.FixtureRequest
) -> Work:
    return Work(broker, tmp_path, unique_name, getattr(request, "param", 1))


@WHERE
def test_records_are_processed_in_proportion_to_the_weights(work: Work) -> None:
    for name in work.topics:
        work.write(name)
    hosts = {"heavy": work.host("heavy", 3), "light": work.host("light", None)}
    held = work.taken.join(1)
    with ExitStack() as stack:
        for host in hosts.values():
            stack.callback(host.close, 60_000)
            host.pause()
            host.start(Listening())
        assert until(lambda: all(work.arrived(host, name) == PARTITIONS * RECORDS for name, host in hosts.items()))
        with held.of_runner().taken():
            for host in hosts.values():
                host.resume()
            assert until(lambda: work.taken.waiting() == 2 * work.workers)
        held.leave()
        assert until(lambda: work.number_of("heavy") == PARTITIONS * RECORDS)
        assert until(lambda: work.number_of("light") == PARTITIONS * RECORDS)
    light = work.processed().rstrip("l").count("l")  # until the heavy one was through
    assert light == pytest.approx(PARTITIONS * RECORDS / 3, rel=0.1)


@WHERE
def test_a_topology_without_records_takes_nothing_from_others(work: Work) -> None:
    with ExitStack() as stack:
        for name, weight in (("heavy", 100), ("light", 1)):
            host = work.host(name, weight)
            stack.callback(host.close, 60_000)
            host.start(Listening())
        work.write("heavy", 1)
        assert until(lambda: work.number_of("heavy") == PARTITIONS)
        # The clock stands still while nothing is processed: a wait for the heavy one would not end.
        work.write("light")
        assert until(lambda: work.number_of("light") == PARTITIONS * RECORDS)


def test_a_paused_and_a_closed_topology_take_nothing_from_others(work: Work) -> None:
    work.write("heavy")
    heavy, light = work.host("heavy", 100), work.host("light", 1)
    with ExitStack() as stack:
        for host in (heavy, light):
            stack.callback(host.close, 60_000)
            host.start(Listening())
        assert until(lambda: work.number_of("heavy"))
        heavy.pause()
        work.write("light")
        assert until(lambda: work.number_of("light") == PARTITIONS * RECORDS)
        heavy.resume()
        assert until(lambda: work.number_of("heavy") == PARTITIONS * RECORDS)
        assert heavy.close(60_000)
        work.write("light")
        assert until(lambda: work.number_of("light") == 2 * PARTITIONS * RECORDS)


def test_named_topologies_take_their_weights(work: Work) -> None:
    with KafkaStreamsNamedTopologyWrapper(work.settings) as streams:
        for name, weight in (("heavy", 3), ("light", 1)):
            work.write(name)
            builder = streams.new_named_topology_builder(name, {"penstock.topology.weight": weight})
            work.process(builder, name)
            streams.add_named_topology(builder.build()).all().result()
        assert until(lambda: len(work.processed()) == 2 * PARTITIONS * RECORDS)
        assert streams.state() is State.RUNNING
