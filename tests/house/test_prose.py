"""The prose of the code keeps to plain English: phrases of a dialect stay below their ceilings."""

from __future__ import annotations

import pytest

from tests.house.limits import modules
from tests.house.prose import PHRASES, Text, per_ten_thousand_words, texts

pytestmark = pytest.mark.xdist_group("source")
"""One process parses the source once."""


@pytest.fixture(scope="module")
def counts() -> dict[str, float]:
    return per_ten_thousand_words(list(texts(modules())))


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_phrase_stays_below_its_ceiling(counts: dict[str, float], phrase: str) -> None:
    assert counts[phrase] <= PHRASES[phrase].ceiling, f"python -m tests.house.prose {phrase!r} lists the places"


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("what as a noun", "Return what it has read."),
        ("none", "The version, or None if there is none."),
        ("have or let somebody do", "Have the task process records."),
        ("of which", "A task of which the store is open."),
        ("where there is", "The size, where there is one."),
        ("behind", "The records behind the offset."),
        ("stands", "The name stands in the header."),
        ("Take", "Take the records of a task."),
        ("tell", "Tell the group; it is told."),
        ("nobody", "Nobody reads it."),
        ("beside", "The file beside the log."),
    ],
)
def test_a_phrase_is_found(phrase: str, text: str) -> None:
    assert per_ten_thousand_words([Text("a.py", 1, text)])[phrase] > 0


def test_plain_sentences_are_not_found() -> None:
    plain = [
        "Return the serdes of a topic.",
        "None if the store is closed; `none` is a value of auto.offset.reset.",
        "Wait until each task has committed.",
    ]
    counted = per_ten_thousand_words([Text("a.py", 1, text) for text in plain])
    assert not any(counted[phrase] for phrase in PHRASES if phrase != "have or let somebody do")
