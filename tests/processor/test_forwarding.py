"""The store of a table and its updates: with a cache they leave at a flush, without one immediately."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Materialized, Serdes, SessionWindows, Stores, StreamsBuilder, ValueAndTimestamp
from penstock.plan.topology import Topology
from penstock.processor.forwarding import KeyValueStoreWrapper
from penstock.testing import MockProcessorContext, TestRecord, TopologyTestDriver
from tests.support.tables import STRINGS, UNCACHED, Row
from tests.task.topologies import STRING, batch_of, output_of, sent, task_of

CACHE = 1_000_000
PLAIN = Stores.in_memory_key_value_store("s")
VERSIONED = Stores.persistent_versioned_key_value_store("s", 10)


def wrapper(store: Any) -> KeyValueStoreWrapper:
    context = MockProcessorContext()
    context.add_state_store(store)
    return KeyValueStoreWrapper(context, "s")


def test_a_store_without_versions_takes_every_value_as_the_latest() -> None:
    store = wrapper(Stores.timestamped_key_value_store_builder(PLAIN, STRING, STRING))
    assert not store.is_versioned
    assert [store.put("a", "x", 100), store.put("a", "y", 5)] == [True, True]
    assert store.get("a") == ValueAndTimestamp("y", 5)
    assert store.put("a", None, 6) is True
    assert store.get("a") is None
    with pytest.raises(TypeError, match=r"^Store 's' keeps no versions: only a versioned store can be read as of"):
        store.get_as_of("a", 5)


def test_a_versioned_store_says_whether_a_value_is_the_latest_or_too_old() -> None:
    store = wrapper(Stores.versioned_key_value_store_builder(VERSIONED, STRING, STRING))
    assert store.is_versioned
    times = (100, 95, 80)
    assert [store.put("a", f"v{time}", time) for time in times] == [True, False, None]
    assert store.get("a") == ValueAndTimestamp("v100", 100)
    assert [store.get_as_of("a", time) for time in (99, 94)] == [ValueAndTimestamp("v95", 95), None]


def table(*filters: str) -> Topology:
    """Return a table and filters of it, which all have a store."""
    builder = StreamsBuilder()
    kept = builder.table("in", materialized=Materialized.as_("source"))
    for value in filters:
        kept = kept.filter(lambda k, v, least=value: v > least, materialized=Materialized.as_(f"above-{value}"))
    kept.to_stream().to("out")
    return builder.build()


ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.sampled_from("xyz"), st.integers(0, 9)), max_size=20)


@given(ROWS, st.sampled_from([0, CACHE]))
@settings(max_examples=30)
def test_a_batch_gives_the_updates_of_its_records(rows: list[Row], cache_bytes: int) -> None:
    by_columns, by_records = (
        output_of(table("x"), rows, execution=execution, cache_bytes=cache_bytes) for execution in ("auto", "record")
    )
    assert by_columns == by_records


@given(ROWS)
@settings(max_examples=30)
def test_a_flush_forwards_each_key_once_in_the_order_of_the_last_updates(rows: list[Row]) -> None:
    last = {key: (value, time) for key, value, time in rows}
    order = sorted(last, key=lambda key: max(place for place, row in enumerate(rows) if row[0] == key))
    output = output_of(table(), rows, cache_bytes=CACHE)
    assert [row for row in output if row[1] is not None] == [(k, *last[k]) for k in order if last[k][0] is not None]


def test_a_delete_that_leaves_the_cache_has_the_timestamp_of_its_record() -> None:
    task = task_of(table(), cache_bytes=CACHE)
    for offset, row in enumerate([("a", "x", 10), ("a", None, 12)]):
        task.add_records("in", 0, batch_of(row, first_offset=offset))
        task.process()
        task.flush()
    assert sent(task) == [("out", "a", "x", 10), ("out", "a", None, 12)]


@pytest.mark.parametrize("execution", ["auto", "record"])
@pytest.mark.parametrize(("cache", "headers"), [(UNCACHED, ()), (STRINGS, (("h", b"1"),))])
def test_updates_of_sessions_have_headers_only_if_they_leave_a_cache(cache: Any, headers: Any, execution: str) -> None:
    config = {**cache, "penstock.execution": execution}
    builder = StreamsBuilder()
    windows = SessionWindows.of_inactivity_gap_and_grace(5, 100)
    counts = builder.stream("in").group_by_key().windowed_by(windows).count()
    counts.to_stream(lambda key, count: str(key)).to("out")
    with TopologyTestDriver(builder.build(config), config) as driver:
        source = driver.create_input_topic("in", STRING, STRING)
        for time in (10, 7):
            source.pipe_input(TestRecord("a", "x", headers=(("h", b"1"),), timestamp=time))
        *_, record = driver.create_output_topic("out", STRING, Serdes.long()).read_records_to_list()
    assert (record.key, record.value, record.timestamp) == ("[a@7/10]", 2, 10)
    assert record.headers == headers
