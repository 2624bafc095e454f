"""Control: actions, with the token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.tools.ui.answers import Answers
from penstock.tools.ui.markup import Markup, element
from penstock.tools.ui.pages.layout import Page, Sections
from penstock.tools.ui.pages.sections import asking, state_line

_ACTIONS: Final = {
    "pause": "Pause: finish the running commit, then process nothing",
    "resume": "Resume after a pause",
    "savepoint": "Savepoint: copy the state of the last commit",
    "redrive": "Redrive: write the dead letters back to where they came from",
    "stop": "Stop: finish the running commit, then end the application and these pages",
}


def page(answers: Answers, actions: Sequence[str]) -> Page:
    """Return the page; actions: those available for the application."""
    name = str(answers.config["application.id"])
    return Page(
        "/control",
        "Control",
        lambda parameters: {"state": state_line(answers.overview())},
        lambda parameters: _form(name, actions),
    )


def outcome_of(action: str = "", done: Mapping[str, Any] | None = None, problem: str = "") -> Markup:
    """Return the outcome of an action: its result `done`, or the `problem` that prevented it."""
    if problem:
        return element("p", problem, class_="problem", role="alert")
    facts = "".join(f" {name.replace('_', ' ').capitalize()}: {value}." for name, value in (done or {}).items())
    return element("p", f"Requested: {action}.{facts}", role="status")


def _form(application_id: str, actions: Sequence[str]) -> Sections:
    choices = [
        element("label", element("input", type="radio", name="action", value=action, required=True), f" {text}")
        for action, text in _ACTIONS.items()
        if action in actions
    ]
    what = element("fieldset", element("legend", "What to do"), *choices)
    return {"form": asking([what], f"Do this with {application_id}", "Do it")}
