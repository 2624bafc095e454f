"""Windows in a test: their counts on a driver, and by definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from penstock import Serdes, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows
from penstock.dsl.grouped import KGroupedStream
from penstock.dsl.options import Consumed
from tests.support.tables import UNCACHED, Row, updates

MUCH = 1_000_000
"""A grace (ms) in which no record comes too late."""


ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y", "z"]), st.integers(10, 60)), max_size=20
)


def counts_of(windows: Any, rows: list[Row], config: Mapping[str, Any] = UNCACHED) -> dict[str, int | None]:
    """Return the last count of each windowed key, by its text."""
    builder = StreamsBuilder()
    table = builder.stream("in").group_by_key().windowed_by(windows).count()
    table.to_stream(lambda key, count: str(key)).to("out")
    return {key: value for key, value, _ in updates(builder, rows, config, Serdes.long())}


def expected_counts(rows: list[Row], windows: Callable[[Row], list[tuple[int, int]]]) -> dict[str, int]:
    """Return the counts of the windows [start, end] (both included) that `windows` says each row has part in making."""
    spans = {(key, *span) for key, value, time in rows for span in windows((key, value, time))}
    counts = {
        (key, start, end): sum(key == other and start <= time <= end for other, _, time in rows)
        for key, start, end in spans
    }
    return {f"[{key}@{start}/{end}]": count for (key, start, end), count in counts.items() if count}


TUMBLING = TimeWindows.of_size_and_grace(10, 5)


SLIDING = SlidingWindows.of_time_difference_and_grace(10, 5)


SESSION = SessionWindows.of_inactivity_gap_and_grace(10, 5)


def grouped(builder: StreamsBuilder, topic: str = "in") -> KGroupedStream:
    return builder.stream(topic, Consumed.with_(key_serde=Serdes.string(), value_serde=Serdes.long())).group_by_key()
