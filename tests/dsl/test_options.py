"""The option objects: immutable, checked when they are made."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Consumed, Grouped, Materialized, Named, Produced
from penstock.errors import TopologyError
from penstock.serdes import Serdes
from penstock.state.stores import Stores
from tests.support.custom_stores import DictStoreSupplier
from tests.support.windows import grouped


@pytest.mark.parametrize("make", [Named.as_, Consumed.as_, Produced.as_, Grouped.as_, Materialized.as_])
def test_a_name_that_is_not_legal_is_refused(make: Any) -> None:
    with pytest.raises(TopologyError, match="is illegal"):
        make("a b")


def test_with_methods_return_copies() -> None:
    plain = Consumed.as_("a")
    changed = plain.with_name("b").with_key_serde(Serdes.string()).with_offset_reset_policy("latest")
    assert plain == Consumed(name="a")
    assert (changed.name, changed.offset_reset) == ("b", "latest")
    with pytest.raises(dataclasses.FrozenInstanceError):
        plain.name = "c"  # type: ignore[misc]  # the mistake that is tested


def test_values_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="expected one of earliest, latest"):
        Consumed.with_(offset_reset="newest")
    with pytest.raises(ValueError, match="expected one of in_memory, rocksdb"):
        Materialized.with_().with_store_type("disk")
    with pytest.raises(ValueError, match="Cannot set store type when store supplier is pre-configured"):
        Materialized.as_(Stores.lru_map("s", 3)).with_store_type("in_memory")


def test_the_store_of_a_table_has_the_options_of_materialized() -> None:
    string, long = Serdes.string(), Serdes.long()
    options = Materialized.as_("s").with_value_serde(long).with_caching_disabled()
    store = options.store_builder("s", string, Serdes.integer())
    assert (store.name, store.key_serde, store.value_serde) == ("s", string, long)
    assert (store.kind, store.caching, store.logging, store.in_memory) == ("timestamped_key_value", False, True, None)


def test_a_supplier_names_the_store_and_chooses_its_base() -> None:
    options = Materialized.as_(Stores.in_memory_key_value_store("s")).with_logging_enabled({"retention.ms": "1"})
    assert options.user_store_name == "s"
    store = options.store_builder("s", None, None)
    assert (store.in_memory, store.changelog_config) == (True, {"retention.ms": "1"})
    assert options.with_logging_disabled().store_builder("s", None, None).logging is False


def test_a_store_of_the_users_own_class_is_refused_as_that_of_a_table() -> None:
    with pytest.raises(TypeError, match=r"'own' of DictStoreSupplier: expected .*Your own store is for processors"):
        grouped(StreamsBuilder()).count(Materialized.as_(DictStoreSupplier("own")))
