"""The effects if the program started now."""

from __future__ import annotations

from penstock.errors import StreamsError, UnsupportedOperationError
from penstock.tools.ui.answers import Answers
from penstock.tools.ui.markup import element, joined
from penstock.tools.ui.pages.layout import Page, Sections


def page(answers: Answers) -> Page:
    """Return the page."""
    return Page("/changes", "What would change", fixed=lambda parameters: _changes(answers))


def _changes(answers: Answers) -> Sections:
    try:
        answer = answers.changes()
    except UnsupportedOperationError as error:
        return {"changes": element("p", str(error), class_="empty")}
    except StreamsError as error:
        return {"changes": element("p", str(error), class_="problem", role="alert")}
    what = element("p", answer["compared"], " A start of it now would do this to the application:")
    return {"changes": joined([what, element("pre", "\n".join(answer["changes"]) or "nothing changes")])}
