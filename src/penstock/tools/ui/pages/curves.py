"""Curves over time: pictures that need no JavaScript; with it, `curves.js` draws them with uPlot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from penstock.notebook import time_text
from penstock.tools.ui.answers import Answers
from penstock.tools.ui.formatting import NONE, duration, number, rate
from penstock.tools.ui.history import Point
from penstock.tools.ui.markup import Markup, element, joined
from penstock.tools.ui.pages.sections import spaced
from penstock.tools.ui.parameters import Parameters

FILES: Final = ("uplot-1.6.32.min.css", "uplot-1.6.32.min.js", "curves.js")
"""The files that a page with curves loads."""

_WIDTH: Final = 600
_HEIGHT: Final = 120
_MOST_PLACES: Final = 120
"""Most points of a curve in a picture; each is the largest of the points that it represents."""


class Chart(NamedTuple):
    """Curves with one scale.

    Args:
        title: of the picture.
        unit: the unit of figures in `curves.js`.
        curves: their figures and names.
        show: formats a figure.
    """

    title: str
    unit: str
    curves: Sequence[tuple[str, str]]
    show: Callable[[float | None], str]


def _age(milliseconds: float | None) -> str:
    return NONE if milliseconds is None else duration(milliseconds)


_CHARTS: Final = (
    Chart(
        "Records a second",
        "rate",
        (("records_in_per_second", "in"), ("records_out_per_second", "out")),
        rate,
    ),
    Chart("Lag", "records", (("lag", "records that wait"),), number),
    Chart(
        "Age of output at its commit",
        "ms",
        (("output_age_p50_ms", "p50"), ("output_age_p95_ms", "p95"), ("output_age_p99_ms", "p99")),
        _age,
    ),
)


def curves(answers: Answers, parameters: Parameters) -> Markup:
    """Return the curves of the range in the parameter `range`.

    Unknown names select the default.
    """
    history = answers.observer.history
    asked = parameters.get("range", "")
    chosen = asked if asked in history.ranges else history.ranges[0]
    points = history.points(chosen)
    links = [
        element("a", f"last {name}", href=f"/?range={name}", aria_current="true" if name == chosen else None)
        for name in history.ranges
    ]
    return joined(
        [
            element("p", "Curves over time: ", *spaced(links), _span(points), class_="choices"),
            element(
                "div",
                *(_chart(chart, points) for chart in _CHARTS),
                class_="charts",
                data_history=f"/api/v1/history?range={chosen}",
            ),
        ]
    )


def _span(points: Sequence[Point]) -> str:
    """Return the time span of points."""
    if not points:
        return "nothing was seen yet"
    return f"from {time_text(points[0].time_ms)} to {time_text(points[-1].time_ms)}"


def _chart(chart: Chart, points: Sequence[Point]) -> Markup:
    """Return a picture with its title, and its newest and largest figures as text."""
    values = {figure: [getattr(point, figure) for point in points] for figure, _ in chart.curves}
    top = max((value for each in values.values() for value in each if value is not None), default=0.0)
    words = [_words(chart, name, values[figure]) for figure, name in chart.curves]
    lines = [
        element("path", d=_path(points, values[figure], top), class_=f"curve-{place}")
        for place, (figure, _) in enumerate(chart.curves)
    ]
    picture = element(
        "svg",
        *lines,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{chart.title}: {'; '.join(words)}",
    )
    legend = joined(element("span", text, class_=f"curve-{place}") for place, text in enumerate(words))
    return element(
        "div",
        element("h2", chart.title),
        element("p", legend, class_="legend"),
        element("div", picture, class_="plot"),
        class_="chart",
        data_unit=chart.unit,
        data_figures=" ".join(figure for figure, _ in chart.curves),
        data_names=",".join(name for _, name in chart.curves),
    )


def _words(chart: Chart, name: str, values: Sequence[float | None]) -> str:
    """Return the text for a curve: its newest and its largest figure."""
    known = [value for value in values if value is not None]
    if not known:
        return f"{name} not known"
    return f"{name} {chart.show(values[-1])}, at most {chart.show(max(known))}"


def _path(points: Sequence[Point], values: Sequence[float | None], top: float) -> str:
    """Return a curve as an SVG path, with gaps at unknown figures.

    top: the figure at the upper end.
    """
    parts: list[str] = []
    began, taken = points[0].time_ms if points else 0, max(1, points[-1].time_ms - points[0].time_ms if points else 0)
    step = -(-len(points) // _MOST_PLACES) or 1
    draws = False
    for place in range(0, len(points), step):
        known = [value for value in values[place : place + step] if value is not None]
        if known:
            x = _WIDTH * (points[place].time_ms - began) / taken
            y = _HEIGHT * (1 - max(known) / top) if top else _HEIGHT
            parts.append(f"{'L' if draws else 'M'}{x:.0f} {y:.1f}")
            parts.append("h0" if not draws else "")  # makes a single point visible
        draws = bool(known)
    return "".join(parts)
