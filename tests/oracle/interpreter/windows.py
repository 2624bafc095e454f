"""The windows of a case, the strategies by which their results are emitted, and the mergers of sessions (FORMAT.md
sections 4 and 5.9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import time
from typing import Any

from penstock import CalendarWindows, EmitStrategy, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from tests.oracle.interpreter.values import long, number, text
from tests.oracle.interpreter.vocabulary import PLAIN, Choice, Fields, Words


def _time(size: int, advance: int | None = None, grace: int | None = None) -> TimeWindows:
    windows = TimeWindows.of_size_with_no_grace(size) if grace is None else TimeWindows.of_size_and_grace(size, grace)
    return windows if advance is None else windows.advance_by(advance)


def _sliding(difference: int, grace: int | None = None) -> SlidingWindows:
    if grace is None:
        return SlidingWindows.of_time_difference_with_no_grace(difference)
    return SlidingWindows.of_time_difference_and_grace(difference, grace)


def _session(gap: int, grace: int | None = None) -> SessionWindows:
    if grace is None:
        return SessionWindows.of_inactivity_gap_with_no_grace(gap)
    return SessionWindows.of_inactivity_gap_and_grace(gap, grace)


def _calendar(unit: str, zone: str, grace: int, start_of_day: str = "00:00", start_of_week: int = 1) -> CalendarWindows:
    """Return windows of a calendar; the days of a week are those of java.time, from Monday, 1, to Sunday, 7."""
    start = time.fromisoformat(start_of_day)
    if unit == "weeks":
        return CalendarWindows.weeks(zone, grace, start_of_week=start_of_week - 1, start_of_day=start)
    make = CalendarWindows.days if unit == "days" else CalendarWindows.months
    return make(zone, grace, start_of_day=start)


_KINDS: Mapping[str, Callable[..., Any]] = {
    "time": _time,
    "sliding": _sliding,
    "session": _session,
    "calendar": _calendar,
    "unlimited": lambda start: UnlimitedWindows.of().start_on(start),
}


def _windows(kind: str, **fields: Any) -> Any:
    return _KINDS[kind](**fields)


WINDOWS = Fields(
    "windows",
    {
        "kind": Choice("windows", tuple(_KINDS)),
        "unit": Choice("windows of a calendar", ("days", "weeks", "months")),
        **dict.fromkeys(("size", "advance", "difference", "gap", "start", "grace"), PLAIN),
        **dict.fromkeys(("zone", "start_of_day", "start_of_week"), PLAIN),
    },
    _windows,
    decisive="kind",
)

EMIT_STRATEGIES = Words(
    "emit strategy",
    {"on_window_update": EmitStrategy.on_window_update, "on_window_close": EmitStrategy.on_window_close},
)

MERGERS = Words(
    "merger",
    {
        "concat": lambda: lambda k, a, b: f"{text(a)}&{text(b)}",
        "sum": lambda: lambda k, a, b: long(number(a) + number(b)),
    },
)
