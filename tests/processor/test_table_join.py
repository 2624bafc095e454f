"""The join of two tables by key, against the join of what the tables end as."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import KTable, Materialized, StreamsBuilder
from tests.support.joins import LEFT, OUT, RIGHT, Row, final, last, pair, run, updates


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
