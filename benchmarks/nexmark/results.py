"""The right results of the queries: straight programs over all events of a run, which every system is checked against.

Not here: how the systems write their rows; `checked` compares the rows of one with these.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any, Final

from benchmarks.nexmark import functions, queries
from benchmarks.nexmark.events import AUCTION, BID, PERSON, Event

_WINDOW_MS: Final = 10_000
_HOP_MS: Final = 2_000

Rows = list[Event] | dict[str, Any]
"""Rows in any order, or the last row of each key."""


class Events:
    """All events of a run, by their type."""

    def __init__(self, events: Iterable[Event]) -> None:
        kinds: dict[int, list[Event]] = {PERSON: [], AUCTION: [], BID: []}
        fields = {PERSON: "person", AUCTION: "auction", BID: "bid"}
        for event in events:
            kinds[event["event_type"]].append(event[fields[event["event_type"]]])
        self.people, self.auctions, self.bids = kinds[PERSON], kinds[AUCTION], kinds[BID]
        self.auction = {auction["id"]: auction for auction in self.auctions}
        self.person = {person["id"]: person for person in self.people}


def _q3(events: Events) -> Rows:
    rows = {}
    for auction in events.auctions:
        person = events.person.get(auction["seller"])
        if auction["category"] == 10 and person and person["state"] in ("OR", "ID", "CA"):
            rows[str(auction["id"])] = functions.local_item(auction, person)
    return rows


def _winners(events: Events) -> dict[str, Event]:
    bids: dict[str, list[Event]] = defaultdict(list)
    for bid in events.bids:
        auction = events.auction.get(bid["auction"])
        if auction and functions.in_time(auction, bid):
            bids[str(auction["id"])].append({**bid, "category": auction["category"], "in_time": True})
    return {auction: reduce(functions.better, found) for auction, found in bids.items()}


def _q4(events: Events) -> Rows:
    prices: dict[str, list[int]] = defaultdict(list)
    for bid in _winners(events).values():
        prices[str(bid["category"])].append(bid["price"])
    return {category: float(Fraction(sum(found), len(found))) for category, found in prices.items()}


def _q5(events: Events) -> Rows:
    counts: Counter[tuple[int, str]] = Counter()
    for bid in events.bids:
        last = bid["date_time"] // _HOP_MS * _HOP_MS
        for start in range(last - _WINDOW_MS + _HOP_MS, last + 1, _HOP_MS):
            counts[start, str(bid["auction"])] += 1
    rows: dict[str, Any] = {}
    for (start, auction), number in counts.items():
        rows[str(start)] = functions.more_bids(rows.get(str(start)), auction, number)
    return rows


def _q7(events: Events) -> Rows:
    rows: dict[str, Any] = {}
    for bid in events.bids:
        key = f"all@{bid['date_time'] // _WINDOW_MS * _WINDOW_MS}"
        rows[key] = functions.highest(rows.get(key), bid)
    return rows


def _q8(events: Events) -> Rows:
    sellers = {(auction["seller"], auction["date_time"] // _WINDOW_MS) for auction in events.auctions}
    return {
        f"{person['id']}@{person['date_time'] // _WINDOW_MS * _WINDOW_MS}": {"id": person["id"], "name": person["name"]}
        for person in events.people
        if (person["id"], person["date_time"] // _WINDOW_MS) in sellers
    }


def _q11(events: Events) -> Rows:
    times: dict[int, list[int]] = defaultdict(list)
    for bid in events.bids:
        times[bid["bidder"]].append(bid["date_time"])
    rows: dict[str, Any] = {}
    for bidder, found in times.items():
        found.sort()
        start = last = found[0]
        for time in found:
            if time - last > _WINDOW_MS:
                start = time
            last = time
            rows[f"{bidder}@{start}"] = rows.get(f"{bidder}@{start}", 0) + 1
    return rows


def _statistics(events: Events, group: Callable[[Event], str]) -> Rows:
    found: dict[str, list[Event]] = defaultdict(list)
    for bid in events.bids:
        found[group(bid)].append(bid)
    rows: dict[str, Any] = {}
    for key, bids in found.items():
        row = rows[key] = {}
        for name, ranks in (("total", (1, 2, 3)), ("rank1", (1,)), ("rank2", (2,)), ("rank3", (3,))):
            chosen = [bid for bid in bids if functions.rank_of(bid["price"]) in ranks]
            row[f"{name}_bids"] = len(chosen)
            row[f"{name}_bidders"] = len({bid["bidder"] for bid in chosen})
            row[f"{name}_auctions"] = len({bid["auction"] for bid in chosen})
    return rows


def _q15(events: Events) -> Rows:
    return _statistics(events, lambda bid: functions.day_of(bid["date_time"]))


def _q16(events: Events) -> Rows:
    return _statistics(events, lambda bid: f"{bid['channel']}/{functions.day_of(bid['date_time'])}")


def _q17(events: Events) -> Rows:
    found: dict[str, list[int]] = defaultdict(list)
    for bid in events.bids:
        found[f"{bid['auction']}/{functions.day_of(bid['date_time'])}"].append(bid["price"])
    return {
        key: {
            "counts": {
                "total_bids": len(prices),
                **{f"rank{rank}_bids": sum(functions.rank_of(price) == rank for price in prices) for rank in (1, 2, 3)},
            },
            "min_price": min(prices),
            "max_price": max(prices),
            "avg_price": float(Fraction(sum(prices), len(prices))),
            "sum_price": sum(prices),
        }
        for key, prices in found.items()
    }


def _q18(events: Events) -> Rows:
    rows: dict[str, Any] = {}
    for bid in events.bids:
        key = f"{bid['bidder']}/{bid['auction']}"
        rows[key] = functions.later(rows[key], bid) if key in rows else bid
    return rows


def _q19(events: Events) -> Rows:
    found: dict[str, list[Event]] = defaultdict(list)
    for bid in events.bids:
        found[str(bid["auction"])].append(bid)
    return {
        auction: sorted(bids, key=lambda bid: (-bid["price"], bid["date_time"]))[:10] for auction, bids in found.items()
    }


def _q20(events: Events) -> Rows:
    rows = []
    for bid in events.bids:
        auction = events.auction.get(bid["auction"])
        if auction and auction["category"] == 10:
            rows.append({**bid, "category": 10, "item_name": auction["item_name"]})
    return rows


def _q21(events: Events) -> Rows:
    rows = [functions.with_channel_id(bid) for bid in events.bids]
    return [row for row in rows if row["channel_id"] is not None]


def _q2(events: Events) -> Rows:
    return [{name: bid[name] for name in ("auction", "price")} for bid in events.bids if bid["auction"] % 123 == 0]


def _q13(events: Events) -> Rows:
    return [{**bid, "value": side_text(bid["auction"] % queries.SIDE_ROWS)} for bid in events.bids]


def _q14(events: Events) -> Rows:
    return [functions.classified(bid) for bid in events.bids if 1_000_000 < bid["price"] * 0.908 < 50_000_000]


def row_of_each_place(rows: Rows) -> Rows:
    """Return the rows of query 19 for a system that writes each of the ten highest bids as a row of its own."""
    assert isinstance(rows, dict)
    return {f"{key}/{place}": bid for key, bids in rows.items() for place, bid in enumerate(bids, 1)}


def side_text(number: int) -> str:
    """Return the text of a row of the side input."""
    return f"side {number}"


RESULTS: Final[Mapping[str, Callable[[Events], Rows]]] = {
    "q0": lambda events: events.bids,
    "q1": lambda events: [functions.in_euros(bid) for bid in events.bids],
    "q2": _q2,
    "q3": _q3,
    "q4": _q4,
    "q5": _q5,
    "q7": _q7,
    "q8": _q8,
    "q9": lambda events: dict(_winners(events)),
    "q11": _q11,
    "q13": _q13,
    "q14": _q14,
    "q15": _q15,
    "q16": _q16,
    "q17": _q17,
    "q18": _q18,
    "q19": _q19,
    "q20": _q20,
    "q21": _q21,
    "q22": lambda events: [functions.with_directories(bid) for bid in events.bids],
}
"""The right results by query."""
