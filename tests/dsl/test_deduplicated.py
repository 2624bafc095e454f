"""The options of a deduplication: names, copies and settings that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Deduplicated, Serdes
from penstock.errors import TopologyError

TEXT, LONG, JSON = Serdes.string(), Serdes.long(), Serdes.json()


def test_two_serdes_are_of_keys_and_values_and_three_of_ids_too() -> None:
    assert Deduplicated.with_(TEXT, JSON) == Deduplicated(key_serde=TEXT, value_serde=JSON)
    assert Deduplicated.with_(TEXT, LONG, JSON) == Deduplicated(key_serde=TEXT, id_serde=LONG, value_serde=JSON)
    assert Deduplicated.with_(id_serde=LONG) == Deduplicated(id_serde=LONG)
    assert Deduplicated.with_() == Deduplicated()


@pytest.mark.parametrize("setting", ["name", "store_name", "key_serde", "id_serde", "value_serde"])
def test_each_setting_has_a_method_that_changes_only_it(setting: str) -> None:
    value: Any = LONG if setting.endswith("serde") else "n"
    changed = getattr(Deduplicated(), f"with_{setting}")(value)
    assert changed == Deduplicated(**{setting: value})


def test_the_name_is_that_of_the_node() -> None:
    assert Deduplicated.as_("once") == Deduplicated(name="once")


@pytest.mark.parametrize("make", [Deduplicated.as_, Deduplicated().with_store_name])
def test_a_name_that_is_not_legal_is_refused(make: Any) -> None:
    with pytest.raises(TopologyError, match="is illegal"):
        make("a b")


def test_what_is_no_serde_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Expected a Serde as id_serde of Deduplicated.with_.* call it"):
        Deduplicated(id_serde=Serdes.string)  # type: ignore[arg-type]  # the mistake that is tested
    with pytest.raises(TypeError, match="Expected key_serde, value_serde by position, got 4 arguments"):
        Deduplicated.with_(TEXT, TEXT, TEXT, TEXT)  # type: ignore[call-overload]  # the mistake that is tested
