"""Which nodes send old values and which have a store, in the order in which a program asks."""

from __future__ import annotations

import pytest

from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Materialized
from penstock.dsl.suppressed import BufferConfig, Suppressed
from penstock.dsl.table import KTable
from penstock.errors import TopologyError
from penstock.plan.lower.table_facts import TableFacts
from penstock.state.stores import Stores


def facts(builder: StreamsBuilder) -> TableFacts:
    return TableFacts(builder._graph.plan())


def keep(table: KTable) -> KTable:
    return table.filter(lambda key, value: True)


def test_a_filter_sends_old_values_only_if_its_parent_had_a_store_when_it_was_made() -> None:
    builder = StreamsBuilder()
    table = builder.table("in")
    before = keep(table)
    table.group_by(lambda k, v: (v, v)).count()
    after = keep(table)
    found = facts(builder)
    assert found.store(table._id) is not None
    assert found.sends_old_values(table._id)
    assert not found.sends_old_values(before._id)
    assert found.sends_old_values(after._id)


def test_grouping_asks_for_old_values_up_to_the_nearest_store() -> None:
    builder = StreamsBuilder()
    table = builder.table("in")
    stored = table.map_values(str.upper, materialized=Materialized.as_("s"))
    mapped = stored.map_values(len)
    mapped.group_by(lambda k, v: (v, v)).count()
    found = facts(builder)
    assert found.sends_old_values(mapped._id)
    assert found.sends_old_values(stored._id)
    assert not found.sends_old_values(table._id)
    assert found.store(table._id) is None


def test_suppress_asks_for_old_values() -> None:
    builder = StreamsBuilder()
    table = builder.table("in")
    suppressed = table.suppress(Suppressed.until_time_limit(5, BufferConfig.unbounded()).with_name("s"))
    found = facts(builder)
    assert found.sends_old_values(table._id)
    assert found.value_getter(suppressed._id).store_names() == ("s-store", "in-STATE-STORE-0000000000")


def test_a_table_without_a_store_is_read_through_those_above() -> None:
    builder = StreamsBuilder()
    table = builder.table("in", materialized=Materialized.as_("source"))
    mapped = keep(table).map_values(str.upper)
    stored = keep(mapped.filter(lambda k, v: True, materialized=Materialized.as_("filtered")))
    found = facts(builder)
    assert found.value_getter(mapped._id).store_names() == ("source",)
    assert found.value_getter(stored._id).store_names() == ("filtered",)


def test_versions_are_inherited_until_a_table_has_its_own_options() -> None:
    builder = StreamsBuilder()
    versioned = Materialized.as_(Stores.persistent_versioned_key_value_store("v", 1000))
    table = builder.table("in", materialized=versioned)
    inherited = keep(table).map_values(str.upper)
    plain = inherited.map_values(str.lower, materialized=Materialized.with_())
    counted = table.group_by(lambda k, v: (v, v)).count()
    found = facts(builder)
    assert [found.is_versioned(t._id) for t in (table, inherited, plain, counted)] == [True, True, False, False]


def test_a_stream_is_no_table() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    with pytest.raises(TopologyError, match="KSTREAM-SOURCE-0000000000 is no table"):
        facts(builder).store(stream._id)
