"""The fixture of a broker's groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.groups.support import GroupBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[GroupBroker]:
    opened = GroupBroker(tmp_path)
    opened.create_topic("t")
    yield opened
    opened.close()
