"""Stores that keep headers with their values: the bytes are Kafka's, and operators do not see them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.record import AggregationWithHeaders, Headers, ValueAndTimestamp, ValueTimestampHeaders
from penstock.serdes import Serde, Serdes
from penstock.state.api import StoreBuilder
from penstock.state.state_serdes import StateSerdes
from penstock.state.stores import Stores
from penstock.state.suppliers import SessionBytesStoreSupplier
from penstock.windows import SessionWindow, Windowed
from tests.support.stores import CONTEXT, STRING, build

HEADERS: Headers = (("h", b"1"), ("none", None))
SESSION = Windowed("a", SessionWindow(1, 2))


def test_a_key_value_store_keeps_value_timestamp_and_headers() -> None:
    supplier = Stores.persistent_timestamped_key_value_store_with_headers("s")
    store = build(Stores.timestamped_key_value_store_with_headers_builder(supplier, STRING, STRING))
    store.put("a", ValueTimestampHeaders("x", 258, (("h", None),)))
    store.put("b", ValueAndTimestamp("y", 1))
    assert store.changes() == {
        b"a": b"\x08\x02\x02h\x01" + b"\0\0\0\0\0\0\x01\x02x",
        b"b": b"\x00" + b"\0\0\0\0\0\0\x00\x01y",
    }
    assert store.get("a") == ValueTimestampHeaders("x", 258, (("h", None),))
    assert store.get("b") == ValueTimestampHeaders("y", 1)
    values, timestamps = store.get_columns([b"a", b"b", b"c"])
    assert (values, timestamps.tolist()) == (["x", "y", None], [258, 1, -1])
    store.put_columns([b"c"], ["z"], np.array([9], np.int64), [CONTEXT])
    assert store.get("c") == ValueTimestampHeaders("z", 9)
    with pytest.raises(TypeError, match="holds ValueAndTimestamp, not str"):
        store.put("a", "plain")


class TellingSerde(Serde[str]):
    """A text, and the names of the headers that it was written and read with."""

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        return f"{value}>{''.join(dict(headers))}".encode()

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> str:
        return f"{data.decode()}<{''.join(dict(headers))}"


def test_the_serde_of_the_values_is_shown_the_headers_that_are_kept() -> None:
    supplier = Stores.persistent_timestamped_key_value_store_with_headers("s")
    store = build(Stores.timestamped_key_value_store_with_headers_builder(supplier, STRING, TellingSerde()))
    store.put("a", ValueTimestampHeaders("x", 1, (("h", None),)))
    store.put("b", ValueAndTimestamp("y", 2))
    assert [entry.value.value for entry in store.all()] == ["x>h<h", "y><"]
    assert store.get_columns([b"a", b"c", b"b"])[0] == ["x>h<h", None, "y><"]
    sessions = build(
        Stores.session_store_with_headers_builder(
            Stores.persistent_session_store_with_headers("s", 100), STRING, TellingSerde()
        )
    )
    session = Windowed("a", SessionWindow(0, 5))
    sessions.put(session, AggregationWithHeaders("x", (("h", None),)))
    assert sessions.fetch_session("a", 0, 5).aggregation == "x>h<h"


def test_a_window_store_keeps_them_too() -> None:
    supplier = Stores.persistent_timestamped_window_store_with_headers("s", 100, 10, False)
    store = build(Stores.timestamped_window_store_with_headers_builder(supplier, STRING, STRING))
    store.put("a", ValueTimestampHeaders("x", 5, HEADERS), 0)
    assert list(store.fetch("a", 0, 10)) == [(0, ValueTimestampHeaders("x", 5, HEADERS))]


def test_a_session_store_keeps_aggregates_with_headers() -> None:
    supplier = Stores.persistent_session_store_with_headers("s", 100)
    store = build(Stores.session_store_with_headers_builder(supplier, STRING, STRING))
    store.put(SESSION, AggregationWithHeaders("x", HEADERS))
    assert list(store.fetch("a")) == [(SESSION, AggregationWithHeaders("x", HEADERS))]
    store.put(SESSION, AggregationWithHeaders(None))
    assert list(store.fetch("a")) == []
    with pytest.raises(TypeError, match="holds AggregationWithHeaders, not str"):
        store.put(SESSION, "plain")


def test_operators_see_plain_aggregates_in_stores_of_either_format() -> None:
    supplier = SessionBytesStoreSupplier("s", 100, None, keeps_headers=None)
    builder = StoreBuilder(supplier, STRING, STRING, with_headers=None)
    plain, with_headers = build(builder), build(builder, **{"dsl.store.format": "headers"})
    for store in (plain, with_headers):
        store.put(SESSION, "x")
        assert store.fetch_session("a", 1, 2) == "x"
    assert (plain.with_headers, with_headers.with_headers) == (False, True)
    assert [*plain.changes().values()] == [b"x"]
    assert [*with_headers.changes().values()] == [b"\x00x"]


def test_users_see_aggregates_with_headers_in_stores_that_keep_them() -> None:
    supplier = SessionBytesStoreSupplier("s", 100, None, keeps_headers=None)
    builder = StoreBuilder(supplier, STRING, STRING, with_headers=None)
    plain, with_headers = build(builder), build(builder, **{"dsl.store.format": "headers"})
    assert plain.exposed() is plain is plain.of_operators()
    with_headers.put(SESSION, "x")
    shown = with_headers.exposed()
    assert shown.fetch_session("a", 1, 2) == AggregationWithHeaders("x", ())
    shown.put(SESSION, AggregationWithHeaders("y", HEADERS))
    assert with_headers.fetch_session("a", 1, 2) == "y"
    assert with_headers.exposed() is shown
    assert shown.of_operators() is with_headers is with_headers.of_operators()
    with_headers.close()
    assert not shown.is_open()


class FailingSerde(Serde[str]):
    """Fails with an error of its own."""

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        raise ValueError("no")

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("call", "action"),
    [
        (lambda serdes: serdes.serialize_value("x"), "write value 'x'"),
        (lambda serdes: serdes.deserialize_value(b"x"), "read value b'x'"),
        (lambda serdes: serdes.serialize_values(["x"], np.zeros(1, np.int64)), "write values"),
        (lambda serdes: serdes.deserialize_values([b"x"]), "read values"),
    ],
)
def test_an_error_of_a_serde_has_a_note_with_store_and_serdes(call: Any, action: str) -> None:
    with pytest.raises(ValueError, match=r"^no") as caught:
        call(StateSerdes("s", "topic", STRING, FailingSerde()))
    (note,) = caught.value.__notes__
    assert note.startswith(f"Store 's' cannot {action} with StringSerde for keys and FailingSerde for values")


def test_a_fresh_value_is_a_copy_unless_nothing_can_change_it() -> None:
    text, json = StateSerdes("s", "topic", STRING, STRING), StateSerdes("s", "topic", STRING, Serdes.json())
    value = "".join(["a", "b"])
    assert text.fresh(value) is value
    mutable = [1, (2,)]
    assert json.fresh(mutable) == [1, [2]]
    assert json.fresh(mutable) is not mutable
    assert json.fresh(None) is None


def test_a_timestamped_value_is_eight_bytes_of_time_and_the_value() -> None:
    supplier = Stores.persistent_timestamped_key_value_store("s")
    store = build(Stores.timestamped_key_value_store_builder(supplier, Serdes.string(), Serdes.string()))
    store.put("a", ValueAndTimestamp("x", 258))
    assert store.changes() == {b"a": b"\0\0\0\0\0\0\x01\x02x"}
    assert store.get("a") == ValueAndTimestamp("x", 258)
    assert list(store.all()) == [("a", ValueAndTimestamp("x", 258))]
    store.put("a", ValueAndTimestamp(None, 300))
    assert store.get("a") is None
    with pytest.raises(TypeError, match="Store 's' holds ValueAndTimestamp, not str 'plain'"):
        store.put("a", "plain")
