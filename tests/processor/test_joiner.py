"""The joiner functions of users, and the sides of each type of join."""

from __future__ import annotations

import inspect

import pytest

from penstock.processor.joiner import JoinType, keyed_joiner, mapped_key_joiner


@pytest.mark.parametrize(
    ("type", "keeps_left", "keeps_right"),
    [(JoinType.INNER, False, False), (JoinType.LEFT, True, False), (JoinType.OUTER, True, True)],
)
def test_a_type_of_join_keeps_the_sides_of_its_name(type: JoinType, keeps_left: bool, keeps_right: bool) -> None:
    assert (type.keeps_left, type.keeps_right) == (keeps_left, keeps_right)


def of_values(left: str, right: str) -> str:
    return left + right


def of_key_and_values(key: str, left: str, right: str) -> str:
    return key + left + right


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("joiner", "with_key", "key"), [(of_values, False, ""), (of_key_and_values, True, "k")])
def test_a_joiner_gets_the_left_value_first_on_both_sides(joiner, with_key: bool, key: str, reverse: bool) -> None:  # type: ignore[no-untyped-def]  # any function
    keyed = keyed_joiner(joiner, with_key, reverse)
    this, other = ("R", "L") if reverse else ("L", "R")
    assert keyed("k", this, other) == f"{key}LR"
    assert inspect.unwrap(keyed) is joiner


def of_both_keys_and_values(key: str, table_key: str, left: str, right: str) -> str:
    return key + table_key + left + right


@pytest.mark.parametrize(
    ("joiner", "keys", "result"),
    [(of_values, 0, "LR"), (of_key_and_values, 1, "kLR"), (of_both_keys_and_values, 2, "ktLR")],
)
def test_a_joiner_gets_the_keys_that_it_takes(joiner, keys: int, result: str) -> None:  # type: ignore[no-untyped-def]  # any function
    mapped = mapped_key_joiner(joiner, keys)
    assert mapped("k", "t", "L", "R") == result
    assert inspect.unwrap(mapped) is joiner
