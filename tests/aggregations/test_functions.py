"""The functions that create aggregations: names and arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from penstock import aggregations

FUNCTIONS = [name for name in aggregations.__all__ if name != "Aggregation"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_documented_and_gives_an_aggregation_that_says_its_name(name: str) -> None:
    function = vars(aggregations)[name]
    arguments = {"top": (2,), "quantiles": ([0.5],)}.get(name, ())
    options = {"total": aggregations.sum()} if name == "combined" else {}
    made = function(*arguments, **options)
    assert isinstance(made, aggregations.Aggregation)
    assert str(made) == f"{name}()"
    assert inspect.getdoc(function)


def test_a_list_has_a_limit_without_being_asked() -> None:
    collect = aggregations.collect()
    state = None
    for number in range(1_100):
        state = collect.added(state, number)
    assert state == list(range(1_000))


def test_arguments_of_another_form_are_refused_with_the_correct_one() -> None:
    share: Any = 0.5
    with pytest.raises(TypeError, match=r"quantiles\(\[0\.5\]\), got 0\.5"):
        aggregations.quantiles(share)
    unnamed: Any = aggregations.count()
    with pytest.raises(TypeError, match=r"takes aggregations by name.* got count\(\) without one: write combined\("):
        aggregations.combined(unnamed)
