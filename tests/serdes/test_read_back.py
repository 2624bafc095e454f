"""The check that a value survives its serde."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from penstock.errors import SerializationError
from penstock.serdes.read_back import check_read_back, values_in


@dataclass
class Point:
    x: float
    tags: tuple[str, ...] = ()


class Plain:
    """An object without an equality of its own."""


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (Point(1.0, ("a",)), Point(1.0, ["a"])),  # type: ignore[arg-type]  # what a serde may read for a tuple
        ({"x": 1.0}, Point(1.0)),
        (Point(float("nan")), Point(float("nan"))),
        (
            datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
            datetime(2024, 10, 27, 1, 30, tzinfo=ZoneInfo("UTC")),
        ),
    ],
)
def test_a_value_that_is_read_with_all_its_data_passes(value: Any, found: Any) -> None:
    check_read_back("t", value, found, Point)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (Point(1.0), Point(2.0)),
        ({"x": 1.0, "y": 2.0}, Point(1.0)),
        ([1, 2], [1]),
        ({1}, [1, 2]),
        (Plain(), Plain()),
    ],
)
def test_a_value_that_has_lost_data_is_refused_with_its_topic_and_class(value: Any, found: Any) -> None:
    with pytest.raises(SerializationError, match=r"to 't' as Point, .* it would be read as"):
        check_read_back("t", value, found, Point)


def test_the_values_within_a_value_have_no_parts() -> None:
    assert list(values_in({"a": [1, Point(2.0, ("b",))], "c": None})) == [1, 2.0, "b", None]
