"""MessagePack: bytes of its specification, round trips, evolution, and what is refused."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Consumed, Materialized, Produced, Serdes, StreamsBuilder
from penstock.errors import SerializationError
from penstock.serdes import MessagePackSerde, PydanticMessagePackSerde
from penstock.serdes.format import are_alike, format_of, read_type, written_type
from penstock.testing import TopologyTestDriver
from tests.serdes.test_all_serdes import is_of_64_bits, same, types

TEXT = Serdes.string()


@dataclass
class Trade:
    symbol: str
    price: float


@dataclass
class NewerTrade:
    symbol: str
    price: float
    venue: str = "XETRA"
    tags: list[str] = field(default_factory=list)


class Pair(NamedTuple):
    left: int
    right: int


class Model(pydantic.BaseModel):
    id: int
    at: datetime
    days: set[date] = set()


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"compact": True, "schema": 0}, b"\x82\xa7compact\xc3\xa6schema\x00"),  # the example of msgpack.org
        ({"b": 1, "a": None}, b"\x82\xa1a\xc0\xa1b\x01"),
        ([1, -1, 128, -129], b"\x94\x01\xff\xcc\x80\xd1\xff\x7f"),
        (1.5, b"\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00"),
        (b"ab", b"\xc4\x02ab"),
        (datetime.fromtimestamp(1, UTC), b"\xd6\xff\x00\x00\x00\x01"),  # the timestamp of 32 bits
        ({2: "b", 1: "a"}, b"\x82\x01\xa1a\x02\xa1b"),
        (2**64 - 1, b"\xcf" + 8 * b"\xff"),
    ],
)
def test_plain_values_have_the_bytes_of_the_specification(value: Any, data: bytes) -> None:
    serde = Serdes.msgpack()
    assert serde.serialize("t", value) == data
    assert serde.deserialize("t", data) == value


plain = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=4) | st.binary(max_size=4),
    lambda inner: (
        st.lists(st.none() | inner, max_size=3)
        | st.dictionaries(st.text(max_size=2), st.none() | inner, max_size=3)
        | st.dictionaries(st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(plain)
def test_plain_values_come_back(value: Any) -> None:
    serde = Serdes.msgpack()
    assert same(serde.deserialize("t", serde.serialize("t", value)), value)


@given(st.data())
def test_objects_of_classes_come_back(data: st.DataObject) -> None:
    typed = data.draw(types)
    serde = Serdes.msgpack(typed.type)
    value = data.draw(typed.values.filter(lambda each: each is not None and is_of_64_bits(each)))
    assert same(serde.deserialize("t", serde.serialize("t", value)), value)


@given(st.integers(), st.datetimes(timezones=st.just(UTC)), st.sets(st.dates(), max_size=3))
def test_models_come_back(id: int, at: datetime, days: set[date]) -> None:
    serde = Serdes.msgpack(Model)
    value = Model(id=id % 2**63, at=at, days=days)
    assert serde.deserialize("t", serde.serialize("t", value)) == value


def test_equal_values_have_equal_bytes() -> None:
    serde = Serdes.msgpack()
    assert serde.serialize("t", {"a": {1, 2, 30}, "b": {3: 1, "x": 2}}) == serde.serialize(
        "t", {"b": {"x": 2, 3: 1}, "a": {30, 2, 1}}
    )
    assert serde.serialize("t", {1: Trade("ABC", 1.5)}) == b"\x81\x01" + serde.serialize("t", Trade("ABC", 1.5))


def test_old_data_is_read_by_a_newer_class_and_newer_data_by_the_old_one() -> None:
    old, new = Serdes.msgpack(Trade), Serdes.msgpack(NewerTrade)
    assert new.deserialize("t", old.serialize("t", Trade("ABC", 1.5))) == NewerTrade("ABC", 1.5)
    assert old.deserialize("t", new.serialize("t", NewerTrade("ABC", 1.5, "LSE", ["x"]))) == Trade("ABC", 1.5)


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (Serdes.msgpack(), 2**64),
        (Serdes.msgpack(), object()),
        (Serdes.msgpack(), "\ud800"),
        (Serdes.msgpack(Trade), Trade("ABC", "dear")),  # type: ignore[arg-type]  # the mistake that is tested
        (Serdes.msgpack(Trade), {"symbol": "ABC", "price": 1.5, "other": 1}),
        (Serdes.msgpack(Model), {"id": 1}),
        (Serdes.msgpack(Model), {"id": 1, "at": datetime(2024, 1, 1, tzinfo=UTC), "other": 1}),
    ],
)
def test_values_that_would_be_lost_are_refused(serde: Any, value: Any) -> None:
    with pytest.raises(SerializationError, match=r"^Cannot write .*'orders'"):
        serde.serialize("orders", value)


def test_a_model_of_another_class_is_a_type_error_and_a_dict_becomes_a_model() -> None:
    serde = Serdes.msgpack(Model)
    with pytest.raises(TypeError, match="expected a Model, got int"):
        serde.serialize("t", 3)
    at = datetime(2024, 1, 1, tzinfo=UTC)
    assert serde.deserialize("t", serde.serialize("t", {"id": 1, "at": at})) == Model(id=1, at=at)


@pytest.mark.parametrize("serde", [Serdes.msgpack(), Serdes.msgpack(Trade), Serdes.msgpack(Model)])
@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x82\xa1a"])
def test_other_bytes_are_refused(serde: Any, data: bytes) -> None:
    with pytest.raises(SerializationError, match="'orders' as MessagePack"):
        serde.deserialize("orders", data)


def test_a_class_that_cannot_be_read_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"Serdes\.msgpack\(Other\)"):
        Serdes.msgpack(type("Other", (), {}))


@pytest.mark.parametrize("type_", [None, Trade, Pair, Model])
def test_a_serde_can_be_sent_to_workers(type_: Any) -> None:
    serde = pickle.loads(pickle.dumps(Serdes.msgpack(type_)))
    assert serde.type is type_


def test_the_format_is_known_to_checks_of_serdes() -> None:
    trades = Serdes.msgpack(Trade)
    assert format_of(trades) == format_of(Serdes.msgpack(Model)) == "messagepack"
    assert are_alike(trades, Serdes.msgpack(Trade))
    assert not are_alike(trades, Serdes.msgpack(NewerTrade))
    assert read_type(trades) is Trade
    assert written_type(Serdes.msgpack(Model)) is Model
    assert isinstance(trades, MessagePackSerde)
    assert isinstance(Serdes.msgpack(Model), PydanticMessagePackSerde)


@pytest.mark.parametrize("execution", ["record", "auto"])
def test_a_topology_with_a_store_of_message_pack(execution: str) -> None:
    trades = Serdes.msgpack(Trade)
    builder = StreamsBuilder()
    kept = Materialized.as_("kept").with_key_serde(TEXT).with_value_serde(trades)
    best = builder.stream("in", Consumed.with_(TEXT, trades)).group_by_key().reduce(_dearer, kept)
    best.to_stream().to("out", Produced.with_(TEXT, trades))
    with TopologyTestDriver(builder.build(), {"penstock.execution": execution}) as driver:
        source = driver.create_input_topic("in", TEXT, trades)
        for price in (2.0, 3.0, 1.0):
            source.pipe_input("ABC", Trade("ABC", price))
        found = driver.create_output_topic("out", TEXT, trades).read_values_to_list()
        assert [each.price for each in found] == [2.0, 3.0, 3.0]


def _dearer(one: Trade, other: Trade) -> Trade:
    return max(one, other, key=lambda each: each.price)
