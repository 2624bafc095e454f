"""The bytes of serdes, as Kafka's serializers write them."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import cloudpickle
import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes import LongSerde, Serde, Serdes, StringSerde
from penstock.serdes.windowed import WindowedSerdes
from penstock.windows import TimeWindow, Windowed


@dataclass
class Point:
    x: int
    y: int
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Trip:
    points: tuple[Point, ...]
    start: datetime
    owner: UUID | None = None


class Model(pydantic.BaseModel):
    x: int
    day: date | None = None


class Pair(NamedTuple):
    x: int
    y: int


class Fields(TypedDict):
    x: int


SERDES: dict[str, tuple[Serde, st.SearchStrategy[Any]]] = {
    "string": (Serdes.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "bytes": (Serdes.bytes(), st.binary()),
    "integer": (Serdes.integer(), st.integers(-(2**31), 2**31 - 1)),
    "long": (Serdes.long(), st.integers(-(2**63), 2**63 - 1)),
    "short": (Serdes.short(), st.integers(-(2**15), 2**15 - 1)),
    "double": (Serdes.double(), st.floats(allow_nan=False)),
    "float": (Serdes.float(), st.floats(allow_nan=False, width=32)),
    "boolean": (Serdes.boolean(), st.booleans()),
    "uuid": (Serdes.uuid(), st.uuids()),
    "byte_buffer": (Serdes.byte_buffer(), st.binary().map(lambda data: memoryview(data))),
    "list of one size": (Serdes.list(Serdes.long()), st.lists(st.none() | st.integers(-5, 5))),
    "list of many sizes": (Serdes.list(Serdes.string()), st.lists(st.none() | st.text("ab"))),
    "list of lists": (Serdes.list(Serdes.list(Serdes.boolean())), st.lists(st.none() | st.lists(st.booleans()))),
    "json": (
        Serdes.json(),
        st.recursive(st.none() | st.booleans() | st.text(st.characters(exclude_categories=["Cs"])), st.lists).filter(
            lambda v: v is not None
        ),
    ),
}


@pytest.mark.parametrize("name", SERDES)
@given(data=st.data())
def test_what_is_written_is_read_again_alone_and_in_columns(name: str, data: st.DataObject) -> None:
    serde, values = SERDES[name]
    column = data.draw(st.lists(st.none() | values, max_size=20))
    written = serde.serialize_column("topic", column)
    assert written == [None if value is None else serde.serialize("topic", value) for value in column]
    assert serde.deserialize_column("topic", written) == column


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (Serdes.string(), "zürich", "7ac3bc72696368"),
        (Serdes.integer(), -2, "fffffffe"),
        (Serdes.long(), 258, "0000000000000102"),
        (Serdes.double(), 1.5, "3ff8000000000000"),
        (Serdes.short(), -2, "fffe"),
        (Serdes.float(), 1.5, "3fc00000"),
        (Serdes.boolean(), True, "01"),
        (Serdes.uuid(), UUID(int=1), b"00000000-0000-0000-0000-000000000001".hex()),
        (Serdes.list(Serdes.short()), [1, None, 2], "00 00000001 00000001 00000003 0001 0002".replace(" ", "")),
        (Serdes.list(Serdes.string()), ["a", None], "01 00000002 00000001 61 ffffffff".replace(" ", "")),
        (Serdes.json(), {"b": 1, "a": [None, "x"]}, b'{"a":[null,"x"],"b":1}'.hex()),
    ],
)
def test_bytes_are_those_of_kafka(serde: Serde, value: Any, data: str) -> None:
    assert serde.serialize("topic", value).hex() == data


@given(st.lists(st.none() | st.binary(max_size=6)))
def test_a_column_is_canonical_only_if_each_text_is_valid_on_its_own(column: list[bytes | None]) -> None:
    def valid(item: bytes) -> bool:
        try:
            item.decode()
        except UnicodeDecodeError:
            return False
        return True

    assert Serdes.string().is_canonical_column(column) == all(valid(item) for item in column if item is not None)


@pytest.mark.parametrize("serde", [Serdes.short(), Serdes.integer(), Serdes.long(), Serdes.double(), Serdes.float()])
@given(column=st.lists(st.none() | st.binary(min_size=2, max_size=4) | st.binary(min_size=8, max_size=8), max_size=3))
def test_a_column_of_numbers_is_readable_or_canonical_only_if_it_is(serde: Serde, column: list[bytes | None]) -> None:
    try:
        numbers = serde.deserialize_column("topic", column)
    except SerializationError:
        assert not serde.is_readable_column(column)
        return
    assert serde.is_readable_column(column)
    if serde.is_canonical_column(column):
        assert serde.serialize_column("topic", numbers) == column


def test_a_serde_that_changes_how_numbers_are_read_says_nothing_of_columns() -> None:
    class Doubled(LongSerde):
        def deserialize(self, topic: str, data: bytes, headers: Any = ()) -> int:
            return 2 * super().deserialize(topic, data, headers)

    assert LongSerde().is_canonical_column([bytes(8), None])
    assert not Doubled().is_readable_column([bytes(8)])
    assert not Doubled().is_canonical_column([bytes(8)])


@given(st.lists(st.none() | st.text(max_size=3)))
def test_distinct_bytes_are_those_of_each_value(column: list[str | None]) -> None:
    entries, places = Serdes.string().serialize_distinct("topic", column)
    assert [entries[place] for place in places] == Serdes.string().serialize_column("topic", column)
    assert entries == list(dict.fromkeys(Serdes.string().serialize_column("topic", column)))


@pytest.mark.parametrize("wrong", [b"bytes", 1, "\ud800"])
def test_distinct_bytes_need_texts(wrong: Any) -> None:
    with pytest.raises((TypeError, UnicodeEncodeError)):
        Serdes.string().serialize_distinct("topic", ["text", wrong])


def test_broken_utf8_is_read_with_replacement_characters_as_in_kafka() -> None:
    assert Serdes.string().deserialize_column("topic", [b"ok", b"\xff"]) == ["ok", "\N{REPLACEMENT CHARACTER}"]


@pytest.mark.parametrize(
    ("serde", "value", "number"),
    [
        (Serdes.double(), 21, 21.0),
        (Serdes.float(), 21, 21.0),
        (Serdes.double(), np.int32(21), 21.0),
        (Serdes.double(), np.float32(0.5), 0.5),
        (Serdes.long(), np.int64(21), 21),
        (Serdes.short(), np.uint8(21), 21),
    ],
)
def test_numbers_that_lose_nothing_are_written(serde: Serde, value: Any, number: float) -> None:
    assert serde.serialize("topic", value) == serde.serialize("topic", number)
    assert serde.serialize_column("topic", [None, value, number]) == [None, *2 * [serde.serialize("topic", number)]]


@pytest.mark.parametrize(
    ("serde", "value", "error"),
    [
        (Serdes.string(), 1, TypeError),
        (Serdes.bytes(), "text", TypeError),
        (Serdes.integer(), 2**31, SerializationError),
        (Serdes.long(), 1.0, TypeError),
        (Serdes.long(), True, TypeError),
        (Serdes.double(), True, TypeError),
        (Serdes.double(), "1", TypeError),
        (Serdes.double(), 2**53 + 1, TypeError),
        (Serdes.double(), 10**400, SerializationError),
        (Serdes.long(), np.float64(1), TypeError),
        (Serdes.long(), np.uint64(2**63), SerializationError),
        (Serdes.short(), 2**15, SerializationError),
        (Serdes.float(), 1e300, SerializationError),
        (Serdes.float(), 2**24 + 1, TypeError),
        (Serdes.boolean(), 1, TypeError),
        (Serdes.uuid(), "text", TypeError),
        (Serdes.void(), "text", TypeError),
        (Serdes.byte_buffer(), 1, TypeError),
        (Serdes.list(Serdes.long()), "text", TypeError),
        (Serdes.list(Serdes.long()), ["text"], TypeError),
        (Serdes.json(Point), math.inf.__class__, SerializationError),
        (Serdes.json(Model), {"z": 1}, SerializationError),
        (Serdes.json(), math.inf.__class__, SerializationError),
    ],
)
def test_what_cannot_be_written_is_refused_by_type_and_topic(serde: Serde, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="topic"):
        serde.serialize("topic", value)
    with pytest.raises(error):
        serde.serialize_column("topic", [None, value])


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (Serdes.long(), b"1234"),
        (Serdes.json(), b"{"),
        (Serdes.json(Point), b'{"x": "text", "y": 1}'),
        (Serdes.json(Model), b'{"x": "text"}'),
        (Serdes.boolean(), b"\2"),
        (Serdes.boolean(), b""),
        (Serdes.uuid(), b"no uuid"),
        (Serdes.void(), b""),
        (Serdes.list(Serdes.long()), b"\2"),
        (Serdes.list(Serdes.string()), b"\0\0\0\0\0\0\0\0\1a"),  # entries of one size, which texts do not have
        (Serdes.list(Serdes.string()), b"\1\0\0\0\1\0\0\0\2a"),  # ends before its entry
        (Serdes.list(Serdes.string()), b""),
    ],
)
def test_what_cannot_be_read_is_refused(serde: Serde, data: bytes) -> None:
    with pytest.raises(SerializationError):
        serde.deserialize("topic", data)


def test_an_object_is_no_named_tuple() -> None:
    with pytest.raises(SerializationError, match="A NamedTuple is an array in JSON; a dataclass is an object"):
        Serdes.json(Pair).deserialize("topic", b'{"x":1,"y":2}')


@pytest.mark.parametrize(
    ("type_", "value", "data"),
    [
        (Point, Point(1, 2, ["a"]), b'{"x":1,"y":2,"tags":["a"]}'),
        (
            Trip,
            Trip((Point(1, 2),), datetime(2013, 1, 1, tzinfo=UTC)),
            b'{"points":[{"x":1,"y":2,"tags":[]}],"start":"2013-01-01T00:00:00Z","owner":null}',
        ),
        (Model, Model(x=1, day=date(2013, 1, 1)), b'{"x":1,"day":"2013-01-01"}'),
        (Fields, {"x": 1}, b'{"x":1}'),
        (Pair, Pair(1, 2), b"[1,2]"),
    ],
)
def test_typed_json_gives_objects_of_the_type(type_: Any, value: Any, data: bytes) -> None:
    serde = pickle.loads(pickle.dumps(Serdes.json(type_)))
    assert serde.serialize("topic", value) == data
    assert serde.deserialize("topic", data) == value


@pytest.mark.parametrize(
    ("type_", "like"),
    [
        (str, Serdes.string()),
        (bytes, Serdes.bytes()),
        (float, Serdes.double()),
        (bool, Serdes.boolean()),
        (UUID, Serdes.uuid()),
        (str | None, Serdes.string()),
        (list[str], Serdes.list(Serdes.string())),
        (list[float | None], Serdes.list(Serdes.double())),
        (None, Serdes.void()),
        (dict[str, Any], Serdes.json()),
        (Point, Serdes.json(Point)),
        (Model, Serdes.json(Model)),
        (Fields, Serdes.json(Fields)),
    ],
)
def test_a_type_has_its_serde(type_: Any, like: Serde) -> None:
    assert type(Serdes.serde_from(type_)) is type(like)


@pytest.mark.parametrize("type_", [int, int | None, list, list[int], str | bytes, Any, object])
def test_a_type_without_its_own_serde_is_refused(type_: Any) -> None:
    with pytest.raises(ValueError, match="Unknown class for built-in serializer"):
        Serdes.serde_from(type_)


class LoudSerde(StringSerde):
    """Overrides what works on single values alone."""

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        return f"{value}!{len(headers)}".encode()

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> str:
        return f"{data.decode()}?{len(headers)}"


class Loud:
    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        return f"{value}!{len(headers)}".encode()


class MixedSerde(Loud, StringSerde):
    """Has the method of a class that is no serde."""


@pytest.mark.parametrize("serde", [LoudSerde(), MixedSerde()])
def test_columns_go_through_the_methods_that_a_subclass_overrides(serde: Serde) -> None:
    headers: list[Headers] = [(("h", b"1"),), (), ()]
    assert serde.serialize_column("t", ["a", None, "b"], headers) == [b"a!1", None, b"b!0"]
    assert serde.serialize_column("t", ["a", None, "b"]) == [b"a!0", None, b"b!0"]
    entries, places = serde.serialize_distinct("t", ["a", "a", "a"], headers)
    assert (entries, places.tolist()) == ([b"a!1", b"a!0"], [0, 1, 1])
    read = serde.deserialize_column("t", [b"a", None, b"b"], headers)
    assert read == [
        None if data is None else serde.deserialize("t", data, own)
        for data, own in zip([b"a", None, b"b"], headers, strict=True)
    ]
    assert not serde.is_canonical_column([b"a"])
    assert not serde.unchanging_types
    assert not serde.repeatable
    assert serde.uses_headers


@pytest.mark.parametrize(
    ("inner", "uses_headers"),
    [
        (Serdes.string(), False),
        (Serdes.json(), False),
        (Serdes.serde_from(lambda topic, value: value, lambda topic, data: data), False),
        (Serdes.serde_from(lambda topic, value, headers: value, lambda topic, data: data), True),
        (LoudSerde(), True),
    ],
)
def test_serdes_around_others_use_the_headers_if_these_do(inner: Serde, uses_headers: bool) -> None:
    assert inner.uses_headers is uses_headers
    assert Serdes.list(inner).uses_headers is uses_headers
    assert WindowedSerdes.time_windowed(inner, 10).uses_headers is uses_headers


def test_windowed_keys_hand_the_headers_to_the_serde_of_the_key() -> None:
    serde = WindowedSerdes.time_windowed(LoudSerde(), 10)
    keys = [Windowed("a", TimeWindow(0, 10)), Windowed("b", TimeWindow(10, 20))]
    headers: list[Headers] = [(), (("h", b"1"),)]
    column = serde.serialize_column("t", keys, headers)
    assert column == [serde.serialize("t", key, own) for key, own in zip(keys, headers, strict=True)]
    assert [key.key for key in serde.deserialize_column("t", column, headers)] == ["a!0?0", "b!1?1"]


def test_functions_with_a_parameter_for_headers_are_given_them() -> None:
    def write(topic: str, value: str, headers: Headers) -> bytes:
        return f"{value}{len(headers)}".encode()

    serde = Serdes.serde_from(write, lambda topic, data: data.decode())
    assert serde.serialize("t", "a", (("h", b"1"),)) == b"a1"
    assert serde.serialize_column("t", ["a", "b"], [(), (("h", b"1"),)]) == [b"a0", b"b1"]
    assert serde.deserialize("t", b"a", (("h", b"1"),)) == "a"
    both = Serdes.serde_from(serde.serialize, serde.deserialize)
    assert both.serialize("t", "a", (("h", b"1"),)) == b"a1"


def test_two_functions_are_a_serde() -> None:
    serde: Serde[int] = Serdes.serde_from(lambda topic, value: str(value).encode(), lambda topic, data: int(data))
    assert serde.deserialize("topic", serde.serialize("topic", 12)) == 12


# ---------- serdes of functions


class Joined:
    """Joins what it is given, to show it."""

    def __call__(self, value: str) -> bytes:
        return value.encode()


def with_third(topic: str, value: str, given: Headers) -> bytes:
    return f"{topic} {value} {len(given)}".encode()


def with_headers_alone(value: str, *, headers: Headers) -> bytes:
    return f"{value} {len(headers)}".encode()


@pytest.mark.parametrize(
    ("serializer", "written"),
    [
        (lambda value: value.upper().encode(), b"VALUE"),
        (lambda topic, value: f"{topic} {value}".encode(), b"topic value"),
        (lambda topic, value, headers: f"{topic} {value} {len(headers)}".encode(), b"topic value 1"),
        (lambda value, headers: f"{value} {len(headers)}".encode(), b"value 1"),
        (lambda *given: " ".join(given).encode(), b"topic value"),
        (lambda value, encoding="utf-8": value.encode(encoding), b"value"),
        (lambda topic="", value="": f"{topic} {value}".encode(), b"topic value"),
        (with_third, b"topic value 1"),
        (with_headers_alone, b"value 1"),
        (str.encode, b"value"),
        (Joined(), b"value"),
    ],
)
def test_a_serde_of_functions_calls_them_by_their_parameters(serializer: Any, written: bytes) -> None:
    serde: Serde[Any] = Serdes.serde_from(serializer, int)
    for copy in (serde, cloudpickle.loads(cloudpickle.dumps(serde))):
        assert copy.serialize("topic", "value", (("h", b""),)) == written
        assert copy.serialize_column("topic", ["value"], [(("h", b""),)]) == [written]
        assert copy.deserialize("topic", b"12") == 12


@pytest.mark.parametrize(
    ("serializer", "deserializer", "told"),
    [
        (lambda: b"", int, "The serializer must be a function serializer(value), serializer(topic, value) or"),
        (str.encode, lambda a, b, c, d: a, "deserializer(topic, data, headers); "),
        (lambda topic, value, *, limit: value, int, "(topic, value, limit) is none of them"),
        ("encode", int, "Expected a function serializer(value)"),
        (str.encode, None, "write serde_from(serializer, deserializer)"),
    ],
)
def test_functions_that_cannot_be_called_are_refused_where_they_are_given(
    serializer: Any, deserializer: Any, told: str
) -> None:
    with pytest.raises(TypeError) as refused:
        Serdes.serde_from(serializer, deserializer)
    assert told in str(refused.value)
