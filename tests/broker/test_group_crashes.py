"""Groups whose broker is killed: members go on, no record is missed, and no committed offset goes back."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock_broker.process import BrokerProcess
from tests.broker.test_clients import create
from tests.broker.test_group_clients import PARTITIONS, WAIT, Group
from tests.support.brokers import RunningBroker
from tests.support.ports import free_port
from tests.support.waiting import until

SEEDS = range(20) if os.environ.get("PENSTOCK_CRASH") == "all" else range(1)
KILLS = 5
FAST = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 100, "retry_backoff_ms": 20}


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", port=free_port()) as started:
        yield started


def committed(servers: str, group: str) -> list[int]:
    client = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    found = client.committed([TopicPartition("topic", number) for number in range(PARTITIONS)], timeout=WAIT)
    client.close()
    return [max(each.offset, 0) for each in found]


@pytest.mark.crash
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_lives_through_kills_of_its_broker(process: BrokerProcess, protocol: str, seed: int) -> None:
    choice = random.Random(seed)
    servers = process.bootstrap_servers
    create(AdminClient({"bootstrap.servers": servers, "log_level": 0}), "topic", PARTITIONS)
    times = {} if protocol == "consumer" else {"heartbeat_interval_ms": 300}
    group = Group(RunningBroker("embedded", servers), "group", "topic")
    settings = {"group_protocol": protocol, **times, **FAST}
    members = [group.start(name, **settings) for name in ("a", "b")]
    group.wait_for_shares(3, 3)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 1, "log_level": 0})
    assignments = [member.assignments for member in members]
    sent = 0
    before = [0] * PARTITIONS
    for _ in range(KILLS):
        killer = threading.Timer(choice.uniform(0.05, 0.5), process.kill)
        killer.start()
        while killer.is_alive():
            producer.produce("topic", b"%d" % sent, partition=sent % PARTITIONS)
            sent += 1
            producer.poll(0.002)
        killer.join()
        process.start()
        after = committed(servers, "group")
        assert all(new >= old for new, old in zip(after, before, strict=True))
        before = after
    assert producer.flush(WAIT) == 0
    expected = {b"%d" % number for number in range(sent)}
    assert until(lambda: {value for member in members for value in member.values} == expected)
    assert group.owners.errors == []
    assert [group.owners.count(member.name) for member in members] == [3, 3]
    # The sessions outlast the kills, so nobody was assigned anything again.
    assert [member.assignments for member in members] == assignments
    for member in members:
        member.stop()
    # A commit that failed with the broker may be missing; what was read after it was committed.
    ends = [len(range(number, sent, PARTITIONS)) for number in range(PARTITIONS)]
    assert all(position <= end for position, end in zip(committed(servers, "group"), ends, strict=True))
