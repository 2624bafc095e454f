"""The window store of a join that keeps headers, and entries that earlier versions wrote without."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.record import Headers
from penstock.serdes import Serdes
from penstock.state.api import RecordContext, StoreBuilder
from penstock.state.build import StoreServices, build_store
from penstock.state.change_logging_store import ChangeLog
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from penstock.state.suppliers import WindowBytesStoreSupplier
from tests.oracle.interpreter.serdes import HeaderStringSerde
from tests.support.stores import CONFIG, entries_as_records, restored

WITH_HEADERS = CONFIG.overridden({"dsl.store.format": "headers"})


def builder(in_memory: bool | None = False, logs_headers: bool = True, keeps: bool | None = None) -> StoreBuilder:
    supplier = WindowBytesStoreSupplier("s", 1000, 10, True, in_memory, keeps_headers=keeps)
    return StoreBuilder(supplier, Serdes.string(), HeaderStringSerde(), logs_headers=logs_headers)


class Side:
    """A store whose writes have headers of their own."""

    def __init__(self, description: StoreBuilder, config: Any = WITH_HEADERS) -> None:
        self.description, self.config = description, config
        self.base, self.metadata, self.log = MemoryBase(), dict[str, int](), ChangeLog({"s": "changelog"})
        self.now: Headers = ()
        self.restart(config)

    def restart(self, config: Any) -> None:
        self.store: Any = build_store(
            self.description,
            config,
            self.base.view("s"),
            RecordCache(0),
            lambda: RecordContext(0, self.now),
            self.metadata,
            StoreServices(change_log=self.log),
        )

    def commit(self) -> None:
        self.base.apply({"s": self.store.changes()}, b"")
        self.store.clear_changes()

    def put(self, value: str, time: int, *headers: tuple[str, bytes | None]) -> None:
        self.now = headers
        self.store.put("k", value, time)
        self.now = (("other", None),)

    def found(self) -> list[tuple[int, Any]]:
        found: list[tuple[int, Any]] = self.store.fetch_duplicates("k", 0, 1000)
        return found


@pytest.mark.parametrize(
    ("description", "config", "keeps"),
    [
        (builder(), WITH_HEADERS, True),
        (builder(), CONFIG, False),
        (builder(in_memory=True), CONFIG, True),
        (builder(keeps=False), WITH_HEADERS, False),
        (builder(keeps=True), CONFIG, True),
        (builder(logs_headers=False), WITH_HEADERS, False),
    ],
)
def test_which_stores_keep_headers(description: StoreBuilder, config: Any, keeps: bool) -> None:
    side = Side(description, config)
    side.put("x", 1, ("h", b"1"))
    written = "x" if not description.logs_headers else "x>h=1"
    assert side.found()[0][1].startswith(written)
    assert side.found()[0][1].endswith("<h=1") is keeps


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.sampled_from("12")), max_size=8), st.integers(0, 8))
def test_duplicates_come_in_order_with_their_headers(puts: list[tuple[int, str | None]], commit: int) -> None:
    side = Side(builder())
    expected: list[tuple[int, str]] = []
    for at, (time, header) in enumerate(puts):
        if at == commit:
            side.commit()
            side.restart(WITH_HEADERS)
        side.put(f"v{at}", time, *(() if header is None else (("h", header.encode()),)))
        expected.append((time, f"v{at}" if header is None else f"v{at}>h={header}<h={header}"))
    expected.sort(key=lambda entry: entry[0])
    assert side.found() == expected
    assert [(key, value) for key, value in side.store.fetch("k", 0, 1000)] == expected
    assert [(each.key.window.start, each.value) for each in side.store.fetch_all(0, 1000)] == expected
    assert list(side.store.backward_fetch("k", 0, 1000)) == list(reversed(list(side.store.fetch("k", 0, 1000))))


def test_entries_without_headers_are_read_and_come_first() -> None:
    side = Side(builder(), CONFIG)
    side.put("old", 5, ("h", b"1"))
    side.commit()
    side.restart(WITH_HEADERS)
    side.put("new", 5, ("h", b"2"))
    side.put("early", 4)
    side.commit()
    side.restart(WITH_HEADERS)
    assert side.found() == [(4, "early"), (5, "old>h=1"), (5, "new>h=2<h=2")]


def test_a_restored_store_has_the_headers_of_the_changelog() -> None:
    side = Side(builder())
    side.put("x", 1, ("h", b"1"))
    side.put("y", 1)
    records = [record for _, record in side.log.take()]
    assert [record.headers for record in records] == [(("h", b"1"),), ()]
    for config, shown in ((WITH_HEADERS, "x>h=1<h=1"), (CONFIG, "x>h=1")):
        store = restored(builder(), config, records)
        assert store.fetch_duplicates("k", 0, 9) == [(1, shown), (1, "y")]
    again = entries_as_records(builder(), WITH_HEADERS, records)
    assert [(r.key, r.value, r.headers) for r in again] == [(r.key, r.value, r.headers) for r in records]


@pytest.mark.parametrize(
    ("first", "then", "found"),
    [
        ({"dsl.store.suppliers.class": "in_memory"}, {}, [(5, "x>h=1"), (6, "y>h=2")]),
        ({"dsl.store.format": "headers"}, {}, [(5, "x>h=1"), (6, "y>h=2")]),
        ({}, {"dsl.store.suppliers.class": "in_memory"}, [(5, "x>h=1"), (6, "y>h=2<h=2")]),
    ],
)
def test_entries_are_read_after_a_change_of_the_format(
    first: dict[str, str], then: dict[str, str], found: list[tuple[int, str]]
) -> None:
    side = Side(builder(in_memory=None), CONFIG.overridden(first))
    side.put("x", 5, ("h", b"1"))
    side.commit()
    side.restart(CONFIG.overridden(then))
    side.put("y", 6, ("h", b"2"))
    side.commit()
    side.restart(CONFIG.overridden(then))
    assert side.found() == found
