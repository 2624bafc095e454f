"""The receiver of events, for all tests of OpenLineage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tools.openlineage.support import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """An HTTP server that keeps the events it receives."""
    with receiving() as found:
        yield found
