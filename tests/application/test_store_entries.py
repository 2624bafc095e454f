"""The entries of stores of each kind, selected by texts of keys, partitions and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import Serdes, Stores
from penstock.application.store_entries import EntrySelection, StoreEntries, plain
from penstock.config import StreamsConfig
from penstock.errors import (
    InvalidStateStoreError,
    SerializationError,
    UnknownStateStoreError,
    UnsupportedOperationError,
)
from penstock.record import ValueAndTimestamp
from penstock.state.api import RecordContext, StoreBuilder
from penstock.state.build import build_store
from penstock.state.memory import MemoryBase
from penstock.state.query.execution import run_query
from penstock.state.query.queryable import StoreQueryParameters, StoresOfPartitions, check_known
from penstock.state.query.request import StateQueryRequest, StateQueryResult
from penstock.state.record_cache import RecordCache
from penstock.windows import SessionWindow, Windowed

CONFIG = StreamsConfig({"application.id": "app"}, environment={})
CONTEXT = RecordContext(7, (), "topic", 0, 3)
TEXT, LONG = Serdes.string(), Serdes.long()


class Partitions:
    """The stores of one builder, a partition each, as an application answers from them."""

    def __init__(self, builder: StoreBuilder, partitions: int = 2) -> None:
        self.stores: list[Any] = [
            build_store(builder, CONFIG, MemoryBase().view(builder.name), RecordCache(0), lambda: CONTEXT, {})
            for _ in range(partitions)
        ]
        self.builders: Mapping[str, StoreBuilder] = {builder.name: builder}

    def store(self, parameters: StoreQueryParameters) -> Any:
        check_known(parameters.store_name, self.builders)
        chosen = [each for number, each in enumerate(self.stores) if parameters.partition in (None, number)]
        provider = StoresOfPartitions(lambda _: chosen, parameters.partition, InvalidStateStoreError)
        return parameters.queryable_store_type.create(provider, parameters.store_name)

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        chosen = range(len(self.stores)) if request.partitions is None else request.partitions
        return StateQueryResult({number: run_query(self.stores[number], request.query) for number in chosen})

    def entries(self, name: str = "s", **chosen: Any) -> list[dict[str, Any]]:
        return list(StoreEntries(self, self.builders, CONFIG).of(name, EntrySelection(**chosen)))


@pytest.fixture
def counts() -> Partitions:
    supplier = Stores.in_memory_key_value_store("s")
    partitions = Partitions(Stores.key_value_store_builder(supplier, LONG, TEXT))
    for key in range(5):
        partitions.stores[key % 2].put(key, f"v{key}")
    return partitions


def test_entries_come_one_partition_after_the_other(counts: Partitions) -> None:
    assert [(entry["partition"], entry["key"], entry["value"]) for entry in counts.entries()] == [
        (0, 0, "v0"),
        (0, 2, "v2"),
        (0, 4, "v4"),
        (1, 1, "v1"),
        (1, 3, "v3"),
    ]
    assert [entry["key"] for entry in counts.entries(partition=1)] == [1, 3]


@pytest.mark.parametrize(
    ("bounds", "keys"),
    [({"from_key": "2"}, [2, 4, 3]), ({"to_key": "1"}, [0, 1]), ({"from_key": "1", "to_key": "2"}, [2, 1])],
)
def test_the_bounds_of_a_range_are_within_it(counts: Partitions, bounds: dict[str, str], keys: list[int]) -> None:
    assert [entry["key"] for entry in counts.entries(**bounds)] == keys


def test_a_key_is_found_in_its_partition_and_shown_if_it_has_no_value(counts: Partitions) -> None:
    assert counts.entries(key="3") == [{"partition": 1, "key": 3, "value": "v3"}]
    assert counts.entries(key="9") == [{"partition": None, "key": 9, "value": None}]


def test_a_key_and_a_store_that_there_cannot_be_are_refused(counts: Partitions) -> None:
    with pytest.raises(SerializationError, match="Cannot read 'x' as a long of store s"):
        counts.entries(key="x")
    with pytest.raises(UnknownStateStoreError, match="other"):
        counts.entries("other")


def test_a_timestamped_store_shows_the_times_of_its_values() -> None:
    supplier = Stores.in_memory_key_value_store("s")
    partitions = Partitions(Stores.timestamped_key_value_store_builder(supplier, TEXT, TEXT), 1)
    partitions.stores[0].put("a", ValueAndTimestamp("v", 5))
    assert partitions.entries() == [{"partition": 0, "key": "a", "value": "v", "timestamp": 5}]


def test_windows_are_selected_by_key_and_time() -> None:
    supplier = Stores.in_memory_window_store("s", 1_000, 10, False)
    partitions = Partitions(Stores.window_store_builder(supplier, TEXT, TEXT), 1)
    for key, start in (("a", 0), ("a", 50), ("b", 50)):
        partitions.stores[0].put(key, f"{key}{start}", start)
    window = {"partition": 0, "window_start": 50, "window_end": 60}
    assert partitions.entries(from_time=10) == [{**window, "key": key, "value": f"{key}50"} for key in "ab"]
    assert partitions.entries(from_key="b") == [{**window, "key": "b", "value": "b50"}]
    assert [entry["window_start"] for entry in partitions.entries(key="a")] == [0, 50]
    assert partitions.entries(key="c") == []


def test_sessions_are_selected_by_key() -> None:
    supplier = Stores.in_memory_session_store("s", 1_000)
    partitions = Partitions(Stores.session_store_builder(supplier, TEXT, TEXT), 1)
    for key in "ab":
        partitions.stores[0].put(Windowed(key, SessionWindow(5, 9)), key.upper())
    session = {"partition": 0, "window_start": 5, "window_end": 9}
    assert partitions.entries() == [{**session, "key": key, "value": key.upper()} for key in "ab"]
    assert partitions.entries(key="b") == [{**session, "key": "b", "value": "B"}]


def test_versions_of_a_key_have_the_times_in_which_they_were_valid() -> None:
    supplier = Stores.persistent_versioned_key_value_store("s", 1_000)
    partitions = Partitions(Stores.versioned_key_value_store_builder(supplier, TEXT, TEXT), 1)
    for time in (10, 20):
        partitions.stores[0].put("a", f"v{time}", time)
    assert sorted(partitions.entries(key="a"), key=lambda entry: entry["timestamp"]) == [
        {"partition": 0, "key": "a", "value": "v10", "timestamp": 10, "valid_to": 20},
        {"partition": 0, "key": "a", "value": "v20", "timestamp": 20},
    ]
    assert [entry["value"] for entry in partitions.entries(key="a", from_time=20)] == ["v20"]
    with pytest.raises(UnsupportedOperationError, match="Store s keeps versions: name a key to see its versions"):
        partitions.entries()


@dataclass
class Word:
    text: str


@pytest.mark.parametrize(
    ("value", "shown"), [(b"\x0f", "0f"), (Word("a"), {"text": "a"}), (Word, repr(Word)), (1j, "1j")]
)
def test_values_that_json_lacks_are_shown_in_its_terms(value: Any, shown: Any) -> None:
    assert plain(value) == shown
