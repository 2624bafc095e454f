"""The isolation levels, and the default level of a configuration."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config import StreamsConfig
from penstock.config.isolation_level import IsolationLevel, checked_level
from penstock.errors import ConfigError


def default_level(**values: Any) -> IsolationLevel:
    dotted = {key.replace("_", "."): value for key, value in values.items()}
    return StreamsConfig(dotted, environment={}).default_interactive_query_isolation_level()


def test_the_default_level_is_kafkas_unless_the_guarantee_is_exactly_once() -> None:
    assert default_level() is IsolationLevel[StreamsConfig.DEFAULT_INTERACTIVE_QUERY_ISOLATION_LEVEL_DEFAULT]
    assert default_level(processing_guarantee="at_least_once") is IsolationLevel.READ_UNCOMMITTED
    assert default_level(processing_guarantee="exactly_once_v2") is IsolationLevel.READ_COMMITTED


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_given_level_decides(guarantee: str) -> None:
    for level in IsolationLevel:
        for text in (level.value, level.value.lower()):
            given = {"default.interactive.query.isolation.level": text, "processing.guarantee": guarantee}
            assert StreamsConfig(given, environment={}).default_interactive_query_isolation_level() is level
    with pytest.raises(ConfigError, match="READ_UNCOMMITTED, READ_COMMITTED"):
        StreamsConfig({"default.interactive.query.isolation.level": "SERIALIZABLE"}, environment={})


@pytest.mark.parametrize("wrong", ["READ_COMMITTED", None, True])
def test_only_a_level_is_one(wrong: Any) -> None:
    assert checked_level(IsolationLevel.READ_COMMITTED) is IsolationLevel.READ_COMMITTED
    with pytest.raises(TypeError, match="Expected an IsolationLevel, got"):
        checked_level(wrong)
