"""Reasons for dropped records: their texts, which are values of a tag, and counts by place."""

from __future__ import annotations

import pytest

from penstock.metrics.drop_reasons import PASSED, Dropped, DropReason, by_place, null_part


def test_a_reason_is_its_name_in_small_letters_with_dashes() -> None:
    assert {str(reason) for reason in DropReason} == {name.lower().replace("_", "-") for name in DropReason.__members__}


def test_drops_of_a_place_are_added_up_over_its_reasons() -> None:
    dropped = {
        Dropped("a", DropReason.LATE): 2,
        Dropped("a", DropReason.NULL_KEY): 3,
        Dropped("b", DropReason.LATE): 5,
    }
    assert by_place(dropped) == {"a": 5, "b": 5}
    assert by_place({}) == {}


@pytest.mark.parametrize(
    ("key", "reason"), [(None, DropReason.NULL_KEY), ("", DropReason.NULL_VALUE), (0, "null-value")]
)
def test_a_missing_key_is_the_reason_before_a_missing_value(key: object, reason: str) -> None:
    assert null_part(key) == reason


def test_each_exception_handler_that_continues_has_a_reason() -> None:
    assert {str(reason) for reason in PASSED} == {"deserialization", "processing", "serialization"}
