"""The functions of the queries: what a system in Python calls for each bid, auction or person.

Every system in Python, also one in an environment without Penstock, has them from here. Not here: the programs.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from benchmarks.nexmark.events import Event

_CHEAP, _MIDDLE = 10_000, 1_000_000
_CHANNEL_IDS: Final = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
_CHANNEL_ID: Final = re.compile(r"(?:&|^)channel_id=([^&]*)")


def day_of(time: int) -> str:
    """Return the day (UTC) of a time in ms."""
    return datetime.fromtimestamp(time / 1000, UTC).strftime("%Y-%m-%d")


def in_euros(bid: Event) -> Event:
    """Return a bid with its price in euros."""
    return {**bid, "price": bid["price"] * 0.908}


def classified(bid: Event) -> Event:
    """Return a bid in euros with its time of day and the number of the letter c in its text."""
    hour = datetime.fromtimestamp(bid["date_time"] / 1000, UTC).hour
    time = "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"
    return {
        "auction": bid["auction"],
        "bidder": bid["bidder"],
        "price": bid["price"] * 0.908,
        "bid_time_type": time,
        "date_time": bid["date_time"],
        "extra": bid["extra"],
        "c_counts": bid["extra"].count("c"),
    }


def channel_id_of(bid: Event) -> str | None:
    """Return the id of the channel of a bid, by its name or from its URL; None if it has no id."""
    known = _CHANNEL_IDS.get(bid["channel"].lower())
    if known is not None:
        return known
    found = _CHANNEL_ID.search(bid["url"])
    return found.group(1) if found else None


def with_channel_id(bid: Event) -> Event:
    """Return the row of query 21: a bid with the id of its channel, which may be None."""
    fields = ("auction", "bidder", "price", "channel")
    return {**{name: bid[name] for name in fields}, "channel_id": channel_id_of(bid)}


def with_directories(bid: Event) -> Event:
    """Return a bid with the first three directories of its URL."""
    parts = bid["url"].split("/")
    fields = ("auction", "bidder", "price", "channel")
    return {**{name: bid[name] for name in fields}, "dir1": parts[3], "dir2": parts[4], "dir3": parts[5]}


def local_item(auction: Event, person: Event) -> Event:
    """Return the row of query 3."""
    return {"name": person["name"], "city": person["city"], "state": person["state"], "id": auction["id"]}


def in_time(auction: Event, bid: Event) -> bool:
    """Return whether a bid came while its auction was open."""
    return bool(auction["date_time"] <= bid["date_time"] <= auction["expires"])


def better(one: Event, other: Event) -> Event:
    """Return the bid with the higher price; of equal ones the earlier, then that of the smaller bidder."""
    return min(one, other, key=lambda bid: (-bid["price"], bid["date_time"], bid["bidder"]))


def more_bids(best: Event | None, auction: str, bids: int) -> Event:
    """Return the auctions with the most bids, once `auction` has so many."""
    if best is None or bids > best["bids"]:
        return {"bids": bids, "auctions": [auction]}
    if bids == best["bids"] and auction not in best["auctions"]:
        return {"bids": bids, "auctions": sorted([*best["auctions"], auction])}
    return best


def highest(best: Event | None, bid: Event) -> Event:
    """Return the bids with the highest price of a window, once `bid` has come."""
    row = [bid["auction"], bid["bidder"], bid["date_time"]]
    if best is None or bid["price"] > best["price"]:
        return {"price": bid["price"], "bids": [row]}
    if bid["price"] == best["price"]:
        return {"price": bid["price"], "bids": sorted([*best["bids"], row])}
    return best


def rank_of(price: int) -> int:
    """Return 1 for a cheap bid, 2 for one in the middle, 3 for an expensive one."""
    return 1 if price < _CHEAP else 2 if price < _MIDDLE else 3


def later(one: Event, other: Event) -> Event:
    """Return the bid that came later; of bids of the same time the one with the higher price."""
    return max(one, other, key=lambda bid: (bid["date_time"], bid["price"]))


def highest_ten(best: list[Event] | None, bid: Event) -> list[Event]:
    """Return the ten highest bids, once `bid` has come; of equal ones the earlier."""
    return sorted([*(best or []), bid], key=lambda each: (-each["price"], each["date_time"]))[:10]


def price_statistics(row: Event | None, bid: Event) -> Event:
    """Return the row of query 17 with one more bid."""
    price = bid["price"]
    row = row or {"counts": {}, "min_price": price, "max_price": price, "sum_price": 0}
    counts = {**dict.fromkeys(("total_bids", "rank1_bids", "rank2_bids", "rank3_bids"), 0), **row["counts"]}
    counts["total_bids"] += 1
    counts[f"rank{rank_of(price)}_bids"] += 1
    total = row["sum_price"] + price
    return {
        "counts": counts,
        "min_price": min(row["min_price"], price),
        "max_price": max(row["max_price"], price),
        "avg_price": total / counts["total_bids"],
        "sum_price": total,
    }
