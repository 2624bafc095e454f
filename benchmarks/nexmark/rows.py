"""The topics of a run of Nexmark: filled with events, read for their rows, and the rows checked."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final, NamedTuple

from benchmarks.nexmark.events import encoded, event, timestamp_of
from benchmarks.nexmark.queries import INPUT, OUTPUT, SIDE_INPUT, SIDE_ROWS
from benchmarks.nexmark.results import Rows, side_text
from benchmarks.topics import PARTITIONS, client_config
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentFetcher
from penstock.client.confluent.producer import ConfluentProducer
from penstock.record import TopicPartition

APPEND_TIME: Final = {"message.timestamp.type": "LogAppendTime"}
"""What the topic of rows is made with: the times tell when the broker got the rows."""


class Written(NamedTuple):
    """What a system wrote: keys (None for bids) with values, in the order of each partition, and the last time (ms)."""

    rows: list[tuple[str | None, Any]]
    last_ms: int


def fill(bootstrap: str, events: int) -> None:
    """Write the events to the partitions in turn, and the side input."""
    producer = ConfluentProducer(client_config(bootstrap))
    for number in range(SIDE_ROWS):
        producer.send(SIDE_INPUT, str(number).encode(), side_text(number).encode(), number % PARTITIONS)
    for number in range(events):
        producer.send(INPUT, None, encoded(event(number)), number % PARTITIONS, timestamp_of(number))
    producer.close()


def read(bootstrap: str) -> Written:
    """Return the committed rows."""
    rows: list[tuple[str | None, Any]] = []
    last_ms = 0
    admin, fetcher = ConfluentAdmin(client_config(bootstrap)), ConfluentFetcher(client_config(bootstrap))
    try:
        ends = admin.end_offsets([TopicPartition(OUTPUT, partition) for partition in range(PARTITIONS)], True)
        for partition, end in ends.items():
            for batch in fetcher.fetch(partition, 0, end, read_committed=True):
                for key, value in zip(batch.keys, batch.values, strict=True):
                    rows.append((key and key.decode(), value and json.loads(value)))
                last_ms = max(last_ms, *map(int, batch.timestamps))
    finally:
        fetcher.close()
        admin.close()
    return Written(rows, last_ms)


def wrong(written: list[tuple[str | None, Any]], right: Rows) -> str:
    """Return "" if the rows are the right ones, else how many are not, with the first."""
    if isinstance(right, list):
        found, expected = (Counter(map(_text, each)) for each in ([value for _, value in written], right))
        missing, more = expected - found, found - expected
        if not missing and not more:
            return ""
        first = next(iter(missing or more))
        return f"{missing.total()} rows are missing and {more.total()} are too many, such as {first[:200]}"
    last = dict(written)
    kept = {str(key): _text(value) for key, value in last.items() if value is not None}
    expected_rows = {key: _text(value) for key, value in right.items()}
    bad = [key for key in kept.keys() | expected_rows.keys() if kept.get(key) != expected_rows.get(key)]
    if not bad:
        return ""
    return f"{len(bad)} of {len(expected_rows)} rows are wrong, such as {bad[0]}: {kept.get(bad[0], 'no row')[:200]}"


def _text(value: Any) -> str:
    return json.dumps(_rounded(value), sort_keys=True)


def _rounded(value: Any) -> Any:
    """Return a value whose floats have 12 digits: systems add in different orders."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value
