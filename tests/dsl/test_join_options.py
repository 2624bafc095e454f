"""Joined, StreamJoined and TableJoined: names, copies and settings that are refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import Joined, Serdes, Stores, StreamJoined, TableJoined
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


@pytest.mark.parametrize("grace", [3000, timedelta(seconds=3)])
def test_a_grace_period_is_kept_in_ms(grace: Any) -> None:
    assert Joined.with_(grace_period_ms=grace).grace_period_ms == 3000
    assert Joined.as_("j").with_grace_period(grace).grace_period_ms == 3000
    assert Joined.as_("j").grace_period_ms is None


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        (Joined(), {"name": "n", "key_serde": Serdes.long(), "grace_period": 3}),
        (StreamJoined(), {"name": "n", "store_name": "s", "other_value_serde": Serdes.long()}),
        (TableJoined(), {"name": "n", "partitioner": max, "other_partitioner": min}),
        (
            StreamJoined(),
            {f"{side}_store_supplier": Stores.in_memory_window_store(side, 9, 9, True) for side in ("this", "other")},
        ),
    ],
)
def test_each_setting_has_a_method_that_changes_only_it(options: Any, changes: dict[str, Any]) -> None:
    for name, value in changes.items():
        changed = getattr(options, f"with_{name}")(value)
        field = "grace_period_ms" if name == "grace_period" else name
        assert {key: each for key, each in vars(changed).items() if each != vars(options)[key]} == {field: value}


@pytest.mark.parametrize("make", [Joined.with_, StreamJoined.with_])
def test_a_serde_that_is_not_called_is_refused(make: Any) -> None:
    with pytest.raises(TypeError, match=r"call it, Serdes.string\(\)"):
        make(value_serde=Serdes.string)
