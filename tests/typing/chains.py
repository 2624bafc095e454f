"""Types through chains of operators: read by mypy and pyright alone (tests/typing/test_typing.py), never run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

from penstock import (
    NOT_CALLED,
    Backoff,
    BufferConfig,
    CalendarWindows,
    CallContext,
    Calls,
    Consumed,
    EmitStrategy,
    FixedKeyProcessor,
    FixedKeyRecord,
    GlobalKTable,
    JoinWindows,
    KGroupedStream,
    KStream,
    KTable,
    Materialized,
    NotCalled,
    Park,
    Processor,
    Record,
    Retry,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Windowed,
    aggregations,
    model,
    vectorized,
)


@dataclass(frozen=True)
class Trade:
    ticker: str
    price: float


@dataclass(frozen=True)
class Company:
    name: str


def words_of(key: str, line: str) -> Iterable[str]:
    return line.split()


def sum_of_sessions(key: str, one: float, other: float) -> float:
    return one + other


def count_trade(key: str, trade: Trade, total: int) -> int:
    return total + 1


async def length(line: str) -> int:
    return len(line)


async def known(key: str, line: str, *, client: object, call: CallContext) -> float | NotCalled:
    return NOT_CALLED if call.attempt == 1 else 0.5


async def asked(key: str, line: str, *, client: object, call: CallContext) -> float:
    return call.attempt / 2


def blocking(line: str, *, client: object) -> int:
    return len(line)


def blocking_words(line: str, *, client: object) -> list[str]:
    return line.split()


def blocking_key(key: str, line: str, *, client: object) -> int:
    return len(key)


def blocking_pair(key: str, line: str, *, client: object) -> tuple[int, str]:
    return len(key), line


def blocking_check(key: str, line: str, *, client: object) -> bool:
    return len(line) < 10


async def split(line: str) -> list[str]:
    return line.split()


async def pair(key: str, line: str) -> tuple[int, str]:
    return len(key), line


async def pairs(key: str, line: str) -> list[tuple[int, str]]:
    return [(len(key), line)]


async def is_short(key: str, line: str) -> bool:
    return len(line) < 10


def blocking_length(line: str, *, client: object, call: CallContext) -> int:
    return len(line)


class Asking(Processor[str, str, str, int]):
    def process(self, record: Record[str, str]) -> None:
        self.context.call(length, record.value)
        self.context.call(blocking_length, record.value, key=record.key)

    def answered(self, record: Record[str, Any], answer: int) -> None:
        assert_type(record.key, str)
        self.context.forward(record.with_value(answer))


class AskingValues(FixedKeyProcessor[str, str, int]):
    def process(self, record: FixedKeyRecord[str, str]) -> None:
        self.context.call(length, record.value)

    def answered(self, record: FixedKeyRecord[str, str], answer: int) -> None:
        self.context.forward(record.with_value(answer))


builder = StreamsBuilder()
lines = builder.stream("lines", Consumed.with_(key_serde=Serdes.string(), value_serde=Serdes.string()))
trades = builder.stream("trades", Consumed.with_(key_serde=Serdes.string(), value_serde=Serdes.json(Trade)))
companies = builder.table("companies", Consumed.with_(key_serde=Serdes.string(), value_serde=Serdes.json(Company)))
markets = builder.global_table("markets", Consumed.with_(key_serde=Serdes.integer(), value_serde=Serdes.double()))

# sources
assert_type(lines, KStream[str, str])
assert_type(companies, KTable[str, Company])
assert_type(markets, GlobalKTable[int, float])
assert_type(builder.stream("untyped"), KStream[Any, Any])
assert_type(Consumed.as_("a").with_value_serde(Serdes.long()), Consumed[Any, int])

# stateless operators
assert_type(lines.filter(lambda key, line: line.startswith(key)), KStream[str, str])
assert_type(lines.map_values(len), KStream[str, int])
assert_type(lines.map_values(lambda line: line.split()), KStream[str, list[str]])
assert_type(lines.map_values(lambda key, line: (key, len(line))), KStream[str, tuple[str, int]])
park = Park(backoff=Backoff(timedelta(seconds=1), factor=4, limit=timedelta(hours=1)), attempts=6, then="failed")
assert_type(lines.map_values(len, "sizes", on_error=park), KStream[str, int])
assert_type(lines.map(lambda key, line: (len(line), key), on_error=park), KStream[int, str])
assert_type(lines.filter(lambda key, line: True, on_error=park), KStream[str, str])
assert_type(lines.flat_map_values(words_of), KStream[str, str])
calls = Calls(capacity=10, timeout=timedelta(seconds=5), retry=Retry(attempts=3), order="key")
assert_type(lines.map_values(length, "lengths", calls=calls), KStream[str, int])
assert_type(lines.map_values(asked, calls=calls), KStream[str, float])
assert_type(lines.map_values(asked, calls=Calls(reconcile=known)), KStream[str, float])
assert_type(lines.map_values(len, calls=Calls(threads=4)), KStream[str, int])
threads = Calls(threads=4)
assert_type(lines.map_values(blocking, calls=threads), KStream[str, int])
assert_type(lines.flat_map_values(blocking_words, calls=threads), KStream[str, str])
assert_type(lines.map(blocking_pair, calls=threads), KStream[int, str])
assert_type(lines.select_key(blocking_key, calls=threads), KStream[int, str])
assert_type(lines.group_by(blocking_key, calls=threads), KGroupedStream[int, str])
assert_type(lines.filter(blocking_check, calls=threads), KStream[str, str])
assert_type(lines.peek(blocking_key, calls=threads), KStream[str, str])
assert_type(lines.flat_map_values(split, calls=calls), KStream[str, str])
assert_type(lines.map(pair, calls=calls), KStream[int, str])
assert_type(lines.flat_map(pairs, calls=calls), KStream[int, str])
assert_type(lines.filter(is_short, calls=calls), KStream[str, str])
assert_type(lines.filter_not(is_short, calls=calls), KStream[str, str])
assert_type(lines.peek(is_short, calls=calls), KStream[str, str])
assert_type(lines.select_key(asked, calls=calls), KStream[float, str])
assert_type(lines.group_by(asked, calls=calls), KGroupedStream[float, str])
lines.foreach(is_short, "send", calls=calls)
lines.process(Asking, named="ask", calls=threads, call_functions=(length, blocking_length))
assert_type(lines.process_values(AskingValues, calls=calls, call_functions=[length]), KStream[str, Any])
assert_type(lines.flat_map_values(lambda line: line.encode()), KStream[str, int])
assert_type(lines.map(lambda key, line: (len(key), line)), KStream[int, str])
assert_type(lines.flat_map(lambda key, line: [(len(line), key)]), KStream[int, str])
assert_type(trades.select_key(lambda key, trade: trade.price), KStream[float, Trade])
assert_type(lines.merge(lines).repartition().peek(print), KStream[str, str])
assert_type(lines.merge(lines).broadcast().peek(print), KStream[str, str])
assert_type(lines.split().branch(lambda key, line: not line).default_branch(), dict[str, KStream[str, str]])
assert_type(lines.to_table().to_stream(lambda key, line: len(key)), KStream[int, str])
assert_type(lines.deduplicate_by_key(60_000), KStream[str, str])
assert_type(lines.deduplicate_by_key(60_000).late_to("duplicates"), KStream[str, str])
assert_type(lines.group_by_key().count().late_to("dropped"), KTable[str, int])
assert_type(trades.deduplicate_by_key_value(lambda key, trade: trade.price, 60_000), KStream[str, Trade])

# aggregations
by_price = trades.group_by(lambda key, trade: int(trade.price))
assert_type(by_price, KGroupedStream[int, Trade])
assert_type(by_price.count(), KTable[int, int])
assert_type(lines.group_by_key().reduce(lambda one, other: one + other), KTable[str, str])
assert_type(trades.group_by_key().aggregate(float, lambda key, trade, total: total + trade.price), KTable[str, float])
minutes = trades.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(60_000))
assert_type(minutes.count().to_stream(), KStream[Windowed[str], int])
assert_type(minutes.count().to_stream(lambda windowed, count: windowed.key), KStream[str, int])
tens = trades.group_by_key().count_windows(10)
assert_type(tens.count(), KStream[str, int])
assert_type(tens.reduce(lambda one, other: other), KStream[str, Trade])
assert_type(tens.aggregate(float, lambda key, trade, total: total + trade.price), KStream[str, float])
assert_type(tens.aggregate(aggregations.mean(lambda trade: trade.price)), KStream[str, float])
months = trades.group_by_key().windowed_by(CalendarWindows.months("Europe/Berlin", 0))
assert_type(months.count().to_stream(), KStream[Windowed[str], int])
sessions = trades.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(60_000))
assert_type(
    sessions.aggregate(float, lambda key, trade, total: total + trade.price, sum_of_sessions),
    KTable[Windowed[str], float],
)
assert_type(
    trades.group_by_key()
    .cogroup(count_trade)
    .cogroup(lines.group_by_key(), lambda key, line, total: total + len(line))
    .aggregate(int),
    KTable[str, int],
)
assert_type(companies.group_by(lambda key, company: (company.name, 1)).count(), KTable[str, int])
assert_type(companies.suppress(Suppressed.until_time_limit(1_000, BufferConfig.unbounded())), KTable[str, Company])
assert_type(minutes.emit_strategy(EmitStrategy.on_window_close()).count(), KTable[Windowed[str], int])
assert_type(sessions.emit_strategy(EmitStrategy.on_window_close()).count(), KTable[Windowed[str], int])
assert_type(
    companies.group_by(lambda key, company: (len(key), company.name)).reduce(
        lambda one, name: one + name, lambda one, name: one
    ),
    KTable[int, str],
)

# ready aggregations
assert_type(trades.group_by_key().aggregate(aggregations.mean(lambda trade: trade.price)), KTable[str, float])
assert_type(minutes.aggregate(aggregations.top(3, by=lambda trade: trade.price)), KTable[Windowed[str], list[Trade]])
assert_type(sessions.aggregate(aggregations.sum(lambda trade: trade.price)), KTable[Windowed[str], float])
assert_type(lines.group_by_key().aggregate(aggregations.approx_distinct()), KTable[str, int])
assert_type(
    companies.group_by(lambda key, company: (company.name, 1.5)).aggregate(aggregations.mean()), KTable[str, float]
)
assert_type(
    lines.group_by_key().aggregate(
        aggregations.combined(longest=aggregations.max(len), number=aggregations.count()),
        materialized=Materialized.as_("summary"),
    ),
    KTable[str, dict[str, Any]],
)

# joins
assert_type(
    trades.join(lines, lambda trade, line: (trade.price, line), JoinWindows.of_time_difference_with_no_grace(5)),
    KStream[str, tuple[float, str]],
)
assert_type(
    trades.left_join(lines, lambda trade, line: line, JoinWindows.of_time_difference_with_no_grace(5)),
    KStream[str, str | None],
)
assert_type(trades.join(companies, lambda trade, company: company.name), KStream[str, str])
assert_type(trades.join(companies, lambda key, trade, company: (key, company)), KStream[str, tuple[str, Company]])
assert_type(trades.left_join(companies, lambda trade, company: company), KStream[str, Company | None])
assert_type(
    trades.join(markets, lambda trade, rate: trade.price * rate, key_selector=lambda key, trade: int(trade.price)),
    KStream[str, float],
)
assert_type(
    trades.join(
        markets,
        lambda key, market, trade, rate: (key, market, trade.price * rate),
        key_selector=lambda key, trade: int(trade.price),
    ),
    KStream[str, tuple[str, int, float]],
)
assert_type(
    trades.left_join(
        markets,
        lambda key, market, trade, rate: (key, market, trade, rate),
        key_selector=lambda key, trade: int(trade.price),
    ),
    KStream[str, tuple[str, int | None, Trade, float | None]],
)
counts = by_price.count()
assert_type(counts.join(counts, lambda one, other: one - other), KTable[int, int])
assert_type(counts.outer_join(counts, lambda one, other: one or other), KTable[int, int | None])
assert_type(
    companies.join(counts, lambda company, count: count, foreign_key_extractor=lambda company: len(company.name)),
    KTable[str, int],
)

# the whole of a word count
assert_type(
    lines.flat_map_values(lambda line: line.lower().split()).group_by(lambda key, word: word).count().to_stream(),
    KStream[str, int],
)

# the first records
assert_type(trades.head(5)[0], Record[str, Trade])
assert_type([update.value for update in companies.head()], list[Company | None])

# functions on columns


@vectorized
def halves(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return values / 2


@vectorized
def long_names(keys: npt.NDArray[np.object_], values: npt.NDArray[np.object_]) -> npt.NDArray[np.bool_]:
    return np.array([len(key) > len(value) for key, value in zip(keys, values, strict=True)])


@vectorized
def lengths(values: list[str]) -> list[int]:
    return [len(value) for value in values]


@vectorized
def paired(keys: list[str], values: list[str]) -> list[tuple[str, int]]:
    return [(key, len(value)) for key, value in zip(keys, values, strict=True)]


@vectorized
def words(values: list[str]) -> list[list[str]]:
    return [value.split() for value in values]


@vectorized
def same(keys: list[str], values: list[str]) -> list[bool]:
    return [key == value for key, value in zip(keys, values, strict=True)]


@model(batch_size=32)
def scorer() -> Callable[[list[Trade]], list[float]]:
    return lambda trades: [trade.price for trade in trades]


@model()
def of_pairs() -> Callable[[list[str], list[Trade]], list[int]]:
    return lambda keys, trades: [len(key) for key in keys]


@vectorized
async def judged(trades: list[Trade], *, client: object) -> list[float | Exception]:
    return [trade.price for trade in trades]


@vectorized
async def measured(keys: list[str], values: list[str]) -> list[int]:
    return [len(value) for value in values]


@vectorized
def looked_up(trades: list[Trade], *, client: object) -> list[str]:
    return ["" for _ in trades]


@vectorized
async def approved(keys: list[str], values: list[str]) -> list[bool]:
    return [True for _ in keys]


@vectorized
async def turned(keys: list[str], values: list[str]) -> list[tuple[int, str]]:
    return [(len(value), key) for key, value in zip(keys, values, strict=True)]


@vectorized
async def letters(keys: list[str], values: list[str]) -> list[list[tuple[str, int]]]:
    return [[(letter, len(key)) for letter in value] for key, value in zip(keys, values, strict=True)]


@model()
def remote() -> Callable[[list[Trade]], Awaitable[list[float]]]:
    async def score(trades: list[Trade]) -> list[float]:
        return [trade.price for trade in trades]

    return score


batches = Calls(batch_size=64, batch_wait=timedelta(milliseconds=20), open=nullcontext)
assert_type(trades.map_values(judged, calls=batches), KStream[str, float])
assert_type(lines.map_values(measured, calls=batches), KStream[str, int])
assert_type(lines.select_key(measured, calls=batches), KStream[int, str])
assert_type(lines.group_by(measured, calls=batches), KGroupedStream[int, str])
assert_type(lines.filter(approved, calls=batches).filter_not(approved, calls=batches), KStream[str, str])
assert_type(lines.peek(approved, calls=batches), KStream[str, str])
assert_type(lines.map(turned, calls=batches), KStream[int, str])
assert_type(lines.flat_map(letters, calls=batches), KStream[str, int])
assert_type(trades.map_values(looked_up, calls=Calls(threads=1, open=nullcontext)), KStream[str, str])
assert_type(trades.map_values(remote, calls=Calls(batch_wait=10)), KStream[str, float])
assert_type(trades.map_values(scorer), KStream[str, float])
assert_type(trades.map_values(of_pairs), KStream[str, int])
assert_type(trades.select_key(of_pairs), KStream[int, Trade])
assert_type(lines.map_values(lengths), KStream[str, int])
assert_type(lines.map_values(paired), KStream[str, tuple[str, int]])
assert_type(lines.flat_map_values(words), KStream[str, str])
assert_type(lines.filter(same).filter_not(same).peek(same), KStream[str, str])
assert_type(lines.select_key(paired), KStream[tuple[str, int], str])
assert_type(lines.group_by(paired).count(), KTable[tuple[str, int], int])
assert_type(trades.map_values(lambda trade: trade.price).map_values(halves), KStream[str, Any])
assert_type(lines.filter(long_names), KStream[str, str])
assert_type(lines.select_key(long_names), KStream[Any, str])
