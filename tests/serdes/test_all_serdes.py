"""Every serde that ships reads what it writes as an equal value: alone, in columns, with headers, and through a store.

Types and values are generated; those of Avro are in test_avro_values.py.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import fields, is_dataclass, make_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Consumed, Materialized, Produced, Serde, Serdes, StreamsBuilder
from penstock.calendar_windows import CalendarWindows
from penstock.record import Headers
from penstock.serdes.cloud_event import CloudEvent
from penstock.serdes.cloud_events import CloudEventSerde, StructuredCloudEventSerde
from penstock.serdes.debezium import DebeziumChange, DebeziumOperation, DebeziumSerde
from penstock.serdes.protobuf import ProtobufSerde
from penstock.serdes.windowed import WindowedSerdes
from penstock.testing import TopologyTestDriver
from penstock.windows import SessionWindow, TimeWindow, Windowed
from tests.serdes.test_protobuf import Point

_numbers = itertools.count()
texts = st.text(st.characters(codec="utf-8"), max_size=4)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Typed(NamedTuple):
    """A type in annotations, and the values that it has."""

    type: Any
    values: st.SearchStrategy[Any]


class Written(NamedTuple):
    """A serde, and the values that it writes."""

    serde: Serde[Any]
    values: st.SearchStrategy[Any]


KEYS = [
    Typed(str, texts),
    Typed(int, st.integers()),
    Typed(date, st.dates()),
    Typed(UUID, st.uuids()),
    Typed(Colour, st.sampled_from(Colour)),
]
PLAIN = [
    *KEYS,
    Typed(bool, st.booleans()),
    Typed(float, st.floats()),
    Typed(bytes, st.binary(max_size=4)),
    Typed(datetime, st.datetimes(timezones=st.just(UTC))),
    Typed(timedelta, st.timedeltas(timedelta(days=-10_000), timedelta(days=10_000))),
    Typed(Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
]


def of_records(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def made(parts: list[Typed]) -> Typed:
        named = {f"f{number}": part for number, part in enumerate(parts)}
        type_ = make_dataclass(f"D{next(_numbers)}", [(name, part.type) for name, part in named.items()])
        return Typed(type_, st.builds(type_, **{name: part.values for name, part in named.items()}))

    return st.lists(inner, max_size=3).map(made)


def of_containers(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    return st.one_of(
        of_records(inner),
        inner.map(lambda each: Typed(list[each.type], st.lists(each.values, max_size=2))),
        inner.map(lambda each: Typed(tuple[each.type, ...], st.lists(each.values, max_size=2).map(tuple))),
        inner.map(lambda each: Typed(each.type | None, st.none() | each.values)),
        st.sampled_from(KEYS).map(lambda each: Typed(frozenset[each.type], st.frozensets(each.values, max_size=2))),
        st.builds(
            lambda key, each: Typed(dict[key.type, each.type], st.dictionaries(key.values, each.values, max_size=2)),
            st.sampled_from(KEYS),
            inner,
        ),
    )


types = st.recursive(st.sampled_from(PLAIN), of_containers, max_leaves=4)
without_bytes = [each for each in PLAIN if each.type is not bytes]  # of which pydantic writes UTF-8 alone
types_of_models = st.recursive(st.sampled_from(without_bytes), of_containers, max_leaves=4)


def as_model(typed: Typed) -> Written:
    model = pydantic.create_model(f"M{next(_numbers)}", f0=(typed.type, ...))
    return Written(Serdes.json(model), typed.values.filter(is_finite).map(lambda value: model(f0=value)))


def is_finite(value: Any) -> bool:
    """Return whether JSON has all of a value without the help of msgspec: pydantic writes null for the rest."""
    if isinstance(value, float):
        return math.isfinite(value)
    return all(map(is_finite, parts_of(value)))


def parts_of(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [part for item in sorted(value.items(), key=repr) for part in item]
    if isinstance(value, list | tuple):
        return list(value)
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, each.name) for each in fields(value)]
    return [getattr(value, name) for name in type(value).model_fields] if isinstance(value, pydantic.BaseModel) else []


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, NaN being equal to NaN."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    parts, others = parts_of(one), parts_of(other)
    if not parts:
        return type(one) is type(other) and bool(one == other)
    return type(one) is type(other) and len(parts) == len(others) and all(map(same, parts, others))


def is_of_64_bits(value: Any) -> bool:
    """Return whether MessagePack has all whole numbers of a value."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    return all(map(is_of_64_bits, value if isinstance(value, frozenset) else parts_of(value)))


def signed(topic: str, value: str, headers: Headers) -> bytes:
    return (value + str(len(headers))).encode()


def unsigned(topic: str, data: bytes, headers: Headers) -> str:
    text, count = data.decode()[:-1], data.decode()[-1:]
    assert count == str(len(headers))
    return text


