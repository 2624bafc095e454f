"""The results of windowed aggregations as other nodes read them, by their windowed keys."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Stores, StreamsBuilder, TimeWindows, ValueAndTimestamp, Windowed
from penstock.processor.windowed_values import SessionStoreValueGetterSupplier, WindowStoreValueGetterSupplier
from penstock.testing import MockProcessorContext
from penstock.windows import SessionWindow, TimeWindow
from tests.support.tables import Row, updates
from tests.task.topologies import STRING

WINDOWS = Stores.in_memory_window_store("s", 100, 10, False)
SESSIONS = Stores.in_memory_session_store("s", 100)


def getter_of(supplier: Any, builder: Any) -> tuple[Any, Any]:
    """Return a getter and its store."""
    context = MockProcessorContext()
    store = context.add_state_store(builder)
    getter = supplier("s").get()
    getter.init(context)
    return getter, store


def test_a_window_is_found_by_its_start() -> None:
    builder = Stores.timestamped_window_store_builder(WINDOWS, STRING, STRING)
    getter, store = getter_of(WindowStoreValueGetterSupplier, builder)
    store.put("a", ValueAndTimestamp("x", 13), 10)
    assert getter.get(Windowed("a", TimeWindow(10, 20))) == ValueAndTimestamp("x", 13)
    assert getter.get(Windowed("a", TimeWindow(11, 21))) is None
    assert getter.get(Windowed("b", TimeWindow(10, 20))) is None


def test_a_session_is_found_by_both_ends_and_has_the_timestamp_of_its_end() -> None:
    getter, store = getter_of(SessionStoreValueGetterSupplier, Stores.session_store_builder(SESSIONS, STRING, STRING))
    store.put(Windowed("a", SessionWindow(10, 15)), "x")
    assert getter.get(Windowed("a", SessionWindow(10, 15))) == ValueAndTimestamp("x", 15)
    assert getter.get(Windowed("a", SessionWindow(10, 16))) is None
    assert getter.get(Windowed("a", SessionWindow(9, 15))) is None


@pytest.mark.parametrize("supplier", [WindowStoreValueGetterSupplier, SessionStoreValueGetterSupplier])
def test_windows_have_no_versions(supplier: Any) -> None:
    getter = supplier("s").get()
    assert not getter.is_versioned
    assert supplier("s").store_names() == ("s",)
    with pytest.raises(TypeError, match=r"^Store 's' keeps windows, not versions: read it with get\(key\)\.$"):
        getter.get_as_of("a", 5)


def test_a_join_of_windowed_tables_reads_the_window_of_the_update() -> None:
    builder = StreamsBuilder()
    first, last = (
        builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10)).reduce(reducer)
        for reducer in (lambda one, other: one, lambda one, other: other)
    )
    joined = first.join(last, lambda one, other: one + other)
    joined.to_stream(lambda key, value: str(key)).to("out")
    rows: list[Row] = [("a", "x", 3), ("a", "y", 4), ("a", "z", 12)]
    results = {key: value for key, value, _ in updates(builder, rows)}
    assert results == {"[a@0/10]": "xy", "[a@10/20]": "zz"}
