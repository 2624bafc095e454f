"""The queries of Nexmark as topologies: each reads the topic of events and writes one topic of results.

The programs are written as a user would write them. A query whose results are updates has a key for each row of its
result, and the last value of a key counts; the other queries write each row of their result once. The right results are
in `results.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Final

from benchmarks.nexmark.events import AUCTION, BID, PERSON, Event
from benchmarks.nexmark.functions import (
    better,
    classified,
    day_of,
    highest,
    in_euros,
    in_time,
    later,
    local_item,
    more_bids,
    rank_of,
    with_channel_id,
    with_directories,
)
from penstock import (
    Consumed,
    Grouped,
    JoinWindows,
    KeyValue,
    KStream,
    KTable,
    Materialized,
    Produced,
    Serdes,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
    Windowed,
)
from penstock.aggregations import Aggregation, combined, count, mean, top
from penstock.aggregations import max as maximum
from penstock.aggregations import min as minimum
from penstock.aggregations import sum as total

INPUT: Final = "nexmark-events"
SIDE_INPUT: Final = "nexmark-side-input"
OUTPUT: Final = "nexmark-results"
TEXT: Final = Serdes.string()
JSON: Final = Serdes.json()
GRACE_MS: Final = 10_000
"""How much later than its window's end a record may come: partitions are not read at the same speed."""

SIDE_ROWS: Final = 10_000
"""Rows of the side input: keys 0 to 9,999, each with a text."""

_WINDOW_MS: Final = 10_000
_HOP_MS: Final = 2_000
_AUCTION_MS: Final = 10_000  # longer than any auction and any bid's delay
_DAY_MS: Final = 86_400_000
_BEST: Final = 10

Rows = KStream[str, Any]


@dataclass(frozen=True)
class Query:
    """One query.

    build: adds its program to a builder. asks: the question. side: whether it reads the side input too.
    """

    name: str
    build: Callable[[StreamsBuilder], None]
    asks: str
    side: bool = False


# ---------------------------------------- what the queries share


def _events(builder: StreamsBuilder) -> KStream[Any, Event]:
    return builder.stream(INPUT, Consumed.with_(TEXT, JSON))


def _bids(builder: StreamsBuilder) -> KStream[Any, Event]:
    return _events(builder).filter(lambda _, event: event["event_type"] == BID).map_values(lambda event: event["bid"])


def _auctions(events: KStream[Any, Event]) -> KStream[str, Event]:
    auctions = events.filter(lambda _, event: event["event_type"] == AUCTION)
    return auctions.map(lambda _, event: KeyValue(str(event["auction"]["id"]), event["auction"]))


def _people(events: KStream[Any, Event]) -> KStream[str, Event]:
    people = events.filter(lambda _, event: event["event_type"] == PERSON)
    return people.map(lambda _, event: KeyValue(str(event["person"]["id"]), event["person"]))


def _bids_by_auction(events: KStream[Any, Event]) -> KStream[str, Event]:
    bids = events.filter(lambda _, event: event["event_type"] == BID)
    return bids.map(lambda _, event: KeyValue(str(event["bid"]["auction"]), event["bid"]))


def _stored() -> Materialized:
    return Materialized.with_(TEXT, JSON)


def _grouped() -> Grouped:
    return Grouped.with_(TEXT, JSON)


def _write(rows: KStream[Any, Any]) -> None:
    rows.to(OUTPUT, Produced.with_(TEXT, JSON))


def _window_key(windowed: Windowed[str], _: object = None) -> str:
    return f"{windowed.key}@{windowed.window.start}"


# ---------------------------------------- bid by bid


def _q0(builder: StreamsBuilder) -> None:
    _write(_bids(builder))


def _q1(builder: StreamsBuilder) -> None:
    _write(_bids(builder).map_values(in_euros))


def _q2(builder: StreamsBuilder) -> None:
    chosen = _bids(builder).filter(lambda _, bid: bid["auction"] % 123 == 0)
    _write(chosen.map_values(lambda bid: {"auction": bid["auction"], "price": bid["price"]}))


def _q13(builder: StreamsBuilder) -> None:
    side = builder.global_table(SIDE_INPUT, Consumed.with_(TEXT, TEXT))
    joined = _bids(builder).join(
        side,
        lambda bid, text: {**bid, "value": text},
        key_selector=lambda _, bid: str(bid["auction"] % SIDE_ROWS),
    )
    _write(joined)


def _q14(builder: StreamsBuilder) -> None:
    chosen = _bids(builder).filter(lambda _, bid: 1_000_000 < bid["price"] * 0.908 < 50_000_000)
    _write(chosen.map_values(classified))


def _q21(builder: StreamsBuilder) -> None:
    with_id = _bids(builder).map_values(with_channel_id)
    _write(with_id.filter(lambda _, bid: bid["channel_id"] is not None))


