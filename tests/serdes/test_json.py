"""What the JSON serdes write, they read as an equal object: what they could not read, they refuse to write."""

from __future__ import annotations

import math
import pickle
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AliasChoices, BaseModel, Field, Json, SecretStr, computed_field

from penstock import Serde, Serdes
from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes.debezium import DebeziumSerde
from penstock.serdes.json import JsonSerde
from tests.serdes.test_primitive import assert_columns_come_back, assert_refused


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Place(NamedTuple):
    name: str
    height: float


class Visit(TypedDict):
    place: Place
    minutes: int


@dataclass(eq=False)
class Mark:
    """Objects of it are equal to themselves alone."""

    value: float
    name: str | None = None


@dataclass
class Everything:
    number: int
    ratio: float
    maybe: float | None
    colour: Colour
    day: date
    time: datetime
    span: timedelta
    id: UUID
    amount: Decimal
    data: bytes
    mark: Mark
    visits: list[Visit] = field(default_factory=list)
    pair: tuple[int, float] = (0, 0.0)
    tags: frozenset[str] = frozenset()
    by_hour: dict[int, float] = field(default_factory=dict)
    by_colour: dict[Colour, list[Mark]] = field(default_factory=dict)
    by_day: dict[date, int] = field(default_factory=dict)
    by_id: dict[UUID, str | None] = field(default_factory=dict)


class Basket(BaseModel):
    basket_id: str = Field(alias="basketId")
    price: float = 0
    raw: Json[list[int]] = Field(default_factory=list)
    by_day: dict[date, int] = {}

    @computed_field
    @property
    def double(self) -> float:
        return 2 * self.price

    @cached_property
    def half(self) -> float:
        return self.price / 2


texts = st.text(st.characters(codec="utf-8"), max_size=5)
places = st.builds(Place, texts, st.floats())
marks = st.builds(Mark, st.floats(), st.none() | texts)
everything = st.builds(
    Everything,
    number=st.integers(),
    ratio=st.floats(),
    maybe=st.none() | st.floats(),
    time=st.datetimes(timezones=st.just(UTC)),
    span=st.timedeltas(timedelta(days=-10_000), timedelta(days=10_000)),
    amount=st.decimals(allow_nan=False, allow_infinity=False),
    mark=marks,
    visits=st.lists(st.fixed_dictionaries({"place": places, "minutes": st.integers(0, 60)}), max_size=2),
    pair=st.tuples(st.integers(), st.floats()),
    tags=st.frozensets(texts, max_size=2),
    by_hour=st.dictionaries(st.integers(0, 23), st.floats(), max_size=2),
    by_colour=st.dictionaries(st.sampled_from(Colour), st.lists(marks, max_size=2), max_size=2),
    by_day=st.dictionaries(st.dates(), st.integers(), max_size=2),
    by_id=st.dictionaries(st.uuids(), st.none() | texts, max_size=2),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(2**62, 2**70) | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
baskets = st.builds(
    Basket,
    basketId=texts,
    price=st.floats(),
    raw=st.lists(st.integers(0, 9), max_size=2).map(str),
    by_day=st.dictionaries(st.dates(), st.integers(-5, 5), max_size=2),
)


def shown(value: Any) -> str:
    """Return all that a value has: NaN is as NaN, and marks are as their fields."""
    match value:
        case frozenset():
            return repr(sorted(value))
        case list():
            return repr([shown(part) for part in value])
        case datetime():
            return repr(value.replace(fold=0))
        case dict():
            return repr({repr(name): shown(part) for name, part in sorted(value.items(), key=repr)})
        case Everything():
            return shown(vars(value))
        case Basket():
            return shown({name: getattr(value, name) for name in Basket.model_fields})
        case _:
            return repr(value)


def assert_comes_back(serde: Serde[Any], value: Any) -> None:
    data = serde.serialize("t", value)
    found = serde.deserialize("t", data)
    assert shown(found) == shown(value)
    assert serde.serialize("t", found) == data


@given(json_values)
def test_json_comes_back_but_for_floats_that_json_has_not(value: Any) -> None:
    has_not = any(word in repr(value).replace("'", "") for word in ("nan", "inf")) and not is_finite(value)
    if has_not:
        with pytest.raises(SerializationError, match="JSON has no"):
            Serdes.json().serialize("t", value)
    else:
        assert_comes_back(Serdes.json(), value)


def is_finite(value: Any) -> bool:
    match value:
        case dict():
            return all(map(is_finite, value.values()))
        case list():
            return all(map(is_finite, value))
        case _:
            return not isinstance(value, float) or math.isfinite(value)


@given(everything)
def test_objects_of_classes_come_back(value: Everything) -> None:
    assert_comes_back(Serdes.json(Everything), value)


@given(baskets)
def test_models_come_back_but_for_floats_that_json_has_not(value: Basket) -> None:
    if math.isfinite(value.price):
        assert_comes_back(Serdes.json(Basket), value)
    else:
        with pytest.raises(SerializationError, match="could not be read again"):
            Serdes.json(Basket).serialize("t", value)


@pytest.mark.parametrize("type_", [Counter[str], defaultdict[str, int], dict[str, list[Counter[str]]]])
def test_classes_that_json_cannot_tell_from_dicts_are_refused(type_: Any) -> None:
    with pytest.raises(TypeError, match=r"cannot read a (Counter|defaultdict)"):
        Serdes.json(type_)


@dataclass
class Taller(Mark):
    height: int = 0


@dataclass
class Moment:
    time: datetime


class Secret(BaseModel):
    word: SecretStr


class Written(BaseModel):
    name: str = Field(serialization_alias="Name")


class Chosen(BaseModel):
    name: str = Field(validation_alias=AliasChoices("Name", "label"))


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Mark, Taller(1.0, "m", 3)),
        (Mark, {"value": 1.0, "height": 3}),
        (Mark, Mark("many")),  # type: ignore[arg-type]  # what a program without a type checker may have
        (Secret, Secret(word=SecretStr("s"))),
        (Chosen, Chosen(Name="a")),
    ],
)
def test_what_would_be_lost_is_refused(type_: Any, value: Any) -> None:
    with pytest.raises(SerializationError, match="could not be read again"):
        Serdes.json(type_).serialize("t", value)


