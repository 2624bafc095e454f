"""Approximate numbers of distinct values against sets."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import aggregations
from penstock.aggregations.distinct import DistinctValues
from penstock.errors import SerializationError
from tests.support.aggregations import result_of, state_of, store_serde

DISTINCT = aggregations.approx_distinct()
SERDE = store_serde(DISTINCT)
VALUES = st.one_of(st.text(), st.integers(), st.floats(), st.binary(), st.uuids(), st.tuples(st.text(), st.integers()))


@given(st.lists(VALUES, min_size=1, max_size=30))
def test_few_values_are_counted_almost_exactly(values: list[Any]) -> None:
    assert abs(result_of(DISTINCT, values) - len({repr(v) if v != v else v for v in values})) <= 1


@pytest.mark.parametrize("number", [100, 3_000, 9_000, 12_000, 50_000, 300_000])
def test_many_values_are_counted_within_five_standard_errors(number: int) -> None:
    state = DISTINCT.added_column(None, [f"user{n}" for n in range(number)])
    found = DISTINCT.result(state)
    assert found is not None
    assert abs(found - number) <= 5 * 0.0163 * number
    again = DISTINCT.added_column(state, [f"user{n}" for n in range(0, number, 7)])
    assert again == state


@given(st.lists(st.text(), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_the_state_does_not_depend_on_the_order(values: list[str], chosen: Any) -> None:
    assert state_of(DISTINCT, chosen.sample(values, len(values))) == state_of(DISTINCT, values)


def test_values_that_are_equal_in_python_count_once() -> None:
    assert result_of(DISTINCT, [1, 1.0, True]) == 1
    assert result_of(DISTINCT, ["1", b"1", 1, (1,), ("1",), UUID(int=1), 1.5]) == 7
    assert result_of(DISTINCT, [("ab", "c"), ("a", "bc")]) == 2


@pytest.mark.parametrize("number", [0, 5, 1300, 1365, 1366, 1400, 6000])
def test_few_registers_are_stored_as_entries_and_many_as_ranks(number: int) -> None:
    state = DistinctValues(bytes([9] * min(number, 4096) + [0] * max(0, 4096 - number)))
    data = SERDE.serialize("t", state)
    assert SERDE.deserialize("t", data) == state
    assert len(data) == 3 + min(3 * number, 4096)


def test_the_bytes_and_hashes_of_states_stay_the_same() -> None:
    """They are in changelogs."""
    assert SERDE.serialize("t", state_of(DISTINCT, ["a"])).hex() == "0144730a4e02"
    assert SERDE.serialize("t", state_of(DISTINCT, [7])).hex() == "0144730a0201"


@pytest.mark.parametrize("data", [b"\x01Da123", b"\x01Dx", b"\x01Ds12", b"\x01D", b"\x01"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(SerializationError, match="approx_distinct"):
        SERDE.deserialize("t", data)


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match=r"approx_distinct\(\) counts str, .*not dict {'a': 1}: return such a value"):
        DISTINCT.added(None, {"a": 1})
