"""Extremes of few and of many rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.task.few_rows import least, most


@given(st.lists(st.integers(-(1 << 50), 1 << 50), min_size=1, max_size=40))
def test_they_are_those_of_the_values(values: list[int]) -> None:
    column = np.array(values, np.int64)
    assert (least(column), most(column)) == (min(values), max(values))
