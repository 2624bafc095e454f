"""Fixtures for tests against a broker: `kafka_broker` per session, `new_kafka_broker` per test.

pytest loads this module when the package is installed; no broker is started until a test requests a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock_broker.embedded_broker import EmbeddedBroker


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[EmbeddedBroker]:
    """A running broker shared by the session; clients connect to its `bootstrap_servers`."""
    with _broker() as broker:
        yield broker


@pytest.fixture
def new_kafka_broker() -> Iterator[EmbeddedBroker]:
    """A running broker without topics for one test, which may stop it or inject faults."""
    with _broker() as broker:
        yield broker


def _broker() -> EmbeddedBroker:
    from penstock_broker.embedded_broker import EmbeddedBroker  # noqa: PLC0415  # sessions without a broker pay nothing

    return EmbeddedBroker()
