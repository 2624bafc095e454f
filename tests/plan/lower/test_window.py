"""What windowed aggregations become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import CalendarWindows, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows
from penstock.plan import nodes as n
from penstock.plan.lower.plan import lower
from penstock.windows import EmitStrategy, UnlimitedWindows
from tests.plan.lower.programs import build, kinds
from tests.plan.plans import store, stream

UPDATE, CLOSE = EmitStrategy.ON_WINDOW_UPDATE, EmitStrategy.ON_WINDOW_CLOSE
TIME = TimeWindows.of_size_with_no_grace(5)
DAYS = CalendarWindows.days("UTC", 0)
SLIDING = SlidingWindows.of_time_difference_with_no_grace(5)
SESSIONS = SessionWindows.of_inactivity_gap_with_no_grace(5)


def count(windowed: Any) -> None:
    windowed.count()


def longest(windowed: Any) -> None:
    windowed.reduce(lambda one, other: max(one, other, key=len))


@pytest.mark.parametrize(
    ("windows", "aggregation", "on_update", "on_close"),
    [
        (TIME, count, "TimeWindowCount", "FinalTimeWindowAggregate"),
        (TIME, longest, "TimeWindowAggregate", "FinalTimeWindowAggregate"),
        (DAYS, count, "TimeWindowCount", "FinalCalendarWindowAggregate"),
        (DAYS, longest, "TimeWindowAggregate", "FinalCalendarWindowAggregate"),
        (SLIDING, count, "SlidingWindowAggregate", "FinalSlidingWindowAggregate"),
        (SESSIONS, count, "SessionWindowAggregate", "FinalSessionWindowAggregate"),
    ],
)
def test_each_kind_of_window_has_processors_for_updates_and_for_results(
    windows: Any, aggregation: Callable[[Any], None], on_update: str, on_close: str
) -> None:
    for strategy, expected in ((UPDATE, on_update), (CLOSE, on_close)):
        builder = StreamsBuilder()
        aggregation(builder.stream("in").group_by_key().windowed_by(windows).emit_strategy(strategy))
        built = build(builder)
        assert kinds(built) == [expected]
        assert len(built.subtopologies[0].stores) == 1


def test_windows_that_never_close_have_no_final_result() -> None:
    node = n.TimeWindowedCountNode(
        name="count", parents=(0,), store=store(), emit_strategy=CLOSE, windows=UnlimitedWindows.of()
    )
    with pytest.raises(ValueError, match="ON_WINDOW_CLOSE strategy is only supported for TimeWindows"):
        lower({0: stream("in"), 1: node})


def test_cogrouped_streams_share_a_store_and_their_numbers_of_partitions() -> None:
    builder = StreamsBuilder()
    one, other = (builder.stream(topic).group_by_key() for topic in "ab")
    one.cogroup(lambda key, value, total: total + 1).cogroup(other, lambda key, value, total: total - 1).aggregate(int)
    built = build(builder)
    assert kinds(built)[-1] == "StreamMerge"
    assert len(built.subtopologies[0].stores) == 1
    assert built.copartition_groups == (frozenset("ab"),)
