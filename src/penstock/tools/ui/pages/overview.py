"""The overview: state, progress and figures of the application."""

from __future__ import annotations

from penstock.notebook import time_text
from penstock.tools.ui.answers import Answers
from penstock.tools.ui.formatting import NONE, duration, number, rate
from penstock.tools.ui.markup import Markup, element, joined
from penstock.tools.ui.observer import OutputAge
from penstock.tools.ui.pages.curves import FILES, curves
from penstock.tools.ui.pages.layout import Page, Sections
from penstock.tools.ui.pages.sections import commits_table, dropped_table, state_line
from penstock.tools.ui.schema import OverviewAnswer, StreamTimeAnswer


def page(answers: Answers) -> Page:
    """Return the page."""
    return Page(
        "/", "Overview", lambda parameters: _sections(answers.overview(), curves(answers, parameters)), files=FILES
    )


def _sections(answer: OverviewAnswer, curves: Markup) -> Sections:
    figures = {
        "Records in": (rate(answer["records_in_per_second"]), f"{number(answer['records_in'])} since the start"),
        "Records out": (
            rate(answer["records_out_per_second"]),
            f"{number(answer['records_out'])} since the start",
        ),
        "Lag": (number(answer["lag"]), _trend(answer)),
        "Output age p50": _output_age(answer["output_age_ms"]),
        "Stream time": _stream_time(answer["stream_time"]),
        "Dropped": (number(answer["records_dropped"]), "records without a result, see below"),
        "Errors": (number(answer["errors"]), "that stopped all tasks"),
        "Uptime": (duration(answer["uptime_ms"]), ""),
    }
    return {
        "state": state_line(answer),
        "figures": element(
            "dl",
            *(
                element("div", element("dt", name), element("dd", value, element("small", note)))
                for name, (value, note) in figures.items()
            ),
        ),
        "history": curves,
        "topologies": commits_table(answer),
        "dropped": joined(
            []
            if answer["records_dropped"] is None
            else [dropped_table("Dropped records", answer["dropped"], "No record dropped.")]
        ),
        "about": element("p", f"Penstock {answer['version']}, host {answer['host']}.", class_="empty"),
    }


def _trend(answer: OverviewAnswer) -> str:
    change = answer["lag_per_second"]
    if change is None or not answer["lag"]:
        return "records that wait"
    return f"records that wait, {change:+,.1f}/s"


def _output_age(age: OutputAge | None) -> tuple[str, str]:
    """Return the age of output at its commit."""
    if age is None:
        return NONE, "age of output at its commit"
    return duration(age.p50), f"age of output at its commit; p95 {duration(age.p95)}, p99 {duration(age.p99)}"


def _stream_time(times: StreamTimeAnswer | None) -> tuple[str, str]:
    if times is None:
        return NONE, "the largest timestamp that a task has seen"
    return time_text(times["max_at_ms"]), f"skew {duration(times['skew_ms'])} between the tasks"
