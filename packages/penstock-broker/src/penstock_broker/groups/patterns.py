"""Topic patterns of consumer group members: RE2 regular expressions, as in Kafka.

RE2 matches any pattern in linear time, so no client can stop the broker with one. It is part of Arrow, which is loaded
for the first pattern: that takes a second and 85 MB, saved by brokers without patterns.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any

from penstock_broker.errors import ApiError
from penstock_broker.wire.error_codes import ErrorCode


def check_pattern(pattern: str) -> None:
    """Check that a pattern is valid.

    Raises:
        ApiError: INVALID_REGULAR_EXPRESSION.
    """
    try:
        _matches(pattern, [""])
    except _arrow().ArrowInvalid as error:
        raise ApiError(ErrorCode.invalid_regular_expression, str(error)) from error


def matching(pattern: str, names: Iterable[str]) -> set[str]:
    """Return the names that a checked pattern matches completely."""
    found = list(names)
    return {name for name, is_match in zip(found, _matches(rf"\A(?:{pattern})\z", found), strict=True) if is_match}


def _matches(pattern: str, names: list[str]) -> list[bool]:
    array = _arrow().array(names, type=_arrow().string())
    matches: list[bool] = _compute().match_substring_regex(array, pattern).to_pylist()
    return matches


@cache
def _arrow() -> Any:
    return import_module("pyarrow")


@cache
def _compute() -> Any:
    return import_module("pyarrow.compute")
