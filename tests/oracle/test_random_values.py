"""Random programs over keys and values of other types than texts: both executions and all batch sizes give the same.

Python takes 1, 1.0 and True for one key, serdes do not; JSON is read in other bytes than it is written in; functions
return their argument, return None, or fail. The same means what it means in `test_random`; if the task fails, it fails
with the same error. No function changes a value in place.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import (
    Consumed,
    Grouped,
    Joined,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Produced,
    Repartitioned,
    Serde,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
)
from penstock.exception_handlers import LogAndContinueExceptionHandler, LogAndContinueProcessingExceptionHandler
from penstock.record import RecordBatch
from tests.oracle.test_random import Chunk, batch_of, cut, run, upstream_first

TOPICS = ("in1", "in2")


@dataclass
class Order:
    """A value with fields."""

    item: str = ""
    amount: int | float | None = None
    price: Decimal | None = None
    tags: list[str] | None = None


class Kind(NamedTuple):
    """A type of values: its serde, bytes of it, and functions that keep the type."""

    serde: Callable[[], Serde[Any]]
    data: Sequence[bytes | None]
    mappers: Sequence[Callable[[Any], Any]]
    joiners: Sequence[Callable[[Any, Any], Any]]


def identity(value: Any) -> Any:
    return value


def wrapped(value: Any) -> Any:
    return {"b": value, "a": 1}


def unwrapped(value: Any) -> Any:
    return value.get("a", value) if isinstance(value, dict) else value


def none_if_one(value: Any) -> Any:
    return None if value == 1 else value


def refusing(value: Any) -> Any:
    if value == "no" or value == -1:
        raise LookupError(f"refused {value}")
    return value


def left_of(left: Any, right: Any) -> Any:
    return left


def right_of(left: Any, right: Any) -> Any:
    return right


def none_if_equal(left: Any, right: Any) -> Any:
    return None if left == right else left


def refusing_two(left: Any, right: Any) -> Any:
    if left == right == 2:
        raise LookupError("refused 2")
    return right


def listed(left: Any, right: Any) -> Any:
    return [left, right]


def retagged(order: Order | None) -> Order | None:
    return order and replace(order, tags=[*(order.tags or ()), "t"])


def priced(left: Order | None, right: Order | None) -> Order | None:
    return left and replace(left, price=right.price if right else None)


def doubled(value: Any) -> Any:
    return value + value


def added(left: Any, right: Any) -> Any:
    return left if right is None else right if left is None else left + right


def double(value: float) -> bytes:
    return struct.pack(">d", value)


SAME = (identity, none_if_one, refusing)
SIDES = (left_of, right_of, none_if_equal, refusing_two)
KINDS: dict[str, Kind] = {
    "json": Kind(
        Serdes.json,
        [
            None,
            *b'1|1.0|true|0|-0.0|-1|2|2.0|1E2|0.1|"no"|""|"a"|"\\u00e9"|"\xc3\xa9"|"\\ud800"|null|[]|[1,[2]]|{}'.split(
                b"|"
            ),
            *b'{"a":1,"b":{"c":[1,2]}}|{"b":2,"a":1}|{"a":1,"a":2}|{"a":null}| 1 |1e999|12345678901234567890'.split(
                b"|"
            ),
            *b"12345678901234567890|18446744073709551616|-123456789012345678901234567890|0.12345678901234567890|{1|\xff".split(
                b"|"
            ),
            b"",
        ],
        (*SAME, wrapped, unwrapped),
        (*SIDES, listed),
    ),
    "typed": Kind(
        lambda: Serdes.json(Order),
        [
            None,
            *b'{}|{"item":"no"}|{"item":"a","amount":1}|{"amount":1.0,"item":"a"}|{"item":"a","item":"b"}'.split(b"|"),
            *b'{"price":"1.10"}|{"price":"1.1","more":[1]}|{"tags":["x",""]}|{"amount":null}|{"amount":-0.0}'.split(
                b"|"
            ),
            *b'{"amount":true}|{"price":1}|{"tags":null}|null|{"amount":12345678901234567890123}|[]'.split(b"|"),
        ],
        (identity, retagged),
        (left_of, right_of, none_if_equal, priced),
    ),
    "double": Kind(
        Serdes.double,
        [
            None,
            *map(double, (0.0, -0.0, 1.0, 2.0, -1.0, 1e308, float("inf"), float("nan"))),
            bytes.fromhex("7ff8000000000001"),
            bytes.fromhex("fff8000000000000"),
            b"1",
        ],
        (*SAME, doubled),
        (*SIDES, added),
    ),
    "long": Kind(
        Serdes.long,
        [None, *(value.to_bytes(8, "big", signed=True) for value in (0, 1, 2, -1, -(1 << 63), (1 << 63) - 1)), b"1"],
        SAME,
        SIDES,
    ),
    "text": Kind(
        Serdes.string,
        [
            None,
            b"",
            b"a",
            b"no",
            b"\x00",
            "\u00e9".encode(),
            "e\u0301".encode(),
            b"\xff",
            b"\xed\xa0\x80",
            b"\xf0\x9f\x98\x80",
        ],
        (*SAME, doubled),
        (*SIDES, added),
    ),
    "boolean": Kind(Serdes.boolean, [None, b"\x00", b"\x01", b"\x02"], SAME, SIDES),
    "msgpack": Kind(
        Serdes.msgpack,
        [
            None,
            *b"\x01|\xcd\x00\x01|\xcb?\xf0\0\0\0\0\0\0|\xc3|\xc0|\xa1a|\xa0|\x90|\x91\x01|\x80|\x81\xa1a\x01|\xcf".split(
                b"|"
            ),
        ],
        (*SAME, wrapped, unwrapped),
        (*SIDES, listed),
    ),
    "float": Kind(
        Serdes.float, [None, *(struct.pack(">f", each) for each in (0.0, -0.0, 1.0, 0.1, float("nan")))], SAME, SIDES
    ),
}

WINDOWS: list[Any] = [
    None,
    TimeWindows.of_size_and_grace(10, 3),
    TimeWindows.of_size_and_grace(10, 0).advance_by(4),
    SlidingWindows.of_time_difference_and_grace(5, 4),
    SessionWindows.of_inactivity_gap_and_grace(3, 5),
]

Choose = Callable[[Sequence[Any]], Any]


class Program:
    """A program that is drawn once, as a list of choices, and built for each execution."""

    def __init__(self, key: Kind, value: Kind, choices: Sequence[int]) -> None:
        self._key, self._value = key, value
        self._choices = choices

    def build(self) -> StreamsBuilder:
        """Return the program."""
        self._next = iter(self._choices)
        self.builder = StreamsBuilder()
        self._keys, self._values = self._key.serde(), self._value.serde()
        consumed = Consumed.with_(self._keys, self._values)
        self._streams: list[KStream[Any, Any]] = [self.builder.stream(topic, consumed) for topic in TOPICS]
        self._names = 0
        steps: list[Callable[[KStream[Any, Any]], list[KStream[Any, Any]]]] = [
            self._map,
            self._map,
            self._select,
            self._merge,
            self._split,
            self._aggregate,
            self._table_join,
            self._stream_join,
            self._stream_join,
            self._tables,
            self._repartition,
        ]
        for _ in range(1 + self._number(6)):
            parent = self._one(self._streams)
            self._streams += self._one(steps)(parent)
        for number, stream in enumerate(self._streams):
            stream.to(f"out{number}", Produced.with_(self._keys, self._values))
        return self.builder

    def _number(self, bound: int) -> int:
        return next(self._next, 0) % bound

    def _one(self, choices: Sequence[Any]) -> Any:
        return choices[self._number(len(choices))]

    def _stored(self) -> Materialized:
        self._names += 1
        stored = Materialized.as_(f"table{self._names}").with_key_serde(self._keys).with_value_serde(self._values)
        return stored if self._number(2) else stored.with_caching_disabled()

    def _map(self, parent: KStream[Any, Any]) -> list[KStream[Any, Any]]:
        mapper = self._one(self._value.mappers)
        kind = self._number(4)
        if kind == 0:
            return [parent.filter(lambda key, value: mapper(value) is not None)]
        if kind == 1:
            return [parent.flat_map_values(lambda value: (each for each in (value, mapper(value))))]
        return [parent.map_values(mapper)]

    def _select(self, parent: KStream[Any, Any]) -> list[KStream[Any, Any]]:
        mapper = self._one(self._key.mappers)
        if self._key.serde is self._value.serde and self._number(2):
            return [parent.map(lambda key, value: (value, key))]
        return [parent.select_key(lambda key, value: None if key is None else mapper(key))]

    def _merge(self, parent: KStream[Any, Any]) -> list[KStream[Any, Any]]:
        return [parent.merge(self._one(self._streams))]

    def _split(self, parent: KStream[Any, Any]) -> list[KStream[Any, Any]]:
        first = parent.filter(lambda key, value: value == 1)
        return [first, parent.filter_not(lambda key, value: value == 1)]

    def _repartition(self, parent: KStream[Any, Any]) -> list[KStream[Any, Any]]:
        return [parent.repartition(Repartitioned.with_(self._keys, self._values))]

    def _aggregate(self, parent: KStream[Any, Any]) -> list[KStream[Any, Any]]:
        grouped: Any = parent.group_by_key(Grouped.with_(self._keys, self._values))
        windows, joiner = self._one(WINDOWS), self._one(self._value.joiners)
        if windows is None:
            return [grouped.reduce(joiner, materialized=self._stored()).to_stream()]
        table = grouped.windowed_by(windows).reduce(joiner, materialized=self._stored())
        return [table.to_stream().select_key(lambda key, value: key.key)]

    def _table(self, parent: KStream[Any, Any]) -> KTable[Any, Any]:
        table = parent.to_table(materialized=self._stored())
        kind = self._number(4)
        if kind == 0:
            return table.map_values(self._one(self._value.mappers), materialized=self._stored())
        if kind == 1:
            return table.filter(lambda key, value: value == 1, materialized=self._stored())
        return table

    def _tables(self, parent: KStream[Any, Any]) -> list[KStream[Any, Any]]:
        left, right = self._table(parent), self._table(self._one(self._streams))
        joiner = self._one(self._value.joiners)
        kind = self._number(5)
        if kind == 4 and self._key.serde is self._value.serde:
            return [
                left.join(
                    right, joiner, foreign_key_extractor=lambda value: value, materialized=self._stored()
                ).to_stream()
            ]
        join: Any = [left.join, left.left_join, left.outer_join][kind % 3]
        return [join(right, joiner, materialized=self._stored()).to_stream()]

    def _table_join(self, parent: KStream[Any, Any]) -> list[KStream[Any, Any]]:
        table = self._table(self._one(self._streams))
        join = self._one([parent.join, parent.left_join])
        return [
            join(table, self._one(self._value.joiners), joined=Joined.with_(self._keys, self._values, self._values))
        ]

    def _stream_join(self, parent: KStream[Any, Any]) -> list[KStream[Any, Any]]:
        other = self._one(self._streams)
        windows = self._one([JoinWindows(0, 0, 0), JoinWindows(4, 4, 6), JoinWindows(8, 0, 0), JoinWindows(0, 5, 2)])
        join = self._one([parent.join, parent.join, parent.left_join, parent.outer_join])
        joined = StreamJoined.with_(self._keys, self._values, self._values)
        return [join(other, self._one(self._value.joiners), windows, stream_joined=joined)]


def config(execution: str, cache_bytes: int, goes_on: bool) -> StreamsConfig:
    given: dict[str, Any] = {
        "application.id": "oracle",
        "penstock.execution": execution,
        "penstock.emit.interval.ms": 0,
        "penstock.warn.none.results": False,
        "statestore.cache.max.bytes": cache_bytes,
        "penstock.trace.order": "unused",
        "deserialization.exception.handler": LogAndContinueExceptionHandler,
    }
    if goes_on:
        given["processing.exception.handler"] = LogAndContinueProcessingExceptionHandler
    return StreamsConfig(given, environment={})


def outcome(*arguments: Any) -> Any:
    """Return what `run` returns, or the error."""
    try:
        return run(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error} / {error.__cause__!r}", None


def with_unreadable(chunks: Sequence[Chunk], topics: Mapping[str, RecordBatch]) -> list[Chunk]:
    """Return chunks that also have the rows between them: a task does not take a row that it cannot read."""
    ends = dict.fromkeys(topics, 0)
    whole: list[Chunk] = []
    for topic, _, stop in chunks:
        whole.append((topic, ends[topic], stop))
        ends[topic] = stop
    return [*whole, *((topic, end, len(topics[topic])) for topic, end in ends.items() if end < len(topics[topic]))]


def one_of(data: Sequence[bytes | None], number: int, first: int, few: int) -> bytes | None:
    """Return one of `few` data from the `first` on."""
    return data[(first + number % few) % len(data)]


ROWS = st.lists(
    st.tuples(
        st.sampled_from(TOPICS),
        st.integers(0, 1000),
        st.integers(0, 1000),
        st.integers(0, 40),
        st.sampled_from([(), (), (("h", b"1"),), (("n", None),)]),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(sorted(KINDS)),
    st.lists(st.integers(0, 1 << 20), min_size=1, max_size=40),
    ROWS,
    st.booleans(),
    st.sampled_from([0, 10_000_000]),
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.tuples(st.integers(0, 40), st.integers(1, 6)),
)
def test_executions_and_batch_sizes_give_the_same(
    key: str,
    value: str,
    choices: list[int],
    rows: list[Any],
    goes_on: bool,
    cache_bytes: int,
    sizes: list[int],
    few: tuple[int, int],
) -> None:
    keys, values = KINDS[key], KINDS[value]
    topics = {
        topic: batch_of(
            [
                (one_of(keys.data, k, 0, few[1]), one_of(values.data, v, *few), timestamp, headers)
                for each, k, v, timestamp, headers in rows
                if each == topic
            ]
        )
        for topic in TOPICS
    }
    built = Program(keys, values, choices).build().build().build("oracle")
    auto, record = config("auto", cache_bytes, goes_on), config("record", cache_bytes, goes_on)
    for part in upstream_first(built):
        for topic in part.source_topics:
            topics.setdefault(topic, batch_of([]))
        expected, commit = outcome(part, record, topics, None)
        outcomes = {"columns": outcome(part, auto, topics, None)[0]}
        if commit is not None:
            chunks = with_unreadable(cut(commit, sizes), {topic: topics[topic] for topic in part.source_topics})
            outcomes["columns, cut"] = outcome(part, auto, topics, chunks)[0]
            outcomes["records, cut"] = outcome(part, record, topics, chunks)[0]
        for name, found in outcomes.items():
            assert found == expected, name
        if commit is None:
            return
        for topic in part.sink_topics:
            sent = [(s.key, s.value, s.timestamp, s.headers) for s in expected.sent if s.topic == topic]
            topics[topic] = batch_of(sent)