def _q22(builder: StreamsBuilder) -> None:
    _write(_bids(builder).map_values(with_directories))


# ---------------------------------------- joins


def _q3(builder: StreamsBuilder) -> None:
    events = _events(builder)
    auctions = _auctions(events).filter(lambda _, auction: auction["category"] == 10).to_table(materialized=_stored())
    people = (
        _people(events).filter(lambda _, person: person["state"] in ("OR", "ID", "CA")).to_table(materialized=_stored())
    )
    found = auctions.join(people, local_item, foreign_key_extractor=lambda auction: str(auction["seller"]))
    _write(found.to_stream())


def _bids_with_auctions(builder: StreamsBuilder, joined: Callable[[Event, Event], Any]) -> KStream[str, Any]:
    """Join each bid with its auction; bids may come before their auction."""
    events = _events(builder)
    windows = JoinWindows.of_time_difference_and_grace(_AUCTION_MS, GRACE_MS)
    return _bids_by_auction(events).join(
        _auctions(events), joined, windows, stream_joined=StreamJoined.with_(TEXT, JSON, JSON)
    )


def _winning_bids(builder: StreamsBuilder) -> KTable[str, Event]:
    bids = _bids_with_auctions(
        builder,
        lambda bid, auction: {**bid, "category": auction["category"], "in_time": in_time(auction, bid)},
    )
    in_the_auction = bids.filter(lambda _, bid: bid["in_time"])
    return in_the_auction.group_by_key(_grouped()).reduce(better, _stored())


def _q4(builder: StreamsBuilder) -> None:
    prices = _winning_bids(builder).group_by(
        lambda _, bid: KeyValue(str(bid["category"]), bid["price"]), Grouped.with_(TEXT, Serdes.long())
    )
    _write(prices.aggregate(mean(), materialized=Materialized.with_(TEXT, None)).to_stream())


def _q9(builder: StreamsBuilder) -> None:
    _write(_winning_bids(builder).to_stream())


def _q20(builder: StreamsBuilder) -> None:
    bids = _bids_with_auctions(
        builder, lambda bid, auction: {**bid, "category": auction["category"], "item_name": auction["item_name"]}
    )
    _write(bids.filter(lambda _, bid: bid["category"] == 10))


def _q8(builder: StreamsBuilder) -> None:
    events = _events(builder)
    windows = TimeWindows.of_size_and_grace(_WINDOW_MS, GRACE_MS)
    people = _people(events).map_values(lambda person: person["name"])
    names = people.group_by_key(_grouped()).windowed_by(windows).reduce(lambda _, name: name, _stored())
    auctions = _auctions(events).map(lambda _, auction: KeyValue(str(auction["seller"]), auction["seller"]))
    sellers = auctions.group_by_key(_grouped()).windowed_by(windows).reduce(lambda _, seller: seller, _stored())
    new = names.join(sellers, lambda name, seller: {"id": seller, "name": name})
    _write(new.to_stream(_window_key))


# ---------------------------------------- windows


