"""Fixtures for tests against a broker: `kafka_broker` per session, `new_kafka_broker` per test.

pytest loads this module when the package is installed; no broker is started until a test requests a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock_broker


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[penstock_broker.EmbeddedBroker]:
    """A running broker shared by the session; clients connect to its `bootstrap_servers`."""
    with penstock_broker.EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def new_kafka_broker() -> Iterator[penstock_broker.EmbeddedBroker]:
    """A running broker without topics for one test, which may stop it or inject faults."""
    with penstock_broker.EmbeddedBroker() as broker:
        yield broker
