"""The exporters in memory, for all tests of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.telemetry import Telemetry, recorded


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    """What OpenTelemetry receives in the test."""
    yield from recorded()
