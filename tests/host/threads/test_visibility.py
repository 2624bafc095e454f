"""The changes that queries see, by level, guarantee and configuration."""

from __future__ import annotations

import pytest

from penstock.config import StreamsConfig
from penstock.config.isolation_level import IsolationLevel
from penstock.host.threads.visibility import Visibility, visibility


@pytest.mark.parametrize(
    ("guarantee", "transactional", "expected"),
    [
        ("at_least_once", False, Visibility.FLUSHED),
        ("at_least_once", True, Visibility.COMMITTED),
        ("exactly_once_v2", False, Visibility.COMMITTED),
        ("exactly_once_v2", True, Visibility.COMMITTED),
    ],
)
def test_what_is_not_committed_is_hidden_where_stores_are_transactional(
    guarantee: str, transactional: bool, expected: Visibility
) -> None:
    values = {"processing.guarantee": guarantee, "enable.transactional.statestores": transactional}
    config = StreamsConfig(values, environment={})
    assert visibility(IsolationLevel.READ_COMMITTED, config) is expected
    assert visibility(IsolationLevel.READ_UNCOMMITTED, config) is Visibility.WRITTEN
