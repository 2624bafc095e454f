"""The join of two tables by key, against the join of what the tables end as."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import KTable, Materialized, StreamsBuilder
from penstock.processor.joiner import JoinType
from penstock.processor.table import StoreValueGetterSupplier
from penstock.processor.table_join import JoinedValueGetterSupplier
from penstock.record import ValueAndTimestamp
from penstock.state.stores import Stores
from penstock.testing import MockProcessorContext
from tests.support.joins import LEFT, OUT, RIGHT, STRING, Row, final, last, pair, run, updates


@given(updates(), st.sampled_from(["join", "left_join", "outer_join"]), st.sampled_from([None, "store"]))
@settings(max_examples=60, deadline=None)
def test_the_join_of_two_tables_ends_as_the_join_of_what_they_end_as(
    rows: list[Row], type: str, store: str | None
) -> None:
    def shape(builder: StreamsBuilder) -> None:
        materialized = None if store is None else Materialized.as_(store)
        left, right = builder.table(LEFT), builder.table(RIGHT)
        joined: KTable = getattr(left, type)(right, pair, materialized=materialized)
        joined.to_stream().to(OUT)

    left, right = final(rows, LEFT), final(rows, RIGHT)
    keys = {"join": left.keys() & right.keys(), "left_join": left.keys(), "outer_join": left.keys() | right.keys()}
    expected = {key: pair(left.get(key), right.get(key)) for key in keys[type]}
    assert last(run(shape, rows)) == expected


@pytest.mark.parametrize(
    ("type", "found"),
    [
        (JoinType.INNER, [("LR", 7), None, None, None]),
        (JoinType.LEFT, [("LR", 7), ("L-", 5), None, None]),
        (JoinType.OUTER, [("LR", 7), ("L-", 5), ("-R", 7), None]),
    ],
)
def test_a_result_without_a_store_is_computed_from_both_tables(type: JoinType, found: list[Any]) -> None:
    context = MockProcessorContext()
    for name in (LEFT, RIGHT):
        supplier = Stores.in_memory_key_value_store(name)
        context.add_state_store(Stores.timestamped_key_value_store_builder(supplier, STRING, STRING))
    for name, key, value, time in ((LEFT, "both", "L", 5), (LEFT, "left", "L", 5), (RIGHT, "both", "R", 7)):
        context.get_state_store(name).put(key, ValueAndTimestamp(value, time))
    context.get_state_store(RIGHT).put("right", ValueAndTimestamp("R", 7))
    supplier_of_both = JoinedValueGetterSupplier(
        StoreValueGetterSupplier(LEFT), StoreValueGetterSupplier(RIGHT), pair, type
    )
    getter = supplier_of_both.get()
    getter.init(context)
    assert [getter.get(key) for key in ("both", "left", "right", "absent")] == found
    assert supplier_of_both.store_names() == (LEFT, RIGHT)
    with pytest.raises(TypeError, match="has no versions"):
        getter.get_as_of("both", 5)


def test_the_result_has_the_later_timestamp_of_both_sides() -> None:
    def shape(builder: StreamsBuilder) -> None:
        builder.table(LEFT).join(builder.table(RIGHT), pair).to_stream().to(OUT)

    rows: list[Row] = [(LEFT, "a", "1", 9), (RIGHT, "a", "2", 5), (RIGHT, "a", "3", 12), (LEFT, "a", None, 6)]
    assert run(shape, rows) == [("a", "12", 9), ("a", "13", 12), ("a", None, 12)]
