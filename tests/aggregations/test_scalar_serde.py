"""Plain values within the state of combined aggregations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.aggregations.scalar_serde import ScalarSerde
from penstock.errors import SerializationError

SERDE = ScalarSerde()


@given(st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()))
def test_a_value_keeps_its_type(value: Any) -> None:
    read = SERDE.deserialize("t", SERDE.serialize("t", value))
    assert (type(read), read) == (type(value), value)


def test_the_bytes_stay_the_same() -> None:
    values = [True, False, -1, 1.0, "ä", b"x"]
    expected = [b"1", b"0", b"i\xff", b"f\x3f\xf0\0\0\0\0\0\0", b"s\xc3\xa4", b"bx"]
    assert [SERDE.serialize("t", value) for value in values] == expected


def test_other_types_and_other_bytes_are_refused() -> None:
    with pytest.raises(TypeError, match=r"expected bool, int, float, str or bytes, got list \[1\]; annotate"):
        SERDE.serialize("t", [1])
    for data in (b"", b"?", b"1x", b"f1", b"s\xff"):
        with pytest.raises(SerializationError, match="Cannot read"):
            SERDE.deserialize("t", data)
