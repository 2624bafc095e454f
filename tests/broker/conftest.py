"""What the tests of the embedded broker share."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_broker.common.clock import MockClock
from penstock_broker.config import BrokerConfig
from penstock_broker.groups.coordinator import GroupCoordinator
from penstock_broker.metadata_store import MetadataStore
from penstock_broker.process import BrokerProcess
from penstock_broker.producer_ids import ProducerIds
from penstock_broker.quotas import ClientQuotas
from penstock_broker.state import BrokerState
from penstock_broker.topics import TopicRegistry
from penstock_broker.transaction_log import TransactionLog
from penstock_broker.transactions import TransactionCoordinator
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import METADATA
from tests.support.group_requests import await_coordinator
from tests.support.manual_timers import ManualTimers
from tests.support.protocol_client import ProtocolClient
from tests.support.topic_requests import create
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what a disk needs for a loss of power: brokers in the process of the tests do not go through one."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)


@pytest.fixture
def client(embedded_broker: BrokerProcess) -> Iterator[ProtocolClient]:
    """A connection to the embedded broker; tests that also run on a real Kafka have one of their own."""
    with ProtocolClient(embedded_broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def topic(client: ProtocolClient) -> str:
    """A topic of two partitions."""
    name = f"topic-{uuid.uuid4()}"
    assert create(client, name, 2)["error_code"] == ErrorCode.none
    # A real Kafka hears of a topic a moment after its creation.
    wanted = {"topics": [{"name": name}]}
    assert until(lambda: client.call(METADATA, 12, wanted)["topics"][0]["error_code"] == ErrorCode.none)
    return name


@pytest.fixture
def group(client: ProtocolClient) -> str:
    """A group whose coordinator answers."""
    name = f"group-{uuid.uuid4()}"
    for wanted in (name, "unknown"):
        await_coordinator(client, wanted)
    return name


@pytest.fixture
def state(tmp_path: Path) -> Iterator[BrokerState]:
    """A broker without sockets, whose time does not pass."""
    config, clock = BrokerConfig(data_dir=tmp_path), MockClock(1_700_000_000_000)
    store = MetadataStore(tmp_path / "metadata.sqlite")
    topics = TopicRegistry(config, store, clock)
    groups = GroupCoordinator(config, topics, ManualTimers(clock), clock)
    ids = ProducerIds(store, lambda: -1)
    log = TransactionLog(topics)
    transactions = TransactionCoordinator(config, log, topics, groups.offsets, ids.draw, clock)
    quotas = ClientQuotas(config, store)
    yield BrokerState(config, store, ids, topics, groups, transactions, quotas, "127.0.0.1", 9092, store.cluster_id)
    topics.close()
    store.close()
