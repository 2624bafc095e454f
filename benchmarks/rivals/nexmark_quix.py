"""Quix Streams: the queries of Nexmark as DataFrames. Runs in an environment of its own until its standard input ends.

    python -m benchmarks.rivals.nexmark_quix '<json of a Job>'

One process uses one core, so several share the group. State is in RocksDB with changelogs. Not here: queries that need
a second group_by, session windows, global tables, joins that update their results, or distinct counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from quixstreams import Application
from quixstreams.dataframe import StreamingDataFrame
from quixstreams.models import Serializer

from benchmarks.nexmark import functions
from benchmarks.nexmark.events import AUCTION, BID, Event
from benchmarks.rivals.nexmark_job import Job

_WINDOW_MS: Final = 10_000
_GRACE_MS: Final = 10_000
_COMMIT_SECONDS: Final = 0.1  # as Kafka Streams commits with exactly_once_v2

Row = tuple[str, Any]
"""A row: its key and its value."""


class RowSerializer(Serializer):  # type: ignore[misc]  # Quix Streams is in another environment
    """Writes the value of a `Row` as JSON."""

    def __call__(self, value: Row, ctx: object) -> bytes:
        """Return the bytes of a row."""
        return json.dumps(value[1], separators=(",", ":")).encode()


def _bids(events: StreamingDataFrame) -> StreamingDataFrame:
    return events.filter(lambda event: event["event_type"] == BID).apply(lambda event: event["bid"])


def _by(frame: StreamingDataFrame, name: str, key: Callable[[Any], str]) -> StreamingDataFrame:
    texts = {"key_serializer": "str", "key_deserializer": "str"}
    return frame.group_by(key, name=name, **texts)


def _by_auction(events: StreamingDataFrame) -> StreamingDataFrame:
    return _by(_bids(events), "auction", lambda bid: str(bid["auction"]))


def _updated(
    frame: StreamingDataFrame, key: Callable[[Any], str], change: Callable[[Any, Any], Any]
) -> StreamingDataFrame:
    """Return the rows of a state that each value changes."""

    def apply(value: Any, state: Any) -> Row:
        row = change(state.get("row"), value)
        state.set("row", row)
        return key(value), row

    return frame.apply(apply, stateful=True)


def _q2(bids: StreamingDataFrame) -> StreamingDataFrame:
    return bids.filter(lambda bid: bid["auction"] % 123 == 0).apply(
        lambda bid: {name: bid[name] for name in ("auction", "price")}
    )


def _q14(bids: StreamingDataFrame) -> StreamingDataFrame:
    return bids.filter(lambda bid: 1_000_000 < bid["price"] * 0.908 < 50_000_000).apply(functions.classified)


def _q21(bids: StreamingDataFrame) -> StreamingDataFrame:
    return bids.apply(functions.with_channel_id).filter(lambda row: row["channel_id"] is not None)


APPENDED: Final[dict[str, Callable[[StreamingDataFrame], StreamingDataFrame]]] = {
    "q0": lambda bids: bids,
    "q1": lambda bids: bids.apply(functions.in_euros),
    "q2": _q2,
    "q14": _q14,
    "q21": _q21,
    "q22": lambda bids: bids.apply(functions.with_directories),
}
"""The programs of bids whose rows are written once, by query."""


def _q7(events: StreamingDataFrame) -> StreamingDataFrame:
    windows = _by(_bids(events), "all", lambda bid: "all").tumbling_window(_WINDOW_MS, _GRACE_MS)
    best = windows.reduce(functions.highest, lambda bid: functions.highest(None, bid)).current()
    return best.apply(lambda window: (f"all@{window['start']}", window["value"]))


def _sold(events: StreamingDataFrame, merge: Callable[[Event, Event], Event]) -> StreamingDataFrame:
    auctions = events.filter(lambda event: event["event_type"] == AUCTION).apply(lambda event: event["auction"])
    return _by_auction(events).join_interval(
        _by(auctions, "id", lambda auction: str(auction["id"])),
        on_merge=merge,
        grace_ms=_WINDOW_MS + _GRACE_MS,
        backward_ms=_WINDOW_MS,
        forward_ms=_WINDOW_MS,
    )


def _q9(events: StreamingDataFrame) -> StreamingDataFrame:
    bids = _sold(
        events,
        lambda bid, auction: {
            **bid,
            "category": auction["category"],
            "in_time": functions.in_time(auction, bid),
        },
    )
    return _updated(
        bids.filter(lambda bid: bid["in_time"]),
        lambda bid: str(bid["auction"]),
        lambda best, bid: functions.better(best, bid) if best else bid,
    )


def _q17(events: StreamingDataFrame) -> StreamingDataFrame:
    def group(bid: Event) -> str:
        return f"{bid['auction']}/{functions.day_of(bid['date_time'])}"

    return _updated(_by(_bids(events), "day", group), group, functions.price_statistics)


def _q18(events: StreamingDataFrame) -> StreamingDataFrame:
    def pair(bid: Event) -> str:
        return f"{bid['bidder']}/{bid['auction']}"

    last = _by(_bids(events), "pair", pair)
    return _updated(last, pair, lambda row, bid: functions.later(row, bid) if row else bid)


def _q19(events: StreamingDataFrame) -> StreamingDataFrame:
    return _updated(_by_auction(events), lambda bid: str(bid["auction"]), functions.highest_ten)


def _q20(events: StreamingDataFrame) -> StreamingDataFrame:
    bids = _sold(
        events,
        lambda bid, auction: {**bid, "category": auction["category"], "item_name": auction["item_name"]},
    )
    return bids.filter(lambda bid: bid["category"] == 10).apply(lambda bid: (str(bid["auction"]), bid))


UPDATED: Final[dict[str, Callable[[StreamingDataFrame], StreamingDataFrame]]] = {
    "q7": _q7,
    "q9": _q9,
    "q17": _q17,
    "q18": _q18,
    "q19": _q19,
    "q20": _q20,
}
"""The programs of events whose rows have keys, by query."""


def main() -> None:
    """Run the job of the last argument."""
    job = Job.of_arguments()
    app = Application(
        broker_address=job.bootstrap,
        consumer_group=job.application,
        state_dir=str(Path(job.directory) / f"state-{job.process}"),
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once" if job.guarantee == "exactly_once_v2" else "at-least-once",
        commit_interval=_COMMIT_SECONDS,
        loglevel="WARNING",
    )
    events = app.dataframe(app.topic(job.source, value_deserializer="json"))
    if job.query in APPENDED:
        APPENDED[job.query](_bids(events)).to_topic(app.topic(job.sink, value_serializer="json"))
    else:
        sink = app.topic(job.sink, key_serializer="str", value_serializer=RowSerializer())
        UPDATED[job.query](events).to_topic(sink, key=lambda row: row[0])
    app.run()


if __name__ == "__main__":
    main()
