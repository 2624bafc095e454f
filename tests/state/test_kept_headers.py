"""Stores with headers and without: their layouts, and their entries in the other format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    BufferConfig,
    Consumed,
    JoinWindows,
    KStream,
    Materialized,
    Serdes,
    SessionWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    Topology,
)
from penstock.plan.subtopology import TaskId
from penstock.record import RecordBatch
from penstock.state.kept_headers import HeadersView, has_headers, layout_with_headers, store_layout
from penstock.state.memory import MemoryBase
from penstock.task.stream_task import StreamTask

TEXT = Serdes.string()
HEADERS = (("h", b"1"),)


def config(store_format: str, **settings: Any) -> StreamsConfig:
    return StreamsConfig(
        {
            "application.id": "app",
            "default.key.serde": TEXT,
            "default.value.serde": TEXT,
            "dsl.store.format": store_format,
            "statestore.cache.max.bytes": 0,
            **settings,
        }
    )


def table(stream: KStream[str, str]) -> None:
    stream.group_by_key().reduce(lambda before, value: before + value, Materialized.as_("kept"))


def windows(stream: KStream[str, str]) -> None:
    windowed = stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    windowed.count(Materialized.as_("kept"))


def sessions(stream: KStream[str, str]) -> None:
    sessions = stream.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(10))
    sessions.reduce(lambda before, value: before + value, Materialized.as_("kept"))


def final_sessions(stream: KStream[str, str]) -> None:
    sessions = stream.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(10))
    counts = sessions.count(Materialized.as_("kept"))
    counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()).with_name("buffer"))


def versions(stream: KStream[str, str]) -> None:
    stream.to_table(materialized=Materialized.as_(Stores.persistent_versioned_key_value_store("kept", 1_000)))


def in_memory(stream: KStream[str, str]) -> None:
    stream.to_table(materialized=Materialized.as_(Stores.in_memory_key_value_store("kept")))


def plain(stream: KStream[str, str]) -> None:
    stream.to_table(materialized=Materialized.as_(Stores.persistent_key_value_store("kept")))


def supplied(stream: KStream[str, str]) -> None:
    stream.to_table(materialized=Materialized.as_(Stores.persistent_timestamped_key_value_store_with_headers("kept")))


def join(stream: KStream[str, str]) -> None:
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    joined = StreamJoined.with_(TEXT, TEXT, TEXT).with_store_name("kept")
    stream.join(stream.map_values(str.upper), lambda one, other: one + other, windows, stream_joined=joined)


def topology(shape: Callable[[KStream[str, str]], None]) -> Topology:
    builder = StreamsBuilder()
    shape(builder.stream("in", Consumed.with_(TEXT, TEXT)))
    return builder.build()


def stores(shape: Callable[[KStream[str, str]], None]) -> dict[str, Any]:
    (part,) = topology(shape).build("app").subtopologies
    return dict(part.stores)


@pytest.mark.parametrize("shape", [table, windows, sessions])
def test_the_layout_of_a_store_on_disk_names_its_headers(shape: Callable[[KStream[str, str]], None]) -> None:
    (store,) = stores(shape).values()
    plain, with_headers = store_layout(store, config("default")), store_layout(store, config("headers"))
    assert plain == store.layout
    assert with_headers == f"{store.layout}, with headers"
    assert (has_headers(plain), has_headers(with_headers)) == (False, True)
    assert layout_with_headers(plain, True) == layout_with_headers(with_headers, True) == with_headers
    assert layout_with_headers(plain, False) == layout_with_headers(with_headers, False) == plain
    assert store_layout(store, config("headers", **{"dsl.store.suppliers.class": "in_memory"})) == plain


@pytest.mark.parametrize("shape", [versions, in_memory, plain, join])
def test_the_layout_of_other_stores_is_that_of_each_format(shape: Callable[[KStream[str, str]], None]) -> None:
    for store in stores(shape).values():
        assert store_layout(store, config("default")) == store_layout(store, config("headers")) == store.layout


def test_a_supplier_with_headers_decides_alone() -> None:
    (store,) = stores(supplied).values()
    layouts = {store_layout(store, config(store_format)) for store_format in ("default", "headers")}
    assert layouts == {f"{store.layout}, with headers"}


def entries(shape: Callable[[KStream[str, str]], None], store_format: str) -> MemoryBase:
    """Return the base of a task that has processed some records."""
    (part,) = topology(shape).build("app").subtopologies
    base = MemoryBase()
    task = StreamTask(part, TaskId(0, 0), config(store_format), base, {"in": 1})
    rows = [(key, b"v%d" % at, at, at, HEADERS) for at, key in enumerate([b"a", b"b", b"a"] * 6)]
    task.add_records("in", 0, RecordBatch.of(rows))
    task.initialize()
    task.process()
    task.committed(task.prepare_commit().changes, b"")
    task.close()
    return base


@pytest.mark.parametrize("shape", [table, windows, sessions, final_sessions, supplied])
def test_entries_in_the_other_format_are_those_of_a_store_that_has_it(
    shape: Callable[[KStream[str, str]], None],
) -> None:
    plain, with_headers = (entries(shape, store_format).view("kept") for store_format in ("default", "headers"))
    if shape is supplied:
        plain = HeadersView(with_headers, False)
    for there, back, given in ((plain, with_headers, True), (with_headers, plain, False)):
        view, wanted = HeadersView(there, given), list(back.range(None, None, False))
        assert list(view.range(None, None, False)) == wanted != []
        assert list(view.range(None, None, True)) == wanted[::-1]
        keys = [key for key, _ in wanted]
        assert [view.get(key) for key in keys] == [value for _, value in wanted]
        assert view.multi_get([*keys, b"absent"]) == [*(value for _, value in wanted), None]
        assert view.get(b"absent") is None
        assert view.approximate_num_entries() == len(wanted)
