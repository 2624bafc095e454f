"""A comparison as text and as JSON."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.shadow import (
    Counts,
    Difference,
    ProgramPlace,
    Recorded,
    StoreComparison,
    TopicComparison,
    VersionComparison,
)

SINK = ProgramPlace("sink", "program.py:12")
EQUAL = TopicComparison("same", (SINK,), (SINK,), Counts(equal=3), 0, ())
EXAMPLE = Difference("a", Recorded(1, 1_000), Recorded(2, 1_000, (("h", b"\x01"),)))
DIFFERENT = TopicComparison("out", (SINK,), (), Counts(1, 1, 0, 1_000), 2, (EXAMPLE,))
STORE = StoreComparison("counts", ProgramPlace("counts"), ProgramPlace("counts"), Counts(only_old=1), ())


def comparison(*topics: TopicComparison, stores: tuple[StoreComparison, ...] = ()) -> VersionComparison:
    return VersionComparison("app", "beginning", topics, stores, {"buffer": "it cannot be shown"})


def test_the_text_names_counts_places_and_differences() -> None:
    assert list(comparison(EQUAL, DIFFERENT, stores=(STORE,)).lines()) == [
        "topic same: 3 equal",
        "topic out: 1 equal, 1 different, 1,000 only in the new version",
        "  the final values of 2 keys differ",
        "  old: sink (program.py:12)",
        "  new: nothing writes it",
        '  key "a" at 1000: old 1, new 2',
        "store counts: 0 equal, 1 only in the old version",
        "  old: counts",
        "  new: counts",
        "store buffer is not compared: it cannot be shown",
    ]


@pytest.mark.parametrize(
    ("difference", "text"),
    [
        (Difference("a", None, Recorded(1, 5)), 'key "a" at 5: old has none, new 1'),
        (Difference(b"\x01", Recorded(None, 5), None), 'key "01" at 5: old null, new has none'),
        (Difference("a", Recorded(1, 5), Recorded(1, 6)), 'key "a" at 5: old 1 at 5, new 1 at 6'),
        (
            Difference("a", Recorded(1, 5), Recorded(1, 5, (("h", b"\x01"),))),
            'key "a" at 5: old 1 with headers [], new 1 with headers [["h","01"]]',
        ),
        (Difference("a", Recorded(1, None), None), 'key "a": old 1, new has none'),
    ],
)
def test_a_difference_shows_what_differs(difference: Difference, text: str) -> None:
    assert str(difference) == text


def test_long_values_are_cut() -> None:
    assert len(str(Difference("a", Recorded("x" * 10_000, 1), None))) < 300


@pytest.mark.parametrize(
    ("found", "is_equal", "has_equal_final_values", "summary"),
    [
        (comparison(EQUAL), True, True, "Both versions of app are equal (from beginning)."),
        (comparison(DIFFERENT), False, False, "The versions of app differ (from beginning): topics out."),
        (
            comparison(EQUAL, stores=(STORE,)),
            False,
            False,
            "The versions of app differ (from beginning): stores counts.",
        ),
        (
            comparison(TopicComparison("out", (), (), Counts(only_new=1), 0, ())),
            False,
            True,
            "The versions of app differ (from beginning): topics out. The final values are the same.",
        ),
    ],
)
def test_a_comparison_is_summed_up(
    found: VersionComparison, is_equal: bool, has_equal_final_values: bool, summary: str
) -> None:
    assert (found.is_equal, found.has_equal_final_values) == (is_equal, has_equal_final_values)
    assert found.summary() == summary


def test_the_json_has_stable_fields() -> None:
    place: dict[str, Any] = {"name": "counts", "line": None}
    sink = {"name": "sink", "line": "program.py:12"}
    assert comparison(DIFFERENT, stores=(STORE,)).to_dict() == {
        "application_id": "app",
        "start": "beginning",
        "equal": False,
        "final_values_equal": False,
        "topics": [
            {
                "topic": "out",
                "old": [sink],
                "new": [],
                "counts": {"equal": 1, "different": 1, "only_old": 0, "only_new": 1000},
                "other_final_values": 2,
                "examples": [
                    {
                        "key": "a",
                        "old": {"value": 1, "timestamp": 1000, "headers": []},
                        "new": {"value": 2, "timestamp": 1000, "headers": [["h", "01"]]},
                    }
                ],
                "equal": False,
            }
        ],
        "stores": [
            {
                "store": "counts",
                "old": place,
                "new": place,
                "counts": {"equal": 0, "different": 0, "only_old": 1, "only_new": 0},
                "examples": [],
                "equal": False,
            }
        ],
        "not_compared": {"buffer": "it cannot be shown"},
    }


@pytest.mark.parametrize(("value", "shown"), [({1: "a"}, {"1": "a"}), (2**70, str(2**70)), (b"\x01", "01")])
def test_any_value_is_shown(value: object, shown: object) -> None:
    example = Difference("a", Recorded(value, 5), None)
    topic = TopicComparison("out", (SINK,), (SINK,), Counts(only_old=1), 1, (example,))
    (found,) = comparison(topic).to_dict()["topics"]
    assert found["examples"] == [{"key": "a", "old": {"value": shown, "timestamp": 5, "headers": []}, "new": None}]
    assert list(comparison(topic).lines())
