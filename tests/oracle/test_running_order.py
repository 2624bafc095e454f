"""What is compared of cases on running threads: what the order of tasks does not decide."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle.interpreter.running_order import differences_of_order

STREAM = [{"op": "stream", "id": "s", "topic": "in"}, {"op": "to", "id": "o", "from": "s", "topic": "out"}]
SEVERAL = [*STREAM, {"op": "to", "id": "p", "from": "s", "topic": "out"}]
TABLE = [
    STREAM[0],
    {"op": "count", "id": "c", "from": "s"},
    {"op": "to_stream", "id": "t", "from": "c"},
    {"op": "to", "id": "o", "from": "t", "topic": "out"},
]
JOINED = [
    STREAM[0],
    {"op": "to_stream", "id": "u", "from": "t"},
    {"op": "table", "id": "t", "topic": "other"},
    {"op": "join", "id": "j", "left": "s", "right": "t"},
    {"op": "to", "id": "o", "from": "j", "topic": "out"},
]
ROWS = [["out", "a", 1, 5], ["out", "b", 1, 5], ["out", "a", 2, 6]]
SWAPPED = [ROWS[1], ROWS[0], ROWS[2]]
REVERSED = ROWS[::-1]


def case_of(topology: list[dict[str, Any]], subtopologies: int = 2) -> dict[str, Any]:
    return {"topology": topology, "expected": {"describe": "Sub-topology: \n" * subtopologies}}


@pytest.mark.parametrize(
    ("topology", "subtopologies", "rows", "is_explained"),
    [
        (STREAM, 1, SWAPPED, False),
        (STREAM, 2, SWAPPED, True),
        (STREAM, 2, REVERSED, False),
        (SEVERAL, 2, REVERSED, True),
        (SEVERAL, 2, ROWS[:2], False),
        (JOINED, 2, ROWS[1:], False),
        (TABLE, 2, ROWS[1:], True),
        (TABLE, 2, ROWS[:2], False),
        (TABLE, 2, [*ROWS, ["other", "a", 1, 5]], False),
    ],
)
def test_the_order_of_tasks_explains_some_differences(
    topology: list[dict[str, Any]], subtopologies: int, rows: list[list[Any]], is_explained: bool
) -> None:
    found = differences_of_order(case_of(topology, subtopologies), {"steps": [ROWS]}, {"steps": [rows]})
    assert (not found) == is_explained


@pytest.mark.parametrize("name", ["stores", "internal_topics"])
def test_stores_and_topics_are_those_of_the_driver(name: str) -> None:
    found = differences_of_order(case_of(TABLE), {name: {"s": {"a": 1}}}, {name: {"s": {"a": 2}}})
    assert len(found) == 1
