"""Topic patterns of consumer group members: RE2 regular expressions, as in Kafka.

RE2 matches any pattern in linear time, so no client can stop the broker with one. It is part of Arrow, the extra
`regex`, which is loaded for the first pattern: that takes a second and 85 MB, saved by brokers without patterns.
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
        ApiError: INVALID_REGULAR_EXPRESSION, also where Arrow is not installed.
    """
    arrow = _arrow()
    try:
        _matches(pattern, [""])
    except arrow.ArrowInvalid as error:
        raise ApiError(ErrorCode.invalid_regular_expression, str(error)) from error


def matching(pattern: str, names: Iterable[str]) -> set[str]:
    """Return the names that a checked pattern matches completely."""
    found = list(names)
    return {name for name, is_match in zip(found, _matches(rf"\A(?:{pattern})\z", found), strict=True) if is_match}


def _matches(pattern: str, names: list[str]) -> list[bool]:
    array = _arrow().array(names, type=_arrow().string())
    matches: list[bool] = _arrow("pyarrow.compute").match_substring_regex(array, pattern).to_pylist()
    return matches


@cache
def _arrow(module: str = "pyarrow") -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        text = "Patterns of topics need the package pyarrow at the broker: pip install 'penstock-broker[regex]'."
        raise ApiError(ErrorCode.invalid_regular_expression, text) from error
