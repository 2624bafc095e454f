"""Counts and reductions as aggregations: both give what a fold over all values gives."""

from __future__ import annotations

import functools
import inspect
import operator
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.processor.reduction import MergedReduction, Reduction, counted, initial_count, merged_counts, no_aggregate

VALUES = st.lists(st.sampled_from("abc"), min_size=1, max_size=6)


def folded(values: list[str]) -> str | None:
    reduce = Reduction(operator.add)
    return functools.reduce(lambda aggregate, value: reduce("k", value, aggregate), values, no_aggregate())


@given(VALUES, VALUES)
def test_a_merged_reduction_is_the_reduction_of_all_values(ones: list[str], others: list[str]) -> None:
    merge = MergedReduction(operator.add)
    assert folded(ones) == "".join(ones)
    assert merge("k", folded(ones), folded(others)) == "".join(ones + others)
    assert merge("k", no_aggregate(), folded(others)) == "".join(others)


@given(st.integers(0, 5), st.integers(0, 5))
def test_merged_counts_are_the_count_of_all_records(ones: int, others: int) -> None:
    def count(records: int) -> int:
        return functools.reduce(lambda total, value: counted("k", value, total), range(records), initial_count())

    assert merged_counts("k", count(ones), count(others)) == count(ones + others) == ones + others


@pytest.mark.parametrize("kind", [Reduction, MergedReduction])
def test_a_reduction_shows_the_function_of_the_user_and_is_pickled(kind: type[Reduction]) -> None:
    reduction = kind(operator.add)
    assert inspect.unwrap(reduction) is operator.add
    assert pickle.loads(pickle.dumps(reduction)) == reduction
