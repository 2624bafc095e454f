"""The events of Nexmark: people, the auctions that they open, and the bids on these.

Proportions, hot auctions and sizes are those of the generator of Beam and Flink. Events of one seed are always the
same, and an event needs no other events, so that several processes can write parts of a run. Not here: the queries.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, Final, Literal

PERSON: Final = 0
AUCTION: Final = 1
BID: Final = 2
"""The values of `event_type`."""

FIRST_ID: Final = 1000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
EVENTS_PER_SECOND: Final = 10_000
"""Events in one second of event time."""

FIRST_TIMESTAMP_MS: Final = 1_700_000_000_000 // 86_400_000 * 86_400_000
"""The time of the first event: the beginning of a day (UTC)."""

_EPOCH: Final = 50  # one person, three auctions and 46 bids
_AUCTIONS_PER_EPOCH: Final = 3
_ACTIVE_PEOPLE: Final = 1000
_AUCTIONS_IN_FLIGHT: Final = 100
_PEOPLE_AHEAD: Final = 10
_AUCTIONS_AHEAD: Final = 10
_HOT: Final = 100  # one auction, seller and bidder of so many is hot
_HOT_AUCTION_RATIO: Final = 2
_HOT_PERSON_RATIO: Final = 4
_CHANNELS: Final = 10_000
_BYTES: Final = {PERSON: 200, AUCTION: 500, BID: 100}

_STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES: Final = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_FIRST_NAMES: Final = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES: Final = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"

Event = dict[str, Any]


def timestamp_of(number: int) -> int:
    """Return the time (ms) of the event of this number."""
    return FIRST_TIMESTAMP_MS + number * 1000 // EVENTS_PER_SECOND


def events(count: int, seed: int = 1, first: int = 0) -> Iterator[Event]:
    """Yield the events from number `first` on."""
    for number in range(first, first + count):
        yield event(number, seed)


def encoded(event_: Event) -> bytes:
    """Return an event as JSON without spaces."""
    return json.dumps(event_, separators=(",", ":")).encode()


def event(number: int, seed: int = 1) -> Event:
    """Return the event of this number: its type, and its person, auction or bid (the others are null)."""
    draw = random.Random(number * 1_000_003 + seed)
    kind = kind_of(number)
    made: dict[str, Event | None] = {"person": None, "auction": None, "bid": None}
    if kind == PERSON:
        made["person"] = _person(number, draw)
    elif kind == AUCTION:
        made["auction"] = _auction(number, draw)
    else:
        made["bid"] = _bid(number, draw)
    return {"event_type": kind, **made}


def kind_of(number: int) -> Literal[0, 1, 2]:
    """Return the type of the event of this number."""
    offset = number % _EPOCH
    if offset == 0:
        return PERSON
    return AUCTION if offset <= _AUCTIONS_PER_EPOCH else BID


def _person(number: int, draw: random.Random) -> Event:
    first, last = draw.choice(_FIRST_NAMES), draw.choice(_LAST_NAMES)
    person = {
        "id": FIRST_ID + _last_person(number),
        "name": f"{first} {last}",
        "email_address": f"{_text(draw, 7)}@{_text(draw, 5)}.com",
        "credit_card": " ".join(f"{draw.randrange(10_000):04d}" for _ in range(4)),
        "city": draw.choice(_CITIES),
        "state": draw.choice(_STATES),
        "date_time": timestamp_of(number),
    }
    return _padded(person, PERSON, draw)


def _auction(number: int, draw: random.Random) -> Event:
    initial = _price(draw)
    begin = timestamp_of(number)
    horizon = timestamp_of(number + _AUCTIONS_IN_FLIGHT * _EPOCH // _AUCTIONS_PER_EPOCH) - begin
    auction = {
        "id": FIRST_ID + _last_auction(number),
        "item_name": _text(draw, 20),
        "description": _text(draw, 100),
        "initial_bid": initial,
        "reserve": initial + _price(draw),
        "date_time": begin,
        "expires": begin + 1 + draw.randrange(max(2 * horizon, 1)),
        "seller": FIRST_ID + _drawn_person(number, draw, 0),
        "category": FIRST_CATEGORY + draw.randrange(CATEGORIES),
    }
    return _padded(auction, AUCTION, draw)


def _bid(number: int, draw: random.Random) -> Event:
    last = _last_auction(number)
    if draw.randrange(_HOT_AUCTION_RATIO) > 0:
        auction = last // _HOT * _HOT
    else:
        auction = draw.randint(max(last - _AUCTIONS_IN_FLIGHT, 0), last + _AUCTIONS_AHEAD)
    channel, url = _channel(draw)
    bid = {
        "auction": FIRST_ID + auction,
        "bidder": FIRST_ID + _drawn_person(number, draw, 1),
        "price": _price(draw),
        "channel": channel,
        "url": url,
        "date_time": timestamp_of(number),
    }
    return _padded(bid, BID, draw)


def _last_person(number: int) -> int:
    """Return the number of the last person that an event can name."""
    return number // _EPOCH


def _last_auction(number: int) -> int:
    """Return the number of the last auction that an event can name."""
    epoch, offset = divmod(number, _EPOCH)
    if offset == 0:
        return max(epoch * _AUCTIONS_PER_EPOCH - 1, 0)
    return epoch * _AUCTIONS_PER_EPOCH + min(offset, _AUCTIONS_PER_EPOCH) - 1


def _drawn_person(number: int, draw: random.Random, hot: int) -> int:
    """Return a seller (hot 0) or bidder (hot 1): often a hot person, else one that is active."""
    last = _last_person(number)
    if draw.randrange(_HOT_PERSON_RATIO) > 0:
        return last // _HOT * _HOT + hot
    active = min(last + 1, _ACTIVE_PEOPLE)
    return last + 1 - active + draw.randrange(active + _PEOPLE_AHEAD)


def _price(draw: random.Random) -> int:
    """Return a price in cents, from 100 to 100,000,000; all orders of magnitude are as likely."""
    return round(10 ** (draw.random() * 6) * 100)


def _channel(draw: random.Random) -> tuple[str, str]:
    """Return the channel of a bid and its URL; a tenth of the rare channels have no id in their URL."""
    path = "/".join(_text(draw, 5) for _ in range(3))
    url = f"https://www.nexmark.com/{path}/item.htm?query=1"
    if draw.randrange(2) > 0:
        return draw.choice(_HOT_CHANNELS), url
    number = draw.randrange(_CHANNELS)
    if draw.randrange(10) > 0:
        url += f"&channel_id={int(f'{number:032b}'[::-1], 2)}"
    return f"channel-{number}", url


def _text(draw: random.Random, length: int) -> str:
    return "".join(draw.choices(_LETTERS, k=length))


def _padded(fields: Event, kind: int, draw: random.Random) -> Event:
    """Return the fields with text that brings them near the mean size of their type."""
    size = sum(len(str(value)) for value in fields.values())
    return {**fields, "extra": _text(draw, max(_BYTES[kind] - size, 8))}
