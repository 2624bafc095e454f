"""Each example runs on the threads host, with no other key than the address of the broker, and gives the results of the
test driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher
from penstock.config import StreamsConfig
from penstock.record import TopicPartition
from penstock.streams import KafkaStreams
from penstock_broker.process import BrokerProcess
from tests.examples.inputs import EACH_RESULT, INPUTS, PARTITIONS, example, on_the_test_driver, partition_of, seen
from tests.support.plain_producer import PlainProducer

SAMPLE = {"flights_with_planes.py", "wind_at_departure.py"}
"""What runs each time: a foreign-key join through several sub-topologies; a global table and final windows."""


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[str]:
    """The address of a broker of the test's own: examples share names of topics."""
    with BrokerProcess(tmp_path / "broker", auto_create_topics=False) as broker:
        yield broker.bootstrap_servers


@pytest.mark.one_broker
@pytest.mark.parametrize(
    "name", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.slow) for name in INPUTS]
)
def test_an_example_runs_on_threads(
    name: str, own_broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # of the store in a file
    program, piped = example(name), INPUTS[name]
    expected = on_the_test_driver(program, piped)
    here = {"bootstrap.servers": own_broker, "state.dir": str(tmp_path / "state"), "penstock.host": "threads"}
    config = StreamsConfig({**program.config, **EACH_RESULT, **here})
    topics, outputs = program.topics()
    admin = ConfluentAdmin(config)
    admin.create_topics(
        [NewTopic(topic, PARTITIONS) for topic in {*topics, *expected, *(each.topic for each in piped)}]
    )
    producer = PlainProducer(config)
    for topic, key, value, timestamp in sorted(piped, key=lambda each: each.timestamp):
        producer.send(topic, key, value, partition_of(key), timestamp)
    producer.close()
    sources = {topic for each in program.topology.build("x").subtopologies for topic in each.source_topics}
    for _ in range(2 if sources & outputs else 1):  # a run reads to the ends that topics have when it starts
        KafkaStreams(program.topology, config).run_to_end(240_000)
    for topic in outputs:
        assert read(config, admin, topic) == expected.get(topic, Counter()), topic
    admin.close()


def read(config: StreamsConfig, admin: ConfluentAdmin, topic: str) -> Counter[tuple[Any, ...]]:
    """Return what a topic has, as `on_the_test_driver` does."""
    fetcher = ConfluentFetcher(config)
    ends = admin.end_offsets([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    batches = [each for place, end in ends.items() if end for each in fetcher.fetch(place, 0, end, read_committed=True)]
    fetcher.close()
    rows = (row for each in batches for row in zip(each.keys, each.values, each.timestamps.tolist(), strict=True))
    return seen(topic, rows)