def _q5(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of_size_and_grace(_WINDOW_MS, GRACE_MS).advance_by(_HOP_MS)
    bids = _bids_by_auction(_events(builder))
    counts = bids.group_by_key(_grouped()).windowed_by(windows).count(Materialized.with_(TEXT, Serdes.long()))
    pairs = counts.to_stream().map(
        lambda windowed, bids: KeyValue(str(windowed.window.start), {"auction": windowed.key, "bids": bids})
    )
    best = pairs.group_by_key(_grouped()).aggregate(
        lambda: None, lambda _, pair, best: more_bids(best, pair["auction"], pair["bids"]), _stored()
    )
    _write(best.to_stream())


def _q7(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of_size_and_grace(_WINDOW_MS, GRACE_MS)
    bids = _bids(builder).group_by(lambda _, bid: "all", _grouped()).windowed_by(windows)
    best = bids.aggregate(lambda: None, lambda _, bid, best: highest(best, bid), _stored())
    _write(best.to_stream(_window_key))


def _q11(builder: StreamsBuilder) -> None:
    windows = SessionWindows.of_inactivity_gap_and_grace(_WINDOW_MS, GRACE_MS)
    bids = _bids(builder).group_by(lambda _, bid: str(bid["bidder"]), _grouped()).windowed_by(windows)
    _write(bids.count(Materialized.with_(TEXT, Serdes.long())).to_stream(_window_key))


# ---------------------------------------- statistics


def _counts_by_rank(whole: str) -> Aggregation[Any, Any]:
    """Return the aggregation that counts bids: all, and those of each rank."""
    ranks = {f"rank{rank}_{whole}": count(partial(_if_of_rank, rank)) for rank in (1, 2, 3)}
    return combined(**{f"total_{whole}": count()}, **ranks)


def _if_of_rank(rank: int, bid: Event) -> Event | None:
    return bid if rank_of(bid["price"]) == rank else None


def _statistics(
    bids: KStream[Any, Event], group: Callable[[Event], str], counted: str, name: str
) -> KTable[str, Event]:
    """Return, for each group, the number of bids and of distinct values of a field, all and by rank.

    The counts of each pair of group and value are a table, whose rows are counted again by group: a value is distinct
    once, whatever its number of bids.
    """
    pairs = bids.group_by(lambda _, bid: f"{group(bid)}/{bid[counted]}", _grouped())
    by_pair = pairs.aggregate(_counts_by_rank("bids"), materialized=_stored())
    by_group = by_pair.group_by(lambda pair, counts: KeyValue(pair.rpartition("/")[0], counts), _grouped())
    bids_of = {part: total(itemgetter(part)) for part in ("total_bids", "rank1_bids", "rank2_bids", "rank3_bids")}
    distinct = {part.replace("bids", name): count(partial(_if_any, part)) for part in bids_of}
    return by_group.aggregate(combined(**bids_of, **distinct), materialized=_stored())


def _if_any(part: str, counts: Event) -> int | None:
    return counts[part] or None


def _both(builder: StreamsBuilder, group: Callable[[Event], str]) -> None:
    bids = _bids(builder)
    bidders = _statistics(bids, group, "bidder", "bidders")
    auctions = _statistics(bids, group, "auction", "auctions")
    _write(bidders.join(auctions, lambda one, other: {**one, **other}, materialized=_stored()).to_stream())


def _q15(builder: StreamsBuilder) -> None:
    _both(builder, lambda bid: day_of(bid["date_time"]))


def _q16(builder: StreamsBuilder) -> None:
    _both(builder, lambda bid: f"{bid['channel']}/{day_of(bid['date_time'])}")


def _q17(builder: StreamsBuilder) -> None:
    groups = _bids(builder).group_by(lambda _, bid: f"{bid['auction']}/{day_of(bid['date_time'])}", _grouped())
    price = itemgetter("price")
    prices = combined(
        counts=_counts_by_rank("bids"),
        min_price=minimum(price),
        max_price=maximum(price),
        avg_price=mean(price),
        sum_price=total(price),
    )
    _write(groups.aggregate(prices, materialized=_stored()).to_stream())


def _q18(builder: StreamsBuilder) -> None:
    bids = _bids(builder).group_by(lambda _, bid: f"{bid['bidder']}/{bid['auction']}", _grouped())
    _write(bids.reduce(later, _stored()).to_stream())


def _q19(builder: StreamsBuilder) -> None:
    bids = _bids_by_auction(_events(builder)).group_by_key(_grouped())
    best = bids.aggregate(top(_BEST, by=lambda bid: (bid["price"], -bid["date_time"])), materialized=_stored())
    _write(best.to_stream())


QUERIES: Final[Mapping[str, Query]] = {
    query.name: query
    for query in (
        Query("q0", _q0, "each bid"),
        Query("q1", _q1, "each bid in euros"),
        Query("q2", _q2, "bids on some auctions"),
        Query("q3", _q3, "who sells items of a category in three states"),
        Query("q4", _q4, "mean price of the winning bids of each category"),
        Query("q5", _q5, "auctions with the most bids, in hopping windows"),
        Query("q7", _q7, "bids with the highest price of each window"),
        Query("q8", _q8, "people who are new and sell within a window"),
        Query("q9", _q9, "winning bid of each auction"),
        Query("q11", _q11, "number of bids in each session of a bidder"),
        Query("q13", _q13, "bids joined with a bounded table", side=True),
        Query("q14", _q14, "bids with computed fields"),
        Query("q15", _q15, "bids, bidders and auctions of each day"),
        Query("q16", _q16, "bids, bidders and auctions of each channel and day"),
        Query("q17", _q17, "statistics of the prices of each auction and day"),
        Query("q18", _q18, "last bid of a bidder on an auction"),
        Query("q19", _q19, "ten highest bids of each auction"),
        Query("q20", _q20, "bids joined with their auctions, of one category"),
        Query("q21", _q21, "bids with the id of their channel"),
        Query("q22", _q22, "bids with the directories of their URL"),
    )
}
"""The queries, by name."""

LEFT_OUT: Final[Mapping[str, str]] = {
    "q6": "the last ten auctions of a seller depend on the order in which auctions end; Flink leaves it out",
    "q10": "its result is files by time, not a topic",
    "q12": "its windows are of processing time, so no two runs have the same result",
}
"""The queries that are not here, each with the reason."""
