"""The patterns by which members of consumer groups name topics: regular expressions of RE2, as in Kafka.

RE2 needs linear time for any pattern, so no client can stop the broker with one. It comes with Arrow, the extra
`regex`, loaded with the first pattern: that takes a second and 85 MB, which a broker without patterns does without.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any

from kio.schema.errors import ErrorCode

from penstock_broker.errors import ApiError


def check_pattern(pattern: str) -> None:
    """Check that a pattern is one.

    Raises:
        ApiError: INVALID_REGULAR_EXPRESSION, also where Arrow is not installed.
    """
    arrow = _arrow()
    try:
        _matches(pattern, [""])
    except arrow.ArrowInvalid as error:
        raise ApiError(ErrorCode.invalid_regular_expression, str(error)) from error


def matching(pattern: str, names: Iterable[str]) -> set[str]:
    """Return the names that a checked pattern matches as a whole."""
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
