"""Stores and topics as tables: in notebooks, and as Arrow, which pyarrow, pandas, polars and DuckDB read."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from penstock import (
    QueryableStoreTypes,
    Serde,
    Serdes,
    StoreBuilder,
    Stores,
    Topology,
    ValueAndTimestamp,
    Windowed,
)
from penstock.errors import InvalidStateStoreError
from penstock.notebook import HTML, TEXT
from penstock.processor.stateless import StreamPeek
from penstock.state.query.queryable import StoresOfPartitions
from penstock.state.read_only import read_only
from penstock.testing import TopologyTestDriver
from penstock.windows import SessionWindow
from tests.support.frames import READERS, rows_for_all

STRING, LONG = Serdes.string(), Serdes.long()


@pytest.fixture
def store_of() -> Iterator[Callable[[StoreBuilder], Any]]:
    """Make the only store of a driver, as processors get it."""
    drivers = []

    def make(builder: StoreBuilder) -> Any:
        topology = Topology().add_source("source", "in")
        topology.add_processor("peek", lambda: StreamPeek(lambda key, value: None), "source")
        driver = TopologyTestDriver(
            topology.add_state_store(builder, "peek"), {"default.key.serde": STRING, "default.value.serde": STRING}
        )
        drivers.append(driver)
        return driver.get_all_state_stores()["s"]

    yield make
    for driver in drivers:
        driver.close()


def key_value(key_serde: Serde = STRING, value_serde: Serde = LONG) -> StoreBuilder:
    return Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), key_serde, value_serde)


def timestamped() -> StoreBuilder:
    supplier = Stores.persistent_timestamped_key_value_store("s")
    return Stores.timestamped_key_value_store_builder(supplier, STRING, LONG)


def time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def test_key_value_stores_are_tables(store_of: Callable[[StoreBuilder], Any]) -> None:
    plain, with_times = store_of(key_value()), store_of(timestamped())
    plain.put("a", 1)
    with_times.put("a", ValueAndTimestamp(1, 1_500))
    with_times.put("b", ValueAndTimestamp(2, -1))
    assert rows_for_all(plain) == [{"key": "a", "value": 1}]
    assert pa.table(with_times).schema.names == ["key", "value", "timestamp"]
    assert rows_for_all(with_times) == [
        {"key": "a", "value": 1, "timestamp": time(1_500)},
        {"key": "b", "value": 2, "timestamp": None},
    ]


def test_windows_sessions_and_versions_are_tables(store_of: Callable[[StoreBuilder], Any]) -> None:
    windows = store_of(Stores.window_store_builder(Stores.in_memory_window_store("s", 1000, 10, False), STRING, LONG))
    windows.put("a", 1, 20)
    sessions = store_of(Stores.session_store_builder(Stores.in_memory_session_store("s", 1000), STRING, LONG))
    sessions.put(Windowed("a", SessionWindow(5, 25)), 2)
    supplier = Stores.persistent_versioned_key_value_store("s", 1000)
    versions = store_of(Stores.versioned_key_value_store_builder(supplier, STRING, LONG))
    versions.put("a", 3, 30)
    versions.put("a", 4, 40)
    assert rows_for_all(windows) == [{"key": "a", "window_start": time(20), "window_end": time(30), "value": 1}]
    assert rows_for_all(sessions) == [{"key": "a", "window_start": time(5), "window_end": time(25), "value": 2}]
    assert rows_for_all(versions) == [{"key": "a", "value": 4, "timestamp": time(40)}]


def test_json_and_uuids_are_texts_and_other_objects_bytes(store_of: Callable[[StoreBuilder], Any]) -> None:
    store = store_of(key_value(Serdes.uuid(), Serdes.json()))
    key = uuid.UUID(int=1)
    store.put(key, {"a": [1]})
    assert rows_for_all(store) == [{"key": str(key), "value": '{"a":[1]}'}]
    store = store_of(key_value(Serdes.list(LONG), LONG))
    store.put([1], 2)
    assert pa.table(store).schema.field("key").type == pa.binary()
    assert isinstance(rows_for_all(store)[0]["key"], bytes)


def test_the_views_of_stores_are_the_same_tables(store_of: Callable[[StoreBuilder], Any]) -> None:
    first, second = store_of(timestamped()), store_of(timestamped())
    first.put("a", ValueAndTimestamp(1, 10))
    second.put("b", ValueAndTimestamp(2, 20))
    provider = StoresOfPartitions(lambda _: [first, second], None, InvalidStateStoreError)
    both = QueryableStoreTypes.key_value_store().create(provider, "s")
    assert pa.table(both) == pa.concat_tables([pa.table(first), pa.table(second)])
    assert pa.table(read_only(first)) == pa.table(first)
    assert [row["key"] for row in rows_for_all(both)] == ["a", "b"]
    text = both._repr_mimebundle_()[TEXT]
    assert text.splitlines()[0] == "Store s (kind: timestamped key-value store, entries: 2)"


def test_the_driver_shows_a_timestamped_store_without_timestamps_as_the_same_table() -> None:
    topology = Topology().add_source("source", "in")
    topology.add_processor("peek", lambda: StreamPeek(lambda key, value: None), "source")
    topology.add_state_store(timestamped(), "peek")
    with TopologyTestDriver(topology, {"default.key.serde": STRING, "default.value.serde": STRING}) as driver:
        store = driver.get_key_value_store("s")
        assert store is not None
        store.put("a", 1)
        assert rows_for_all(store) == [{"key": "a", "value": 1, "timestamp": None}]


def test_a_large_store_is_read_a_batch_at_a_time(store_of: Callable[[StoreBuilder], Any]) -> None:
    store = store_of(key_value(LONG, LONG))
    store.put_all([(number, number) for number in range(25_000)])
    reader = pa.RecordBatchReader.from_stream(store)
    assert len(reader.read_next_batch()) == 10_000
    store.close()
    with pytest.raises(Exception, match="closed"):  # what was not read yet was not copied either
        reader.read_next_batch()


def test_a_consumer_may_leave_before_the_end(store_of: Callable[[StoreBuilder], Any]) -> None:
    store = store_of(key_value(LONG, LONG))
    store.put_all([(number, number) for number in range(25_000)])
    reader = pa.RecordBatchReader.from_stream(store)
    reader.read_next_batch()
    reader.close()
    assert pa.table(store).num_rows == 25_000


def test_a_query_of_duckdb_reads_a_store_by_the_name_of_a_variable(store_of: Callable[[StoreBuilder], Any]) -> None:
    store = store_of(key_value(LONG, LONG))
    store.put_all([(number, 2 * number) for number in range(25_000)])
    query = duckdb.sql("select count(*), max(value) from store where key < 20_000")
    assert query.fetchall() == [(20_000, 39_998)]
    store.put(1, 50_000)
    assert query.fetchall() == [(20_000, 50_000)]  # it runs again, on the store as it is then


@pytest.mark.parametrize("library", READERS)
def test_a_library_says_why_a_store_cannot_be_read(store_of: Callable[[StoreBuilder], Any], library: str) -> None:
    store = store_of(key_value())
    store.close()
    with pytest.raises(Exception, match=r"Store 's' is not open"):  # each library has its own class of errors
        READERS[library](store)


def test_an_empty_store_has_columns(store_of: Callable[[StoreBuilder], Any]) -> None:
    store = store_of(key_value())
    assert pa.table(store).schema == pa.schema([("key", pa.string()), ("value", pa.int64())])
    assert pl.DataFrame(store).schema == {"key": pl.String, "value": pl.Int64}
    assert duckdb.sql("from store").columns == ["key", "value"]
    assert rows_for_all(store) == []


def test_thin_conversions(store_of: Callable[[StoreBuilder], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(key_value())
    store.put("a", 1)
    assert store.to_arrow() == pa.table(store)
    assert store.to_pandas().to_dict("list") == {"key": ["a"], "value": [1]}
    assert store.to_polars().to_dict(as_series=False) == {"key": ["a"], "value": [1]}
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ModuleNotFoundError, match=r"^to_polars\(\) needs the package polars.*: pip install polars\.$"):
        store.to_polars()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match=r"^to_pandas\(\) needs the package pandas.*: pip install pandas\.$"):
        store.to_pandas()


def test_a_notebook_shows_the_first_entries_of_a_store(store_of: Callable[[StoreBuilder], Any]) -> None:
    store = store_of(timestamped())
    store.put("<b>\n\x00", ValueAndTimestamp(1, 1_500))
    given = store._repr_mimebundle_()
    assert given[TEXT].splitlines() == [
        "Store s (kind: timestamped key-value store, entries: 1)",
        "key          value  timestamp",
        r"'<b>\n\x00'  1      1970-01-01 00:00:01.500",
    ]
    assert "<td>&#x27;&lt;b&gt;\\n\\x00&#x27;</td>" in given[HTML]
    for number in range(30):
        store.put(f"{number:02}", ValueAndTimestamp(number, 0))
    shown = store._repr_mimebundle_()[HTML]
    assert shown.count("<tr>") == 21
    assert "entries: <code>about 31</code>" in shown
    assert "... more than these 20 rows" in shown


def test_what_is_shown_is_short_whatever_a_value_is(store_of: Callable[[StoreBuilder], Any]) -> None:
    store = store_of(key_value(STRING, STRING))
    store.put("k", "x" * 1_000_000)
    assert len(store._repr_mimebundle_()[HTML]) < 1_000


def test_a_closed_store_shows_that_it_is_closed(store_of: Callable[[StoreBuilder], Any]) -> None:
    store = store_of(key_value())
    store.close()
    assert "closed" in store._repr_mimebundle_()[TEXT]
