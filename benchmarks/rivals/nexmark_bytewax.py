"""Bytewax: the queries of Nexmark as dataflows. Runs in an environment of its own until its standard input ends.

    python -m benchmarks.rivals.nexmark_bytewax '<json of a Job>'

One process uses one core, so several are a cluster, whose records go over sockets. State is in memory; snapshots of it
go to the recovery store every second. With a number of events the source ends, and with it all windows.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

from benchmarks.nexmark import functions
from benchmarks.nexmark.events import AUCTION, BID, FIRST_TIMESTAMP_MS, PERSON, Event
from benchmarks.rivals.nexmark_job import Job, report

_WINDOW_MS: Final = 10_000
_HOP_MS: Final = 2_000
_GRACE: Final = timedelta(seconds=10)
_EPOCH: Final = timedelta(seconds=1)
_LOOK_SECONDS: Final = 0.25
_FIRST_PORT, _PORTS = 20_000, 20_000
_ALIGNED: Final = datetime.fromtimestamp(FIRST_TIMESTAMP_MS / 1000, UTC)
_TYPES: Final = {PERSON: "person", AUCTION: "auction", BID: "bid"}

Row = tuple[str | None, Any]
"""A row: its key and its value."""
Keyed = Callable[[Event], str]
Stream = Any


def _of_type(events: Stream, number: int) -> Stream:
    chosen = op.filter(_TYPES[number] + "s", events, lambda event: event["event_type"] == number)
    return op.map(_TYPES[number], chosen, lambda event: event[_TYPES[number]])


def _updated(name: str, keyed: Stream, change: Callable[[Any, Any], Any]) -> Stream:
    """Return the keyed state after each value."""
    return op.stateful_map(name, keyed, lambda state, value: (change(state, value),) * 2)


def _windows(
    name: str, keyed: Stream, windower: object, folded: Callable[[Any, Any], Any], merged: Callable[[Any, Any], Any]
) -> Stream:
    """Return (key, (number of the window, value)) of each window that has ended."""
    clock = win.EventClock(lambda value: _time(value["date_time"]), _GRACE)
    return win.fold_window(name, keyed, clock, windower, lambda: None, folded, merged).down


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _start(number: int, advance_ms: int = _WINDOW_MS) -> int:
    return FIRST_TIMESTAMP_MS + number * advance_ms


def _tumbling() -> object:
    return win.TumblingWindower(timedelta(milliseconds=_WINDOW_MS), _ALIGNED)


# ---------------------------------------- bid by bid


def _each(change: Callable[[Event], Any]) -> Callable[[Stream], Stream]:
    return lambda events: op.map("change", _of_type(events, BID), lambda bid: (None, change(bid)))


def _q2(events: Stream) -> Stream:
    chosen = op.filter("chosen", _of_type(events, BID), lambda bid: bid["auction"] % 123 == 0)
    return op.map("row", chosen, lambda bid: (None, {name: bid[name] for name in ("auction", "price")}))


def _q14(events: Stream) -> Stream:
    chosen = op.filter("chosen", _of_type(events, BID), lambda bid: 1_000_000 < bid["price"] * 0.908 < 50_000_000)
    return op.map("row", chosen, lambda bid: (None, functions.classified(bid)))


def _q21(events: Stream) -> Stream:
    rows = op.map("row", _of_type(events, BID), functions.with_channel_id)
    return op.map("value", op.filter("known", rows, lambda row: row["channel_id"] is not None), lambda row: (None, row))


# ---------------------------------------- joins


def _joined(
    events: Stream, kind: int, key: Keyed, of_auction: Keyed, made: Callable[[Event, Event], Iterable[Any]]
) -> Stream:
    """Join auctions with people or bids of the same key, whichever come first."""
    others = op.map("as_other", op.key_on("by_other", _of_type(events, kind), key), lambda each: each)
    others = op.map_value("other", others, lambda other: (kind, other))
    auctions = op.key_on("by_auction", _of_type(events, AUCTION), of_auction)
    auctions = op.map_value("auctions_of", auctions, lambda auction: (AUCTION, auction))

    def join(state: tuple[list[Event], list[Event]] | None, value: tuple[int, Event]) -> tuple[Any, list[Any]]:
        found = state or ([], [])
        mine, theirs = (0, 1) if value[0] == AUCTION else (1, 0)
        found[mine].append(value[1])
        pairs = [(value[1], other) if mine == 0 else (other, value[1]) for other in found[theirs]]
        return found, [row for auction, other in pairs for row in made(auction, other)]

    return op.stateful_flat_map("join", op.merge("both", others, auctions), join)


def _q3(events: Stream) -> Stream:
    def made(auction: Event, person: Event) -> list[Row]:
        local = auction["category"] == 10 and person["state"] in ("OR", "ID", "CA")
        return [(str(auction["id"]), functions.local_item(auction, person))] if local else []

    found = _joined(events, PERSON, lambda each: str(each["id"]), lambda auction: str(auction["seller"]), made)
    return op.map("row", found, lambda each: each[1])


def _sold(events: Stream, made: Callable[[Event, Event], Iterable[Any]]) -> Stream:
    return _joined(events, BID, lambda bid: str(bid["auction"]), lambda auction: str(auction["id"]), made)


def _q9(events: Stream) -> Stream:
    def made(auction: Event, bid: Event) -> list[Event]:
        in_time = functions.in_time(auction, bid)
        return [{**bid, "category": auction["category"], "in_time": True}] if in_time else []

    return _updated("best", _sold(events, made), lambda best, bid: functions.better(best, bid) if best else bid)


def _q20(events: Stream) -> Stream:
    def made(auction: Event, bid: Event) -> list[Event]:
        return [{**bid, "category": 10, "item_name": auction["item_name"]}] if auction["category"] == 10 else []

    return _sold(events, made)


# ---------------------------------------- windows


def _q5(events: Stream) -> Stream:
    length, hop = timedelta(milliseconds=_WINDOW_MS), timedelta(milliseconds=_HOP_MS)
    windower = win.SlidingWindower(length, hop, _ALIGNED)
    bids = op.key_on("auction", _of_type(events, BID), lambda bid: str(bid["auction"]))
    counts = _windows("counts", bids, windower, lambda count, _: (count or 0) + 1, lambda one, other: one + other)
    by_window = op.map("pair", counts, lambda each: (str(_start(each[1][0], _HOP_MS)), (each[0], each[1][1])))
    return _updated("best", by_window, lambda best, pair: functions.more_bids(best, *pair))


def _q7(events: Stream) -> Stream:
    bids = op.key_on("all", _of_type(events, BID), lambda bid: "all")
    best = _windows("best", bids, _tumbling(), functions.highest, lambda one, other: max(one, other, key=_price))
    return op.map("row", best, lambda each: (f"all@{_start(each[1][0])}", each[1][1]))


def _price(best: Event) -> int:
    return int(best["price"])


def _q8(events: Stream) -> Stream:
    def first(name: str, number: int, key: str) -> Stream:
        keyed = op.key_on(f"{name}_key", _of_type(events, number), lambda each: str(each[key]))
        found = _windows(name, keyed, _tumbling(), lambda kept, each: kept or each, lambda one, _: one)
        return op.map(f"{name}_window", found, lambda each: (f"{each[0]}@{_start(each[1][0])}", each[1][1]))

    both = op.join("both", first("new", PERSON, "id"), first("sellers", AUCTION, "seller"))
    return op.map_value("row", both, lambda each: {"id": each[0]["id"], "name": each[0]["name"]})


def _q11(events: Stream) -> Stream:
    bids = op.key_on("bidder", _of_type(events, BID), lambda bid: str(bid["bidder"]))
    sessions = _windows(
        "sessions",
        bids,
        win.SessionWindower(timedelta(milliseconds=_WINDOW_MS)),
        lambda found, bid: (min(found[0], bid["date_time"]), found[1] + 1) if found else (bid["date_time"], 1),
        lambda one, other: (min(one[0], other[0]), one[1] + other[1]) if one and other else one or other,
    )
    return op.map("row", sessions, lambda each: (f"{each[0]}@{each[1][1][0]}", each[1][1][1]))


# ---------------------------------------- statistics


def _q17(events: Stream) -> Stream:
    def key(bid: Event) -> str:
        return f"{bid['auction']}/{functions.day_of(bid['date_time'])}"

    keyed = op.key_on("auction_and_day", _of_type(events, BID), key)
    return _updated("statistics", keyed, functions.price_statistics)


def _q18(events: Stream) -> Stream:
    keyed = op.key_on("pair", _of_type(events, BID), lambda bid: f"{bid['bidder']}/{bid['auction']}")
    return _updated("last", keyed, lambda last, bid: functions.later(last, bid) if last else bid)


def _q19(events: Stream) -> Stream:
    keyed = op.key_on("auction", _of_type(events, BID), lambda bid: str(bid["auction"]))
    return _updated("best", keyed, functions.highest_ten)


QUERIES: Final[dict[str, Callable[[Stream], Stream]]] = {
    "q0": _each(lambda bid: bid),
    "q1": _each(functions.in_euros),
    "q2": _q2,
    "q3": _q3,
    "q5": _q5,
    "q7": _q7,
    "q8": _q8,
    "q9": _q9,
    "q11": _q11,
    "q14": _q14,
    "q17": _q17,
    "q18": _q18,
    "q19": _q19,
    "q20": _q20,
    "q21": _q21,
    "q22": _each(functions.with_directories),
}
"""The dataflows of events to rows, by query."""


class _Counter:
    """Counts the events of this process, and reports them."""

    def __init__(self) -> None:
        self._events = 0

    def parse(self, message: Any) -> Event:
        """Return the event of a message."""
        self._events += 1
        event: Event = json.loads(message.value)
        return event

    def follow(self, done: threading.Event) -> None:
        """Report until the dataflow is done; the last event only then."""
        while not done.wait(_LOOK_SECONDS):
            report(max(self._events - 1, 0))
        report(self._events)


def main() -> None:
    """Run the job of the last argument."""
    job = Job.of_arguments()
    counter, done = _Counter(), threading.Event()
    flow = Dataflow("nexmark")
    messages = op.input("source", flow, KafkaSource([job.bootstrap], [job.source], tail=job.events is None))
    rows = QUERIES[job.query](op.map("parse", messages, counter.parse))
    sent = op.map("message", rows, _message)
    op.output("sink", sent, KafkaSink([job.bootstrap], job.sink))
    follower = threading.Thread(target=counter.follow, args=(done,))
    follower.start()
    port = _FIRST_PORT + zlib.crc32(job.application.encode()) % _PORTS
    addresses = [f"127.0.0.1:{port + number}" for number in range(job.partitions)]
    recovery = RecoveryConfig(_recovery_directory(job))
    cluster_main(flow, addresses, job.process, epoch_interval=_EPOCH, recovery_config=recovery)
    done.set()
    follower.join()
    threading.Event().wait()


def _message(row: Row) -> KafkaSinkMessage:
    key, value = row
    return KafkaSinkMessage(key and key.encode(), json.dumps(value, separators=(",", ":")).encode())


def _recovery_directory(job: Job) -> Path:
    """Return the recovery store, which the first process makes."""
    directory, ready = Path(job.directory) / "recovery", Path(job.directory) / "recovery-ready"
    if job.process == 0:
        directory.mkdir()
        init_db_dir(directory, job.partitions)
        ready.touch()
    while not ready.exists():
        time.sleep(_LOOK_SECONDS)
    return directory


if __name__ == "__main__":
    main()
