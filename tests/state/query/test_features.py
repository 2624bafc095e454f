"""Features: values of versioned stores at the times of labels, against a plain model, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Consumed, Materialized, Serde, Serdes, Stores, StreamsBuilder
from penstock.errors import InvalidStateStoreError, UnknownStateStoreError, UnsupportedOperationError
from penstock.state.query import features as module
from penstock.state.query.features import Features
from penstock.testing import TopologyTestDriver
from tests.state.test_versioned_store import Versions
from tests.support.stores import STRING, TaskStore

KEYS = ("a", "a\0", "ab")
TIMES = st.integers(0, 60)


@given(
    st.lists(st.tuples(st.sampled_from(KEYS), TIMES, st.none() | st.sampled_from("xyz")), max_size=30),
    st.lists(st.tuples(st.none() | st.sampled_from((*KEYS, "other")), st.none() | TIMES), max_size=30),
    st.sampled_from([0, 10, 30]),
    st.integers(1, 5),
)
def test_each_label_gets_the_version_of_its_time(
    puts: list[tuple[str, int, str | None]],
    labels: list[tuple[str | None, int | None]],
    history: int,
    rows: int,
) -> None:
    supplier = Stores.persistent_versioned_key_value_store("v", history)
    partitions = [TaskStore(Stores.versioned_key_value_store_builder(supplier, STRING, STRING)) for _ in range(2)]
    models = [Versions(history) for _ in partitions]
    for key, time, value in puts:
        number = KEYS.index(key) % 2
        if value is None and time in models[number].known[key]:
            continue  # a value that ends when it begins: what is known of that depends on what was before it
        partitions[number].store.put(key, value, time)
        models[number].put(key, value, time)
    oldest = max(model.clock - history for model in models)
    expected = []
    for key, time in labels:
        known = key in KEYS and time is not None
        version = models[KEYS.index(str(key)) % 2].get(str(key), time) if known else None
        expired = version is None and None not in (key, time) and int(time or 0) < oldest
        expected.append((version and version.value, version and version.timestamp, expired))
    table = pa.table({"key": pa.array([k for k, _ in labels], pa.string()), "at": pa.array([t for _, t in labels])})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ROWS", rows)
        found = Features(["v"], lambda: {"v": [each.store for each in partitions]}).as_of(table, time="at")
    assert found.select(["key", "at"]).to_pylist() == table.to_pylist()
    times = [each and int(each.timestamp() * 1_000 + 0.5) for each in found.column("v_timestamp").to_pylist()]
    values, expired = found.column("v").to_pylist(), found.column("v_expired").to_pylist()
    assert list(zip(values, times, expired, strict=True)) == expected


def driver_of(key: Serde[Any] = STRING, value: Serde[Any] = STRING, *names: str) -> TopologyTestDriver:
    builder = StreamsBuilder()
    for name in names or ("profiles",):
        store = Stores.persistent_versioned_key_value_store(name, 1_000)
        builder.table(name, Consumed.with_(key, value), Materialized.as_(store))
    builder.table("plain", Consumed.with_(STRING, STRING), Materialized.as_("counts"))
    return TopologyTestDriver(builder.build())


@pytest.fixture
def driver() -> TopologyTestDriver:
    found = driver_of(STRING, STRING, "profiles", "risks")
    for name in ("profiles", "risks"):
        topic = found.create_input_topic(name, STRING, STRING)
        topic.pipe_input("a", f"{name}-1", 100)
        topic.pipe_input("a", f"{name}-2", 200)
    return found


@pytest.mark.parametrize(
    "time",
    [
        pa.array([150]),
        pa.array([150.0]),
        pa.array([150_999], pa.timestamp("us")),
        pa.array([150_999_999], pa.timestamp("ns", "Europe/Berlin")),
        pa.array([datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))) + timedelta(milliseconds=150)]),
    ],
    ids=lambda array: str(array.type),
)
def test_times_are_ms_or_timestamps(driver: TopologyTestDriver, time: pa.Array) -> None:
    labels = pa.table({"key": ["a"], "timestamp": time})
    assert driver.features(["profiles"]).as_of(labels).column("profiles").to_pylist() == ["profiles-1"]


def test_a_version_is_valid_from_its_time_until_the_next(driver: TopologyTestDriver) -> None:
    labels = pa.table({"key": ["a"] * 4, "timestamp": [99, 100, 199, 200]})
    found = driver.features(["profiles"]).as_of(labels)
    assert found.column("profiles").to_pylist() == [None, "profiles-1", "profiles-1", "profiles-2"]
    assert found.column("profiles_timestamp").to_pylist()[1] == datetime(1970, 1, 1, microsecond=100_000, tzinfo=UTC)


@pytest.mark.parametrize("make", [pa.table, pd.DataFrame, pl.DataFrame])
def test_stores_have_a_key_column_of_their_own(driver: TopologyTestDriver, make: Callable[[Any], Any]) -> None:
    labels = make({"customer": ["a", "b"], "merchant": ["b", "a"], "ts": [150, 250]})
    keys = {"profiles": "customer", "risks": "merchant"}
    found = driver.features(["profiles", "risks"]).as_of(labels, time="ts", key=keys)
    assert found.column_names[:4] == ["customer", "merchant", "ts", "profiles"]
    assert found.column("profiles").to_pylist() == ["profiles-1", None]
    assert found.column("risks").to_pylist() == [None, "risks-2"]


def test_a_reader_makes_its_batches_one_by_one(driver: TopologyTestDriver) -> None:
    def labels() -> Any:
        yield pa.record_batch({"key": ["a"], "timestamp": [150]})
        raise OSError("the second batch is read")

    stream = pa.RecordBatchReader.from_batches(pa.schema([("key", pa.string()), ("timestamp", pa.int64())]), labels())
    reader = driver.features(["profiles"]).batches(stream)
    assert reader.read_next_batch().column("profiles").to_pylist() == ["profiles-1"]
    with pytest.raises(OSError, match="the second batch is read"):
        reader.read_next_batch()


@dataclass(frozen=True)
class Place:
    city: str
    street: str


ID = UUID("00000000-0000-0000-0000-00000000002a")


@pytest.mark.parametrize(
    ("serde", "key", "column"),
    [
        (Serdes.long(), 7, pa.array([7], pa.int32())),
        (Serdes.integer(), 7, pa.array(["7"])),
        (STRING, "a", pa.array(["a"]).dictionary_encode()),
        (STRING, "a", pa.array(["a"], pa.large_string())),
        (Serdes.uuid(), ID, pa.array([str(ID)])),
        (Serdes.json(), ["a", 1], pa.array(['["a",1]'])),
        (Serdes.bytes(), b"a", pa.array([b"a"])),
        (Serdes.msgpack(), ["a"], pa.array([b"\x91\xa1a"])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_keys_have_the_form_of_tables(serde: Serde[Any], key: Any, column: pa.Array) -> None:
    driver = driver_of(serde)
    driver.create_input_topic("profiles", serde, STRING).pipe_input(key, "1", 100)
    labels = pa.table({"key": column, "timestamp": [100]})
    assert driver.features(["profiles"]).as_of(labels).column("profiles").to_pylist() == ["1"]


@pytest.mark.parametrize(("serde", "key"), [(Serdes.uuid(), "2a"), (Serdes.json(), "[1")], ids=["UUID", "JSON"])
def test_a_key_of_another_form_is_refused_with_its_column(serde: Serde[Any], key: str) -> None:
    labels = pa.table({"customer": [key], "timestamp": [100]})
    message = f"The column 'customer' of keys has '{key}', which is no key of store profiles: "
    with pytest.raises(ValueError, match=re.escape(message)):
        driver_of(serde).features(["profiles"]).as_of(labels, key="customer")


def test_values_have_the_types_of_tables() -> None:
    driver = driver_of(STRING, Serdes.json(Place))
    topic = driver.create_input_topic("profiles", STRING, Serdes.json(Place))
    topic.pipe_input("a", Place("Ulm", "Hafengasse"), 100)
    labels = pa.table({"key": ["a", "b"], "timestamp": [100, 100]})
    found = driver.features(["profiles"]).as_of(labels).column("profiles").to_pylist()
    assert found == [{"city": "Ulm", "street": "Hafengasse"}, None]


def test_stores_without_versions_are_refused(driver: TopologyTestDriver) -> None:
    with pytest.raises(
        InvalidStateStoreError, match=r"Store counts is a .* store, .*versioned_key_value_store\('counts'"
    ):
        driver.features(["profiles", "counts"])
    with pytest.raises(UnknownStateStoreError, match="nothing"):
        driver.features(["nothing"])
    with pytest.raises(TypeError, match=r"write features\(\['profiles'\]\)"):
        driver.features("profiles")
    with pytest.raises(ValueError, match="an empty list"):
        driver.features([])


def test_keys_with_fields_are_refused() -> None:
    driver = driver_of(Serdes.json(Place))
    with pytest.raises(UnsupportedOperationError, match=r"Store profiles has keys with fields \(Place\)"):
        driver.features(["profiles"]).as_of(pa.table({"key": ["a"], "timestamp": [1]}))


@pytest.mark.parametrize(
    ("labels", "arguments", "error", "match"),
    [
        ({"timestamp": [1]}, {}, ValueError, r"no column 'key': they have 'timestamp'.*key="),
        ({"key": ["a"], "timestamp": [1], "risks": [1]}, {}, ValueError, "already have 'risks'"),
        ({"key": ["a"], "timestamp": ["now"]}, {}, TypeError, "'timestamp' of timestamps has the type string"),
        ({"key": ["a"], "timestamp": [1.5]}, {}, ValueError, "expected whole ms"),
        ({"key": [[1]], "timestamp": [1]}, {}, ValueError, "'key' of keys has the type list.* has keys of string"),
        ({"k": ["a"], "timestamp": [1]}, {"key": {"risks": "k"}}, ValueError, "key has columns for 'risks': expected"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    driver: TopologyTestDriver, labels: Any, arguments: Any, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        driver.features(["profiles", "risks"]).as_of(pa.table(labels), **arguments)


def test_what_is_no_frame_is_refused(driver: TopologyTestDriver) -> None:
    with pytest.raises(TypeError, match="Expected a frame of pandas, polars, pyarrow or DuckDB"):
        driver.features(["profiles"]).as_of([{"key": "a", "timestamp": 1}])
