"""What would change if a program started on the checkpoint now."""

from __future__ import annotations

from penstock.errors import StreamsError
from penstock.ui.answers import Answers
from penstock.ui.markup import element, joined
from penstock.ui.pages.layout import Page, Sections


def page(answers: Answers) -> Page:
    """Return the page."""
    return Page("/changes", "What would change", fixed=lambda parameters: _changes(answers))


def _changes(answers: Answers) -> Sections:
    try:
        lines = answers.changes()["changes"]
    except StreamsError as error:
        return {"changes": element("p", str(error), class_="problem", role="alert")}
    shown = "\n".join(lines) or "nothing changes"
    hint = element("p", "What the program does to the application when it starts on the checkpoint.")
    return {"changes": joined([hint, element("pre", shown)])}
