"""Patterns of topics: regular expressions of RE2, which match whole names."""

from __future__ import annotations

import pytest

from penstock_broker.errors import ApiError
from penstock_broker.groups.patterns import check_pattern, matching
from penstock_broker.wire.error_codes import ErrorCode

pytest.importorskip("pyarrow")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a", {"a"}),
        ("a.*", {"a", "ab", "a.b"}),
        ("a|x", {"a"}),
        ("b", set()),
        (".", {"a"}),
        ("", set()),
        (r"\pL+", {"a", "ab", "xa", "äö"}),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, expected: set[str]) -> None:
    check_pattern(pattern)
    assert matching(pattern, ["a", "ab", "xa", "äö", "a.b"]) == expected


def test_an_empty_list_has_no_match() -> None:
    assert matching(".*", []) == set()


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [("(", "missing \\)"), ("a**", "bad repetition operator"), (r"(a)\1", "invalid escape"), ("(?=a)", r"\(\?=")],
)
def test_a_pattern_that_is_not_of_re2_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(ApiError, match=reason) as refused:
        check_pattern(pattern)
    assert refused.value.code == ErrorCode.invalid_regular_expression


def test_a_pattern_that_is_slow_elsewhere_is_not_slow_here() -> None:
    pattern = "(a|aa)+" * 5  # exponential where a matcher goes back
    assert matching(pattern, ["a" * 5_000 + "b"]) == set()
