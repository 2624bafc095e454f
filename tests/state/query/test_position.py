"""Positions and bounds on them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.query.position import Position, PositionBound

OFFSETS = st.dictionaries(
    st.sampled_from("tu"), st.dictionaries(st.integers(0, 2), st.integers(0, 9), min_size=1), max_size=2
)
POSITIONS = OFFSETS.map(Position.from_map)


@given(OFFSETS, OFFSETS)
def test_a_merge_has_the_larger_offset_of_each_partition(one: dict[str, Any], other: dict[str, Any]) -> None:
    merged = Position.from_map(one).merge(Position.from_map(other))
    assert merged.topics == one.keys() | other.keys()
    for topic in merged.topics:
        wanted: dict[int, int] = {}
        for partition, offset in (*one.get(topic, {}).items(), *other.get(topic, {}).items()):
            wanted[partition] = max(offset, wanted.get(partition, offset))
        assert merged.partition_positions(topic) == wanted


@given(POSITIONS, POSITIONS)
def test_merges_do_not_depend_on_their_order_and_number(one: Position, other: Position) -> None:
    assert one.merge(other) == other.merge(one) == one.merge(other).merge(other)
    assert one.merge(None) == one.merge(Position.empty_position()) == one


def test_a_component_is_added_unless_the_position_is_larger() -> None:
    position = Position.empty_position().with_component("t", 0, 5)
    assert position.with_component("t", 0, 4) == position
    ahead = position.with_component("t", 0, 6).with_component("t", 1, 0).with_component("u", 0, 1)
    assert ahead == Position.from_map({"t": {0: 6, 1: 0}, "u": {0: 1}})
    assert position.partition_positions("t") == {0: 5}
    assert position.partition_positions("absent") == {}


def test_a_position_keeps_nothing_of_the_map_it_was_made_from() -> None:
    offsets = {"t": {0: 1}}
    position = Position.from_map(offsets)
    offsets["t"][0] = 2
    assert position == Position({"t": {0: 1}})
    assert str(position) == "Position{position={'t': {0: 1}}}"


@pytest.mark.parametrize(
    ("bound", "unbounded"),
    [
        (PositionBound.unbounded(), True),
        (PositionBound.at(Position.empty_position()), True),
        (PositionBound.at(Position.from_map({"t": {0: 0}})), False),
    ],
)
def test_an_empty_position_is_no_bound(bound: PositionBound, unbounded: bool) -> None:
    assert bound.is_unbounded() == bound.position.is_empty() == unbounded
    assert str(bound) == f"PositionBound{{position={bound.position}}}"
