"""What the program would change, as the pages and the JSON show it."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from penstock.application.comparison import Comparison
from penstock.errors import StreamsError
from penstock.tools.ui.answers import Answers
from penstock.tools.ui.routes import application
from tests.tools.ui.conftest import Shown
from tests.tools.ui.test_pages import HOSTILE, page


class Program:
    """A program whose comparison the test sets."""

    def __init__(self, shown: Shown) -> None:
        self.outcome: Comparison | StreamsError = Comparison("x.py has not changed since the start.")
        answers = Answers(shown.observer, shown.config, self.compare)
        shown.client = TestClient(application(answers), base_url="http://localhost")

    def compare(self) -> Comparison:
        if isinstance(self.outcome, StreamsError):
            raise self.outcome
        return self.outcome


@pytest.fixture
def program(shown: Shown) -> Program:
    return Program(shown)


def test_an_application_without_a_file_says_how_to_compare(shown: Shown) -> None:
    assert "penstock diff OLD NEW" in page(shown, "/changes").text
    assert "penstock diff OLD NEW" in shown.json("/api/v1/changes", 400)["error"]


def test_what_would_change_is_shown(shown: Shown, program: Program) -> None:
    assert shown.json("/api/v1/changes") == {"compared": "x.py has not changed since the start.", "changes": []}
    assert "nothing changes" in page(shown, "/changes").text
    program.outcome = Comparison("x.py was saved since the start.", [f"store {HOSTILE} is new"])
    assert "x.py was saved since the start. A start of it now" in page(shown, "/changes").text
    assert "store <script>alert('1')</script>" in page(shown, "/changes").text
    assert "<script>" not in shown.client.get("/changes").text
    assert len(shown.json("/api/v1/changes")["changes"]) == 1


def test_a_program_that_cannot_be_compared_is_an_error(shown: Shown, program: Program) -> None:
    program.outcome = StreamsError(HOSTILE)
    assert "error" in shown.json("/api/v1/changes", 503)
    found = page(shown, "/changes")
    assert "<script>alert('1')</script>" in found.text
    assert {"class": "problem", "role": "alert"} in found.with_tag("p")
