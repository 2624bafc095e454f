"""What is checked of user functions when a node is made."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from penstock.dsl.functions import checked, joiner_keys, takes_key


class Callable2:
    def __call__(self, key: Any, value: Any) -> Any:
        return value


@pytest.mark.parametrize(
    "function",
    [lambda v: v, lambda v, extra=1: v, lambda *values: values, str.upper, str, int, len, print, Callable2, {}.get],
)
def test_one_required_parameter_takes_the_value_alone(function: Callable[..., Any]) -> None:
    assert takes_key(function, "mapper") is False


@pytest.mark.parametrize("function", [lambda k, v: v, lambda k, v, extra=1: v, Callable2(), partial(max, 1), divmod])
def test_two_required_parameters_take_key_and_value(function: Callable[..., Any]) -> None:
    assert takes_key(function, "mapper") is (not isinstance(function, partial))


@pytest.mark.parametrize("function", [lambda: 1, lambda a, b, c: a, lambda v, *, option: v, "no function"])
def test_any_other_number_is_refused_and_both_forms_are_shown(function: Any) -> None:
    with pytest.raises(TypeError, match=r"mapper\(value\) or mapper\(key, value\)"):
        takes_key(function, "mapper")


@pytest.mark.parametrize(
    ("joiner", "keys"),
    [
        (lambda value, row: row, 0),
        (lambda value, row, extra=1: row, 0),
        (lambda *all: all, 0),
        (divmod, 0),
        (lambda key, value, row: row, 1),
        (lambda key, value, row, extra=1: row, 1),
        (lambda key, selected, value, row: row, 2),
        (lambda key, selected, value, row, *more: row, 2),
    ],
)
def test_the_joiner_of_a_global_table_takes_as_many_keys_as_it_requires(joiner: Callable[..., Any], keys: int) -> None:
    assert joiner_keys(joiner) == keys


@pytest.mark.parametrize("joiner", [lambda value: 1, lambda a, b, c, d, e: a, lambda v, w, *, option: v, "no function"])
def test_any_other_joiner_of_a_global_table_is_refused_and_all_forms_are_shown(joiner: Any) -> None:
    forms = "joiner(value, table_value), joiner(key, value, table_value) or joiner(key, mapped_key, value, table_value)"
    with pytest.raises(TypeError, match=re.escape(forms)):
        joiner_keys(joiner)


def test_a_generator_is_no_joiner() -> None:
    def joiner(key: Any, selected: Any, value: Any, row: Any) -> Any:
        yield value

    with pytest.raises(TypeError, match="is a generator function"):
        joiner_keys(joiner)


def test_a_function_that_cannot_be_called_as_it_must_be_is_refused() -> None:
    with pytest.raises(TypeError, match=r"The predicate cannot be called as predicate\(key, value\): .*lambda.*\(v\)"):
        checked(lambda v: v, "predicate(key, value)")
    with pytest.raises(TypeError, match=rf"Expected a function initializer\(\), got 0 \({__file__}:\d+\)\."):
        checked(0, "initializer()")  # type: ignore[arg-type]  # the mistake that is tested


@pytest.mark.parametrize("function", [lambda k, v: v, lambda k, v, extra=1: v, lambda *all: all, max, divmod, dict])
def test_a_function_that_can_be_called_passes(function: Callable[..., Any]) -> None:
    assert checked(function, "predicate(key, value)") is function


@pytest.mark.skipif(sys.version_info < (3, 14), reason="before Python 3.14, such a function cannot be defined")
def test_annotations_that_exist_for_type_checkers_only_are_not_read() -> None:
    names: dict[str, Any] = {}
    exec(compile("def keep(key: Unknown, value: Unknown) -> bool: return True", "user.py", "exec", 0, True), names)
    assert checked(names["keep"], "predicate(key, value)") is names["keep"]
    assert takes_key(names["keep"], "mapper")
