"""Read-only views of stores of each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.config.isolation_level import IsolationLevel
from penstock.errors import UnsupportedOperationError
from penstock.state.api import StoreBuilder
from penstock.state.read_only import read_only
from penstock.state.stores import Stores
from penstock.state.versioned_api import VersionedRecord
from penstock.windows import SessionWindow, Windowed
from tests.support.custom_stores import DictStore
from tests.support.expiring import session_builder, window_builder
from tests.support.stores import STRING, build, text_store

SESSION = Windowed("a", SessionWindow(1, 2))
VERSIONS = Stores.versioned_key_value_store_builder(
    Stores.persistent_versioned_key_value_store("v", 100), STRING, STRING
)
Calls = list[Callable[[Any], Any]]


@pytest.mark.parametrize(
    ("builder", "put", "read", "value", "others"),
    [
        (
            text_store(),
            lambda store: store.put("a", "1"),
            lambda store: store.get("a"),
            "1",
            [
                lambda store: store.put_if_absent("b", "2"),
                lambda store: store.put_all([("b", "2")]),
                lambda store: store.delete("a"),
                lambda store: store.clear(),
            ],
        ),
        (window_builder(), lambda store: store.put("a", "1", 0), lambda store: store.fetch("a", 0), "1", []),
        (
            session_builder(),
            lambda store: store.put(SESSION, "1"),
            lambda store: store.fetch_session("a", 1, 2),
            "1",
            [lambda store: store.remove(SESSION)],
        ),
        (
            VERSIONS,
            lambda store: store.put("a", "1", 5),
            lambda store: store.get("a"),
            VersionedRecord("1", 5),
            [lambda store: store.delete("a", 6)],
        ),
    ],
    ids=["key value", "window", "session", "versioned"],
)
def test_reads_go_to_the_store_and_writes_are_refused(
    builder: StoreBuilder, put: Callable[[Any], Any], read: Callable[[Any], Any], value: Any, others: Calls
) -> None:
    store = build(builder)
    view: Any = read_only(store)
    put(store)
    assert read(view) == value
    writes: Calls = [put, *others, lambda store: store.flush(), lambda store: store.close()]
    for write in writes:
        with pytest.raises(UnsupportedOperationError, match=r"^Global store is read only") as caught:
            write(view)
        assert caught.value.__notes__ == [f"store {store.name}: only the processor that reads its topic writes to it"]
    assert read(store) == value


def test_a_view_has_the_name_and_the_life_of_its_store() -> None:
    for in_memory in (True, False):
        store = build(text_store(in_memory))
        view = read_only(store)
        assert (view.name, view.is_open(), view.persistent()) == ("s", True, not in_memory)
        store.close()
        assert not view.is_open()


def test_a_view_is_the_same_at_each_level_and_counts_the_bytes_of_its_store() -> None:
    store = build(text_store())
    view: Any = read_only(store)
    assert view.read_only(IsolationLevel.READ_COMMITTED) is view
    with pytest.raises(TypeError, match="Expected an IsolationLevel"):
        view.read_only(None)
    store.put("a", "1")
    assert view.approximate_num_uncommitted_bytes() == store.approximate_num_uncommitted_bytes() > 0


def test_a_user_defined_store_is_returned_unchanged() -> None:
    store = DictStore("s")
    assert read_only(store) is store
