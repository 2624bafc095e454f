"""Joined, StreamJoined and TableJoined: names, copies and settings that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Joined, Serdes, StreamJoined, TableJoined
from penstock.errors import TopologyError


@pytest.mark.parametrize("make", [Joined.as_, StreamJoined.as_, TableJoined.as_])
def test_a_name_that_is_not_legal_is_refused(make: Any) -> None:
    with pytest.raises(TopologyError, match="is illegal"):
        make("a b")


def test_with_methods_return_copies() -> None:
    plain = Joined.as_("a")
    serde = Serdes.string()
    changed = plain.with_name("b").with_key_serde(serde).with_value_serde(serde).with_other_value_serde(serde)
    assert plain == Joined(name="a")
    assert changed.with_grace_period(3) == Joined(
        name="b", key_serde=serde, value_serde=serde, other_value_serde=serde, grace_period_ms=3
    )
    streams = StreamJoined.as_("s").with_name("n").with_store_type("in_memory").with_logging_enabled({"a": "b"})
    assert streams == StreamJoined(store_name="s", name="n", store_type="in_memory", changelog_config={"a": "b"})
    assert streams.with_logging_disabled().changelog_config == {}
    with pytest.raises(ValueError, match="expected one of in_memory, rocksdb"):
        streams.with_store_type("disk")
