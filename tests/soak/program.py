"""The program that a soak runs: counts of words in all and by window, behind a repartition, with its pages open.

Run as `program.py <configuration as JSON>`; it prints where it shows itself, and runs until its standard input ends.
"""

from __future__ import annotations

import json
import sys

from penstock import (
    Consumed,
    Grouped,
    KafkaStreams,
    Materialized,
    Produced,
    Serdes,
    StreamsBuilder,
    TimeWindows,
    Topology,
    WindowedSerdes,
)

INPUT, COUNTS, SECONDS = "words", "counts", "seconds"
WINDOW_MS, GRACE_MS, RETENTION_MS = 1_000, 1_000, 5_000

TEXT = Serdes.string()


def topology() -> Topology:
    """Return the topology, which has a bounded state."""
    builder = StreamsBuilder()
    words = builder.stream(INPUT, Consumed.with_(key_serde=TEXT, value_serde=TEXT))
    grouped = words.group_by(lambda _, word: word, grouped=Grouped.with_(key_serde=TEXT, value_serde=TEXT))
    counts = grouped.count(materialized=Materialized.as_("counts")).to_stream().map_values(str)
    counts.to(COUNTS, Produced.with_(key_serde=TEXT, value_serde=TEXT))
    windows = TimeWindows.of_size_and_grace(WINDOW_MS, GRACE_MS)
    seconds = grouped.windowed_by(windows).count(materialized=Materialized.as_("seconds").with_retention(RETENTION_MS))
    keys = WindowedSerdes.time_windowed(TEXT, WINDOW_MS)
    seconds.to_stream().map_values(str).to(SECONDS, Produced.with_(key_serde=keys, value_serde=TEXT))
    return builder.build()


def main() -> None:
    """Run until the parent ends, or the application."""
    with KafkaStreams(topology(), json.loads(sys.argv[1])):
        sys.stdin.read()


if __name__ == "__main__":
    main()