json_values = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(st.none() | inner, max_size=3) | st.dictionaries(texts, st.none() | inner, max_size=3),
    max_leaves=6,
)
rows = st.dictionaries(texts, json_values, max_size=2)
events = st.builds(
    lambda name, data: CloudEvent("type", "/source", f"id{name}", data, datacontenttype="application/json"),
    texts,
    json_values,
)
keys = st.sampled_from(
    [
        Written(Serdes.string(), texts),
        Written(Serdes.bytes(), st.binary(max_size=4)),
        Written(Serdes.short(), st.integers(-(2**15), 2**15 - 1)),
        Written(Serdes.integer(), st.integers(-(2**31), 2**31 - 1)),
        Written(Serdes.long(), st.integers(-(2**63), 2**63 - 1)),
        Written(Serdes.float(), st.floats(width=32)),
        Written(Serdes.double(), st.floats()),
        Written(Serdes.boolean(), st.booleans()),
        Written(Serdes.uuid(), st.uuids()),
        Written(Serdes.byte_buffer(), st.binary(max_size=4).map(memoryview)),
        Written(Serdes.json(), json_values),
        Written(ProtobufSerde("mock://all", Point), st.builds(Point, x=st.integers(-9, 9), name=texts)),
        Written(Serdes.serde_from(signed, unsigned), texts),
        Written(Serdes.msgpack(), json_values.filter(is_of_64_bits)),
        Written(CloudEventSerde(), events),
        Written(StructuredCloudEventSerde(), events),
        Written(DebeziumSerde(), st.builds(DebeziumChange, st.sampled_from(DebeziumOperation), st.none() | rows, rows)),
    ]
)
times = st.integers(0, 10**12)
WEEKS = CalendarWindows.weeks("Europe/Berlin", 0)
sessions = st.tuples(times, st.integers(0, 10**6)).map(lambda pair: SessionWindow(pair[0], sum(pair)))


def of_serdes(inner: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    def in_windows(each: Written) -> Written:
        windows = times.map(lambda start: TimeWindow(start, start + 60_000))
        return Written(WindowedSerdes.time_windowed(each.serde, 60_000), st.builds(Windowed, each.values, windows))

    def in_weeks(each: Written) -> Written:
        windows = times.map(WEEKS.window_at)
        return Written(WindowedSerdes.calendar_windowed(each.serde, WEEKS), st.builds(Windowed, each.values, windows))

    return st.one_of(
        inner.map(in_weeks),
        inner.map(lambda each: Written(Serdes.list(each.serde), st.lists(st.none() | each.values, max_size=3))),
        inner.map(in_windows),
        inner.map(
            lambda each: Written(
                WindowedSerdes.session_windowed(each.serde), st.builds(Windowed, each.values, sessions)
            )
        ),
    )


typed_serdes = types.map(lambda each: Written(Serdes.json(each.type), each.values.filter(lambda one: one is not None)))
serdes = st.recursive(keys | typed_serdes | types_of_models.map(as_model), of_serdes, max_leaves=2)
headers_of_rows = st.lists(st.tuples(texts, st.none() | st.binary(max_size=2)), max_size=2).map(tuple)


@given(st.data())
def test_values_come_back_alone_and_in_columns(data: st.DataObject) -> None:
    serde, values = data.draw(serdes)
    column = data.draw(st.lists(st.none() | values, max_size=4))
    headers = [data.draw(headers_of_rows) for _ in column]
    written = serde.serialize_column("t", column, headers)
    assert written == [
        None if value is None else serde.serialize("t", value, each)
        for value, each in zip(column, headers, strict=True)
    ]
    assert same(serde.deserialize_column("t", written, headers), column)


@pytest.mark.parametrize("execution", ["record", "auto"])
@settings(max_examples=15)
@given(data=st.data())
def test_values_come_back_from_a_store(execution: str, data: st.DataObject) -> None:
    serde, values = data.draw(serdes)
    column = data.draw(st.lists(values, min_size=1, max_size=3))

    builder = StreamsBuilder()
    kept = Materialized.as_("kept").with_key_serde(Serdes.string()).with_value_serde(serde)
    stream = (
        builder.stream("in", Consumed.with_(Serdes.string(), serde)).group_by_key().reduce(lambda _, new: new, kept)
    )
    stream.to_stream().to("out", Produced.with_(Serdes.string(), serde))
    with TopologyTestDriver(builder.build(), {"penstock.execution": execution}) as driver:
        source = driver.create_input_topic("in", Serdes.string(), serde)
        for value in column:
            source.pipe_input("k", value)
        assert same(driver.create_output_topic("out", Serdes.string(), serde).read_values_to_list(), column)
        store = driver.get_key_value_store("kept")
        assert store is not None
        assert same(store.get("k"), column[-1])