def test_an_alias_for_writing_alone_is_not_written() -> None:
    serde = Serdes.json(Written)
    assert serde.deserialize("t", serde.serialize("t", Written(name="a"))) == Written(name="a")


@dataclass
class Shades:
    colours: set[Colour]
    mixed: frozenset[int | str]


def test_sets_of_what_has_no_order_come_back_and_are_always_written_the_same() -> None:
    serde = Serdes.json(Shades)
    data = serde.serialize("t", Shades({Colour.RED, Colour.BLUE}, frozenset({1, "a"})))
    assert data == b'{"colours":["blue","red"],"mixed":["a",1]}'
    assert serde.deserialize("t", data) == Shades({Colour.RED, Colour.BLUE}, frozenset({1, "a"}))


def test_a_time_in_the_hour_that_a_clock_is_set_back_by_comes_back() -> None:
    serde, time = Serdes.json(Moment), datetime(2023, 10, 29, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    found = serde.deserialize("t", serde.serialize("t", Moment(time)))
    assert (found.time.timestamp(), found.time.utcoffset()) == (time.timestamp(), time.utcoffset())


def test_dicts_and_tuples_are_taken_for_what_they_are_read_as() -> None:
    assert Serdes.json(Mark).serialize("t", {"value": 1.5}) == b'{"value":1.5}'
    assert Serdes.json(list[int]).serialize("t", (1, 2)) == b"[1,2]"


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


@given(st.lists(st.none() | st.booleans() | texts | st.lists(st.none() | texts, max_size=2), max_size=5))
def test_columns_come_back(column: list[Any]) -> None:
    assert_columns_come_back(Serdes.json(), column)


@given(st.lists(st.none() | st.integers(-(1 << 70), 1 << 70) | st.dictionaries(st.text(), st.none() | st.integers())))
def test_a_column_of_plain_values_has_the_bytes_of_each(column: list[Any]) -> None:
    serde = Serdes.json()
    each = [None if value is None else serde.serialize("t", value) for value in column]
    assert serde.serialize_column("t", column) == each
    assert serde.deserialize_column("t", each) == column


def test_a_column_with_an_unreadable_value_names_it_as_alone() -> None:
    with pytest.raises(SerializationError, match=r"b'\{2'"):
        Serdes.json().deserialize_column("t", [b"1", b"{2", b"3"])
    with pytest.raises(SerializationError, match="JSON has no nan"):
        Serdes.json().serialize_column("t", [1.5, math.nan])


class Doubled(JsonSerde):
    """A serde of a user's own."""

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> Any:
        """Return the value twice."""
        return 2 * [super().deserialize(topic, data, headers)]


def test_a_serde_that_extends_json_reads_columns_by_its_own_method() -> None:
    assert Doubled().deserialize_column("t", [b"1"]) == [[1, 1]]


def test_plain_values_are_written_with_sorted_keys_and_without_spaces() -> None:
    assert Serdes.json().serialize("topic", {"b": 1, "a": [None, "x"]}) == b'{"a":[null,"x"],"b":1}'


@pytest.mark.parametrize(
    ("serde", "value"),
    [(Serdes.json(Point), float), (Serdes.json(Model), {"z": 1}), (Serdes.json(), float)],
)
def test_values_that_are_no_json_are_refused(serde: Serde, value: Any) -> None:
    assert_refused(serde, value, SerializationError)


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (Serdes.json(), b"{"),
        (Serdes.json(Point), b'{"x": "text", "y": 1}'),
        (Serdes.json(Model), b'{"x": "text"}'),
    ],
)
def test_bytes_that_are_no_json_of_the_class_are_refused(serde: Serde, data: bytes) -> None:
    with pytest.raises(SerializationError, match="'topic' as"):
        serde.deserialize("topic", data)


def test_a_number_that_json_lacks_is_named_with_its_place() -> None:
    for value, place in (({"prices": [{"mean": math.inf}]}, r"inf \(at prices\[0\]\.mean\)"), (math.nan, "nan,")):
        with pytest.raises(SerializationError, match=f"JSON has no {place}"):
            Serdes.json().serialize("t", value)


def test_a_class_is_given_and_not_its_name() -> None:
    name: Any = "Order"
    calls = {"Serdes.json": Serdes.json, "Serdes.msgpack": Serdes.msgpack, "DebeziumSerde": DebeziumSerde}
    for call, make in calls.items():
        with pytest.raises(TypeError, match=rf"{call}\('Order'\) expects a class, not its name: write {call}\(Order\)"):
            make(name)
    with pytest.raises(TypeError, match="Expected a Serde as inner of DebeziumSerde, got 'Order'"):
        DebeziumSerde(inner=name)
