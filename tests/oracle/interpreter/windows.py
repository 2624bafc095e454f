"""The windows of a case, the strategies by which their results are emitted, and the mergers of sessions (FORMAT.md
sections 4 and 5.9)."""

from __future__ import annotations

from typing import Any

from penstock import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
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


_KINDS = {
    "time": _time,
    "sliding": _sliding,
    "session": _session,
    "unlimited": lambda start: UnlimitedWindows.of().start_on(start),
}


def _windows(kind: str, **fields: Any) -> Any:
    return _KINDS[kind](**fields)


WINDOWS = Fields(
    "windows",
    {
        "kind": Choice("windows", tuple(_KINDS)),
        **dict.fromkeys(("size", "advance", "difference", "gap", "start", "grace"), PLAIN),
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
