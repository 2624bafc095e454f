"""Arrow reads columns of JSON objects as the serde reads each, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Consumed, Produced, StreamsBuilder
from penstock.errors import SerializationError
from penstock.record import RecordBatch
from penstock.serdes import Serde, Serdes
from penstock.serdes.json_columns import ObjectColumn, read_structs, struct_fields
from tests.task.topologies import sent, task_of


@dataclass
class Order:
    number: int
    price: float
    name: str
    is_paid: bool = True


@dataclass
class Nested:
    order: Order


@dataclass
class Checked:
    number: int

    def __post_init__(self) -> None:
        assert self.number


@dataclass
class Limited:
    number: Annotated[int, msgspec.Meta(ge=0)]


@dataclass
class Nullable:
    number: int | None


class Struct(msgspec.Struct):
    number: int


ORDERS = Serdes.json(Order)
FIELDS = {"number": "int64", "price": "double", "name": "string", "is_paid": "bool"}
GOOD = b'{"number":1,"price":2.5,"name":"tea","is_paid":true}'

texts = st.text(max_size=5) | st.sampled_from(['"', "\\", "\n", "\u2028", "\ud800", "NaN", "{", "}", "[", "\x00"])
scalars = st.integers() | st.floats() | st.booleans() | st.none() | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2))
orders = st.builds(Order, st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), texts)
numbers = st.from_regex(rb"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)


def written(order: dict[str, Any], as_ascii: bool) -> bytes:
    return json.dumps(order, ensure_ascii=as_ascii).encode("utf-8", "surrogatepass")


def changed(order: Order, more: dict[str, Any], without: str, as_ascii: bool) -> bytes:
    """Return an object with other fields, also in place of its own, and without one."""
    found = {**asdict(order), **more}
    found.pop(without, None)
    return written(found, as_ascii)


names = st.sampled_from([*FIELDS, "more"])
documents = (
    st.builds(lambda order: written(asdict(order), False), orders)
    | st.builds(changed, orders, st.dictionaries(names, values, max_size=2), names | st.just(""), st.booleans())
    | numbers.map(lambda number: b'{"number":1,"price":%s,"name":"n","is_paid":false}' % number)
    | numbers.map(lambda number: b'{"number":%s,"price":1,"name":"n","is_paid":false}' % number)
    | st.tuples(st.integers(0, len(GOOD)), st.binary(max_size=3)).map(
        lambda change: GOOD[: change[0]] + change[1] + GOOD[change[0] :]
    )
    | st.tuples(st.integers(0, len(GOOD)), st.integers(0, 5)).map(lambda cut: GOOD[: cut[0]] + GOOD[cut[0] + cut[1] :])
)


def same(one: Any, other: Any) -> bool:
    """Return whether two rows are equal, also in the types and signs of their numbers."""
    return repr(one) == repr(other)


@given(st.lists(documents, min_size=1, max_size=3))
def test_arrow_reads_objects_as_the_serde_or_not_at_all(data: list[bytes]) -> None:
    array = read_structs(data, FIELDS)
    if array is None:
        return
    assert same(array.to_pylist(), [asdict(ORDERS.deserialize("in", item)) for item in data])


@given(st.lists(orders.filter(lambda order: not set('{}[\n\r"\\\ud800\x00') & set(order.name)), min_size=1, max_size=5))
def test_plain_objects_are_read_by_arrow(found: list[Order]) -> None:
    plain = [order for order in found if order.name.isprintable() and "NaN" not in order.name]
    data = [ORDERS.serialize("in", order) for order in plain]
    column = ORDERS.deserialize_array("in", data, "pyarrow") if data else None
    if column is not None:
        assert [*column] == plain
        assert column.array.equals(pa.array([asdict(order) for order in plain]))


def test_a_column_is_an_array_of_structs_and_objects_when_they_are_used() -> None:
    data: list[bytes | None] = [GOOD, b'{ "more": -1.5e3, "name":"\xc3\xa9","is_paid":false,"price":0,"number":-7}']
    column = ORDERS.deserialize_array("in", data, "pyarrow")
    assert isinstance(column, ObjectColumn)
    assert column.array.to_pylist() == [
        {"number": 1, "price": 2.5, "name": "tea", "is_paid": True},
        {"number": -7, "price": 0.0, "name": "\u00e9", "is_paid": False},
    ]
    expected = [Order(1, 2.5, "tea"), Order(-7, 0.0, "\u00e9", False)]
    assert [*column] == expected
    assert [*column.take(np.array([1, 0, 1]))] == [expected[1], expected[0], expected[1]]
    assert [*column.take(slice(1, 2))] == expected[1:]
    assert column.take(slice(1, 2)).array.to_pylist() == column.array.to_pylist()[1:]


@pytest.mark.parametrize(
    "item",
    [
        b'{"number":1,"price":NaN,"name":"x","is_paid":true}',
        b'{"number":1,"price":-Infinity,"name":"x","is_paid":true}',
        b'{"number":1,"price":1e999,"name":"x","is_paid":true}',
        b'{"number":1,"price":10E308,"name":"x","is_paid":true}',
        b'{"number":1,"price":-0,"name":"x","is_paid":true}',
        b'{"number":1,"price":"NaN","name":"x","is_paid":true}',
        b'{"number":9223372036854775808,"price":1,"name":"x","is_paid":true}',
        b'{"number":1,"number":2,"price":1,"name":"x","is_paid":true}',
        b'{"number":1,"price":1,"name":"x"}',
        b'{"number":1,"price":1,"name":"\\u0061","is_paid":true}',
        b'{"number":1,"price":1,"name":"\xff","is_paid":true}',
        b'{"number":1,"price":1,"name":"x","is_paid":true,"more":{}}',
        b'{"number":1,"price":1,"name":null,"is_paid":true}',
        b'{"number":1,\n"price":1,"name":"x","is_paid":true}',
        GOOD + GOOD,
        GOOD + b",",
        b" " + GOOD,
        b"",
        None,
    ],
)
def test_an_object_that_may_be_read_in_another_way_is_left_to_the_serde(item: bytes | None) -> None:
    assert ORDERS.deserialize_array("in", [GOOD, item], "pyarrow") is None


def test_an_array_of_numpy_has_no_structs() -> None:
    assert ORDERS.deserialize_array("in", [GOOD], "numpy") is None


@pytest.mark.parametrize("kind", [Nested, Checked, Limited, Nullable, Struct, dict[str, int], int])
def test_other_classes_are_left_to_the_serde(kind: Any) -> None:
    assert struct_fields(kind) is None


def test_a_dataclass_of_single_values_has_structs() -> None:
    assert struct_fields(Order) == FIELDS


def test_a_serde_with_its_own_way_to_read_makes_no_structs() -> None:
    kind: Callable[..., Serde] = type(ORDERS)

    class Own(kind):  # type: ignore[misc,valid-type]  # the class has no public name
        def deserialize(self, topic: str, data: bytes, headers: Any = ()) -> Any:
            raise SerializationError("no")

    assert Own(Order).deserialize_array("in", [GOOD], "pyarrow") is None


def expensive(found: pa.StructArray) -> pa.StringArray:
    return pc.if_else(pc.greater(found.field("price"), 5.0), found.field("name"), "cheap")


@pytest.mark.parametrize("last", [GOOD, GOOD.replace(b"2.5", b'"NaN"'), GOOD.replace(b"tea", b"\\u0061")])
def test_a_function_on_structs_gives_the_bytes_of_rows(last: bytes) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(Serdes.string(), ORDERS))
    stream.map_values(expensive).to("out", Produced.with_(Serdes.string(), Serdes.string()))
    data = [*[ORDERS.serialize("in", Order(number, number / 3, f"n{number}")) for number in range(40)], last]
    found = []
    for execution in ("auto", "record"):
        task = task_of(builder.build(), execution=execution)
        task.add_records("in", 0, RecordBatch.of([(b"k", item, row, row, ()) for row, item in enumerate(data)]))
        task.process()
        found.append(sent(task))
    assert found[0] == found[1]
    assert [value for _, _, value, _ in found[0]][15:17] == ["cheap", "n16"]
