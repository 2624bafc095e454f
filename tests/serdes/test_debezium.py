"""Change events of Debezium in JSON and Avro: fixtures in its format, rows of classes, tables, evolution."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Consumed, Materialized, Produced, Serdes, StreamsBuilder
from penstock.errors import SerializationError
from penstock.serdes import Serde, serde_of_type
from penstock.serdes.avro import AvroSerde
from penstock.serdes.debezium import (
    DebeziumChange,
    DebeziumKeySerde,
    DebeziumOperation,
    DebeziumSerde,
    DebeziumTransaction,
    row_of,
)
from penstock.testing import TopologyTestDriver

# A change of a customer, as in the manual of Debezium's connector for PostgreSQL (section "Change events").
SOURCE = {
    "version": "3.4.0.Final",
    "connector": "postgresql",
    "name": "PostgreSQL_server",
    "ts_ms": 1559033904863,
    "snapshot": False,
    "db": "postgres",
    "schema": "public",
    "table": "customers",
    "txId": 556,
    "lsn": 24023128,
    "xmin": None,
}
ROW = {"id": 1, "first_name": "Anne Marie", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
UPDATE = {
    "before": {"id": 1},
    "after": ROW,
    "source": SOURCE,
    "op": "u",
    "ts_ms": 1465584025523,
    "transaction": {"id": "571", "total_order": 1, "data_collection_order": 1},
}
SCHEMA = {"type": "struct", "fields": [], "optional": False, "name": "PostgreSQL_server.public.customers.Envelope"}


@dataclass
class Customer:
    id: int
    first_name: str = ""


@dataclass
class NewerCustomer:
    id: int
    first_name: str = ""
    country: str = "DE"


@dataclass
class Payment:
    id: int
    amount: Decimal
    at: datetime
    receipt: bytes


class Model(pydantic.BaseModel):
    id: int
    first_name: str = ""


def read(serde: Serde[Any], value: Any) -> Any:
    return serde.deserialize("customers", json.dumps(value).encode())


@pytest.mark.parametrize("value", [UPDATE, {"schema": SCHEMA, "payload": UPDATE}])
def test_a_change_is_read_with_and_without_its_schema(value: Any) -> None:
    assert read(DebeziumSerde(), value) == DebeziumChange(
        DebeziumOperation.UPDATE, {"id": 1}, ROW, SOURCE, 1465584025523, DebeziumTransaction("571", 1, 1)
    )


@pytest.mark.parametrize(
    ("op", "before", "after", "row"),
    [
        ("c", None, ROW, ROW),
        ("r", None, ROW, ROW),
        ("u", ROW, ROW, ROW),
        ("d", ROW, None, None),
        ("t", None, None, None),
    ],
)
def test_each_operation_has_the_row_after_it(op: str, before: Any, after: Any, row: Any) -> None:
    change = read(DebeziumSerde(), {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 1})
    assert (change.op, row_of(change)) == (op, row)


def test_a_message_has_its_content_in_more() -> None:
    message = {"prefix": "foo", "content": "YmFy"}
    change = read(DebeziumSerde(), {"op": "m", "ts_ms": 1, "source": SOURCE, "message": message})
    assert (change.op, dict(change.more), row_of(change)) == (DebeziumOperation.MESSAGE, {"message": message}, None)


@pytest.mark.parametrize("type_", [Customer, Model])
def test_rows_are_objects_of_a_class(type_: Any) -> None:
    change = read(DebeziumSerde(type_), {"schema": SCHEMA, "payload": UPDATE})
    assert (change.before, change.after) == (type_(id=1), type_(id=1, first_name="Anne Marie"))


rows = st.none() | st.builds(
    Payment,
    st.integers(-(2**63), 2**63 - 1),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.datetimes(),
    st.binary(max_size=4),
)
changes = st.builds(
    DebeziumChange,
    st.sampled_from(DebeziumOperation),
    rows,
    rows,
    st.dictionaries(st.text(max_size=3), st.integers(0, 9) | st.text(max_size=3), max_size=3),
    st.none() | st.integers(0, 2**50),
    st.none() | st.builds(DebeziumTransaction, st.text(max_size=3), st.integers(1, 9), st.integers(1, 9)),
    st.none() | st.integers(0, 2**60),
    st.none() | st.integers(0, 2**62),
)


@given(changes)
def test_changes_come_back_from_a_store(change: DebeziumChange[Payment]) -> None:
    serde = DebeziumSerde(Payment)
    assert serde.deserialize("t", serde.serialize("t", change)) == change


def test_old_rows_are_read_by_a_newer_class_and_newer_rows_by_the_old_one() -> None:
    old, new = DebeziumSerde(Customer), DebeziumSerde(NewerCustomer)
    change = DebeziumChange(DebeziumOperation.CREATE, None, Customer(1, "Ann"), SOURCE, 1)
    assert new.deserialize("t", old.serialize("t", change)).after == NewerCustomer(1, "Ann")
    newer = DebeziumChange(DebeziumOperation.CREATE, None, NewerCustomer(1, "Ann", "FR"), SOURCE, 1)
    assert old.deserialize("t", new.serialize("t", newer)).after == Customer(1, "Ann")


VALUE_SCHEMA = {
    "type": "record",
    "name": "Value",
    "namespace": "server.public.customers",
    "fields": [{"name": "id", "type": "int"}, {"name": "first_name", "type": "string", "default": ""}],
}
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Envelope",
        "namespace": "server.public.customers",
        "fields": [
            {"name": "before", "type": ["null", VALUE_SCHEMA], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": {"type": "map", "values": "string"}},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
            {
                "name": "transaction",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "block",
                        "namespace": "event",
                        "fields": [
                            {"name": "id", "type": "string"},
                            {"name": "total_order", "type": "long"},
                            {"name": "data_collection_order", "type": "long"},
                        ],
                    },
                ],
                "default": None,
            },
        ],
    }
)


@pytest.mark.parametrize("type_", [None, Customer])
def test_avro_is_read_and_written_by_an_inner_serde(type_: type | None) -> None:
    row: Any = {"id": 1, "first_name": "Ann"} if type_ is None else Customer(1, "Ann")
    change = DebeziumChange(
        DebeziumOperation.UPDATE, None, row, {"table": "customers"}, 5, DebeziumTransaction("571", 1, 1)
    )
    writer = DebeziumSerde(type_, inner=AvroSerde("mock://debezium", AVRO))
    data = writer.serialize("customers", change)
    assert data[:1] == b"\0"
    assert writer.deserialize("customers", data) == change
    by_writers_schema = DebeziumSerde(type_, inner=AvroSerde("mock://debezium"))
    assert by_writers_schema.deserialize("customers", data) == change
    assert by_writers_schema.uses_headers


@pytest.mark.parametrize(
    "data",
    [b'{"id": 1}', b"[]", b'{"op": "x"}', b'{"op": "c", "after": {"id": "one"}}', b'{"op":"c","transaction":{"id":1}}'],
)
def test_other_json_is_refused_with_a_hint(data: bytes) -> None:
    with pytest.raises(SerializationError, match=r"from 'customers' as a change event.*ExtractNewRecordState"):
        DebeziumSerde(Customer).deserialize("customers", data)


def test_what_is_no_change_is_not_written() -> None:
    with pytest.raises(TypeError, match="'customers': expected a DebeziumChange, got Customer"):
        DebeziumSerde(Customer).serialize("customers", Customer(1))
    wrong: Any = DebeziumChange(DebeziumOperation.CREATE, None, Customer("one"))  # type: ignore[arg-type]  # the mistake
    with pytest.raises(SerializationError, match="'customers'"):
        DebeziumSerde(Customer).serialize("customers", wrong)
    with pytest.raises(SerializationError, match=r"Cannot write .* to 'customers' as JSON"):
        DebeziumSerde().serialize("customers", DebeziumChange(DebeziumOperation.CREATE, None, object()))


def test_a_class_that_cannot_be_read_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"DebeziumSerde\(Other\)"):
        DebeziumSerde(type("Other", (), {}))


def test_a_payload_that_is_null_is_a_tombstone() -> None:
    assert read(DebeziumSerde(), {"schema": SCHEMA, "payload": None}) is None
    assert row_of(None) is None


@pytest.mark.parametrize("value", [{"id": 1}, {"schema": SCHEMA, "payload": {"id": 1}}])
def test_keys_are_read_with_and_without_their_schema(value: Any) -> None:
    assert read(DebeziumKeySerde(), value) == {"id": 1}
    keys = DebeziumKeySerde(Serdes.json(Customer))
    assert read(keys, value) == Customer(1)
    assert read(keys, json.loads(keys.serialize("customers", Customer(1)))) == Customer(1)


@pytest.mark.parametrize("serde", [DebeziumSerde(Customer), DebeziumSerde(Model), DebeziumKeySerde()])
def test_a_serde_can_be_sent_to_workers(serde: Serde[Any]) -> None:
    assert type(pickle.loads(pickle.dumps(serde))) is type(serde)
    assert read(pickle.loads(pickle.dumps(DebeziumSerde(Customer))), UPDATE).before == Customer(1)


@pytest.mark.parametrize("execution", ["record", "auto"])
def test_a_table_follows_the_changes_of_a_database(execution: str) -> None:
    keys, customers = DebeziumKeySerde(), Serdes.json(Customer)
    builder = StreamsBuilder()
    changes = builder.stream("customers", Consumed.with_(keys, DebeziumSerde(Customer)))
    kept = Materialized.as_("customers").with_key_serde(keys).with_value_serde(customers)
    changes.map_values(row_of).to_table(materialized=kept).to_stream().to("out", Produced.with_(keys, customers))
    key = json.dumps({"schema": SCHEMA, "payload": {"id": 1}}).encode()
    with TopologyTestDriver(builder.build(), {"penstock.execution": execution}) as driver:
        source = driver.create_input_topic("customers", Serdes.bytes(), Serdes.bytes())
        deletion = {"before": ROW, "after": None, "source": SOURCE, "op": "d", "ts_ms": 2}
        for value in (UPDATE, {"schema": SCHEMA, "payload": UPDATE}, deletion):
            source.pipe_input(key, json.dumps(value).encode())
        source.pipe_input(key, None)
        target = driver.create_output_topic("out", keys, customers)
        found = [(each.key, each.value) for each in target.read_key_values_to_list()]
        ann = Customer(1, "Anne Marie")
        assert found[:3] == [({"id": 1}, ann), ({"id": 1}, ann), ({"id": 1}, None)]
        store = driver.get_key_value_store("customers")
        assert store is not None
        assert store.get({"id": 1}) is None


def test_an_annotation_does_not_choose_the_serde_of_the_envelope() -> None:
    assert serde_of_type(DebeziumChange) is None
    assert serde_of_type(DebeziumChange[Customer]) is None


def test_a_column_of_changes_keeps_tombstones() -> None:
    serde = DebeziumSerde(Customer)
    column = [DebeziumChange(DebeziumOperation.CREATE, None, Customer(1)), None]
    assert serde.deserialize_column("t", serde.serialize_column("t", column)) == column
