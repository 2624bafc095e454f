"""The last commits and the duration of their phases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.notebook import time_text
from penstock.tools.ui.answers import Answers
from penstock.tools.ui.formatting import duration, number
from penstock.tools.ui.markup import Markup, element, joined, table
from penstock.tools.ui.pages.layout import Page, Sections
from penstock.tools.ui.pages.sections import heading
from penstock.tools.ui.schema import CommitFiguresAnswer, CommitsAnswer

_BARS_HEIGHT: Final = 160
_BAR_WIDTH: Final = 12


def page(answers: Answers) -> Page:
    """Return the page."""
    return Page(
        "/commits",
        "Commits",
        lambda parameters: {} if answers.observer.newest.unseen is not None else _sections(answers.commits()),
    )


def _sections(answer: CommitsAnswer) -> Sections:
    sections: Sections = {}
    for place, topology in enumerate(answer["topologies"]):
        found = topology["commits"]
        phases = list(dict.fromkeys(phase for each in found for phase in each["phases_ms"]))
        rows = [
            (
                number(each["number"]),
                time_text(each["committed_at_ms"]),
                number(each["records"]),
                duration(sum(each["phases_ms"].values())),
                *(duration(each["phases_ms"].get(phase, 0)) for phase in phases),
            )
            for each in reversed(found)
        ]
        columns = ("Commit#", "Ended", "Records#", "Took#", *(f"{phase.capitalize()}#" for phase in phases))
        what = table("Last commits", columns, rows, "Nothing was committed since the start.")
        sections[f"commits-{place}"] = joined([*heading(topology["name"]), *_bars(found, phases), what])
    return sections


def _bars(found: Sequence[CommitFiguresAnswer], phases: Sequence[str]) -> list[Markup]:
    """Return a picture with a bar per commit, and the legend of its colours.

    The newest is at the right.
    """
    longest = max((sum(each["phases_ms"].values()) for each in found), default=0)
    if not longest:
        return []
    bars: list[Markup] = []
    for place, each in enumerate(found):
        parts: list[Markup] = []
        bottom = float(_BARS_HEIGHT)
        for phase in phases:
            height = _BARS_HEIGHT * each["phases_ms"].get(phase, 0) / longest
            bottom -= height
            size = {"x": f"{place * _BAR_WIDTH}", "y": f"{bottom:.2f}", "height": f"{height:.2f}"}
            parts.append(element("rect", class_=f"phase-{phase}", width=f"{_BAR_WIDTH - 2}", **size))
        split = ", ".join(f"{phase} {duration(took)}" for phase, took in each["phases_ms"].items())
        title = f"Commit {each['number']}, {number(each['records'])} records: {split}"
        bars.append(element("g", element("title", title), *parts))
    box = f"0 0 {max(len(found) * _BAR_WIDTH, 20 * _BAR_WIDTH)} {_BARS_HEIGHT}"
    title = f"The last {len(found)} commits; the highest bar is {duration(longest)}"
    picture = element("svg", *bars, viewBox=box, role="img", aria_label=title, class_="bars")
    legend = joined(element("span", phase, class_=f"phase phase-{phase}") for phase in phases)
    return [element("p", title, ". ", legend), picture]
