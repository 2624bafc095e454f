"""Fixtures for tests against a broker: `kafka_broker`, one for the session, and `new_kafka_broker`, one for a test.

pytest loads this module when the package is installed; it starts nothing until a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock_broker.embedded_broker import EmbeddedBroker


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[EmbeddedBroker]:
    """A running broker that all tests of the session share; clients connect to its `bootstrap_servers`."""
    with _broker() as broker:
        yield broker


@pytest.fixture
def new_kafka_broker() -> Iterator[EmbeddedBroker]:
    """A running broker without topics, for one test, which may stop it or ask it for faults."""
    with _broker() as broker:
        yield broker


def _broker() -> EmbeddedBroker:
    from penstock_broker.embedded_broker import EmbeddedBroker  # noqa: PLC0415  # sessions without a broker pay nothing

    return EmbeddedBroker()
