"""Fixtures of several tests of stores."""

from __future__ import annotations

import pytest

from penstock.state.key_value_store import TypedKeyValueStore
from tests.support.stores import build, text_store


@pytest.fixture(params=["memory", "memory-cached", "persistent", "persistent-cached"])
def store(request: pytest.FixtureRequest) -> TypedKeyValueStore:
    return build(text_store("memory" in request.param, "cached" in request.param))
