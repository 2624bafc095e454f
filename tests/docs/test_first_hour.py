"""The page on the first hour answers twenty questions, each with a page."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "first-hour.md"


def test_each_question_of_the_first_hour_has_a_page() -> None:
    rows = re.findall(
        r"^\| (\d+) \| ([^|]+\?) \| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [int(number) for number, *_ in rows] == list(range(1, 21))
    for _, question, _, pages in rows:
        links = re.findall(r"\]\(([\w./-]+\.md)[\w#-]*\)", pages)
        assert links, question
        assert all((PAGE.parent / link).exists() for link in links)  # the build of the site checks the headings
