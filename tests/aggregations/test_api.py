"""What all ready aggregations have in common."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import aggregations
from penstock.aggregations import Aggregation
from penstock.serdes import DoubleSerde, LongSerde, Serde, Serdes
from tests.support.aggregations import result_of, state_of, store_serde, stored_state_of

ALL: dict[str, Aggregation[Any, Any]] = {
    "count": aggregations.count(),
    "sum": aggregations.sum(),
    "mean": aggregations.mean(),
    "min": aggregations.min(),
    "max": aggregations.max(),
    "first": aggregations.first(),
    "last": aggregations.last(),
    "collect": aggregations.collect(limit=5),
    "top": aggregations.top(3),
    "approx_distinct": aggregations.approx_distinct(),
    "quantiles": aggregations.quantiles([0.1, 0.5, 1]),
    "combined": aggregations.combined(total=aggregations.sum(), last=aggregations.last(), of=aggregations.collect()),
}
SERDES: dict[str, tuple[Serde, st.SearchStrategy[Any]]] = {
    "long": (LongSerde(), st.integers(-(2**63), 2**63 - 1)),
    "double": (DoubleSerde(), st.floats(allow_nan=False, allow_infinity=False)),
}
each = pytest.mark.parametrize("name", ALL)
KINDS = st.sampled_from(list(SERDES))


def values_of(kind: str) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.one_of(st.none(), SERDES[kind][1]), max_size=12)


@each
@given(st.data())
def test_a_state_survives_the_store_and_equal_states_have_equal_bytes(name: str, data: st.DataObject) -> None:
    aggregation, kind = ALL[name], data.draw(KINDS)
    values = data.draw(values_of(kind))
    serde = store_serde(aggregation, SERDES[kind][0])
    kept, stored = state_of(aggregation, values), stored_state_of(aggregation, values, serde)
    assert stored == kept
    if kept is not None:
        assert serde.serialize("t", stored) == serde.serialize("t", kept)


@each
@given(st.data())
def test_a_column_is_one_part_after_the_other(name: str, data: st.DataObject) -> None:
    aggregation, kind = ALL[name], data.draw(KINDS)
    before = data.draw(values_of(kind))
    column = data.draw(st.lists(SERDES[kind][1], min_size=1, max_size=60))
    parts = [aggregation.part(value) for value in column]
    assert aggregation.added_column(state_of(aggregation, before), parts) == state_of(aggregation, [*before, *column])


@each
@given(st.data())
def test_merged_states_are_the_state_of_all_values_and_merging_is_associative(name: str, data: st.DataObject) -> None:
    aggregation, kind = ALL[name], data.draw(KINDS)
    parts = [data.draw(values_of(kind)) for _ in range(3)]
    one, two, three = (state_of(aggregation, part) for part in parts)
    merged = aggregation.merged(aggregation.merged(one, two), three)
    assert merged == aggregation.merged(one, aggregation.merged(two, three))
    assert merged == state_of(aggregation, [value for part in parts for value in part])
    assert aggregation.merged(aggregation.initial(), one) == one


@pytest.mark.parametrize("name", [name for name, aggregation in ALL.items() if aggregation.subtractable])
@given(st.data())
def test_a_subtracted_value_leaves_the_state_of_the_others(name: str, data: st.DataObject) -> None:
    aggregation, kind = ALL[name], data.draw(KINDS)
    values = data.draw(st.lists(SERDES[kind][1], min_size=2, max_size=12))
    removed = data.draw(st.integers(0, len(values) - 1))
    rest = [value for place, value in enumerate(values) if place != removed]
    left = aggregation.subtracted(state_of(aggregation, values), values[removed])
    assert left == state_of(aggregation, rest)
    assert aggregation.subtracted(left, None) == left


def test_only_some_aggregations_can_subtract() -> None:
    assert {name for name, aggregation in ALL.items() if aggregation.subtractable} == {
        "count", "sum", "mean", "quantiles",
    }  # fmt: skip
    with pytest.raises(TypeError, match=r"max\(\) cannot subtract"):
        aggregations.max().subtracted(1, 1)


@each
def test_none_is_skipped_and_a_key_without_values_has_no_result(name: str) -> None:
    aggregation = ALL[name]
    nothing = {"count": 0, "combined": {"total": None, "last": None, "of": None}}
    assert result_of(aggregation, [None, None]) == nothing.get(name)
    assert result_of(aggregation, [None, 5, None]) == result_of(aggregation, [5])


@each
def test_an_aggregation_and_its_serde_can_be_pickled(name: str) -> None:
    copied = pickle.loads(pickle.dumps(ALL[name]))
    assert copied == ALL[name]
    state = state_of(ALL[name], [1, 2])
    serde = store_serde(ALL[name], LongSerde())
    assert pickle.loads(pickle.dumps(serde)).serialize("t", state) == serde.serialize("t", state)


def test_of_is_called_with_the_value_and_its_none_is_skipped() -> None:
    total = aggregations.sum(lambda order: order.get("price"))
    assert result_of(total, [{"price": 2}, {}, None, {"price": 3}]) == 5


@pytest.mark.parametrize("make", [aggregations.sum, aggregations.collect, lambda of: aggregations.top(2, by=of)])
def test_a_function_that_takes_no_value_is_refused(make: Any) -> None:
    with pytest.raises(TypeError, match=r"\(value\): \(key, value\) does not fit"):
        make(lambda key, value: value)
    with pytest.raises(TypeError, match=r"Expected a function (of|by)\(value\), got 'price'"):
        make("price")


def price(value: Any) -> float:
    return float(value)


def test_the_serde_of_parts_is_that_of_values_or_of_the_annotation() -> None:
    assert aggregations.max().part_serde(LongSerde()).__class__ is LongSerde
    assert aggregations.max(lambda value: value).part_serde(LongSerde()) is None
    annotated = aggregations.max(price).part_serde(LongSerde())
    assert annotated is not None
    assert isinstance(annotated.with_defaults(None, None), DoubleSerde)
    assert annotated.with_defaults(None, Serdes.string()).__class__ is Serdes.string().__class__
