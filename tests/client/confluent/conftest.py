"""Clients of a broker, and a topic of each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher
from penstock.config import StreamsConfig
from tests.client.confluent.places import Place, place_on
from tests.support.brokers import RunningBroker

NAMES = Callable[[str], str]


@pytest.fixture
def config(broker: RunningBroker) -> StreamsConfig:
    return StreamsConfig({"application.id": "clients", "bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def admin(config: StreamsConfig) -> Iterator[ConfluentAdmin]:
    admin = ConfluentAdmin(config)
    yield admin
    admin.close()


@pytest.fixture
def topic(admin: ConfluentAdmin, unique_name: NAMES) -> str:
    name = unique_name("topic")
    admin.create_topics([NewTopic(name, 2)])
    return name


@pytest.fixture
def fetcher(config: StreamsConfig) -> Iterator[ConfluentFetcher]:
    fetcher = ConfluentFetcher(config, timeout_ms=20_000)
    yield fetcher
    fetcher.close()


@pytest.fixture
def place(broker: RunningBroker, unique_name: Callable[[str], str]) -> Iterator[Place]:
    with place_on(broker.bootstrap_servers, unique_name) as made:
        yield made
