"""The stores of windowed aggregations, and the serdes of their tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock import EmitStrategy, Materialized, Serdes, Stores, StreamsBuilder
from penstock.plan.partitioning import WindowedStreamPartitioner
from penstock.plan.subtopology import SinkSpec
from penstock.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import SessionBytesStoreSupplier, WindowBytesStoreSupplier
from penstock.testing import TopologyTestDriver
from tests.support.tables import UNCACHED
from tests.support.windows import SESSION, SLIDING, TUMBLING, grouped


def only_store(builder: StreamsBuilder) -> StoreBuilder:
    (part,) = builder.build().build("app").subtopologies
    (store,) = part.stores.values()
    return store


@pytest.mark.parametrize(
    ("windows", "supplier"),
    [
        (TUMBLING, WindowBytesStoreSupplier("s", 15, 10, False, None, keeps_headers=None)),
        (SLIDING, WindowBytesStoreSupplier("s", 25, 10, False, None, keeps_headers=None)),
        (SESSION, SessionBytesStoreSupplier("s", 15, None, keeps_headers=None)),
    ],
    ids=["tumbling", "sliding", "session"],
)
def test_a_store_keeps_results_as_long_as_records_may_change_them(windows: Any, supplier: Any) -> None:
    builder = StreamsBuilder()
    grouped(builder).windowed_by(windows).count(Materialized.as_("s"))
    store = only_store(builder)
    assert (store.supplier, store.caching) == (supplier, True)


@pytest.mark.parametrize(
    ("windows", "caching"),
    [(TUMBLING, True), (SLIDING, False), (SESSION, False)],
    ids=["tumbling", "sliding", "session"],
)
def test_final_results_are_kept_in_the_order_of_time(windows: Any, caching: bool) -> None:
    builder = StreamsBuilder()
    stream = grouped(builder).windowed_by(windows).emit_strategy(EmitStrategy.on_window_close())
    stream.reduce(lambda aggregate, value: value)
    store = only_store(builder)
    assert store.caching is caching
    assert isinstance(store.supplier, WindowBytesStoreSupplier | SessionBytesStoreSupplier)
    assert store.supplier.time_ordered


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        (
            TUMBLING,
            (
                "The retention period of the window store s must be no smaller than its window size plus the grace "
                "period. Got size=[10], grace=[5], retention=[14]"
            ),
        ),
        (
            SLIDING,
            (
                "The retention period of the window store s must be no smaller than 2 * time difference plus the grace "
                "period. Got time difference=[10], grace=[5], retention=[14]"
            ),
        ),
        (
            SESSION,
            (
                "The retention period of the session store s must be no smaller than the session inactivity gap plus "
                "the grace period. Got gap=[10], grace=[5], retention=[14]"
            ),
        ),
    ],
    ids=["tumbling", "sliding", "session"],
)
def test_a_retention_shorter_than_windows_are_open_is_refused(windows: Any, message: str) -> None:
    stream = grouped(StreamsBuilder()).windowed_by(windows)
    with pytest.raises(ValueError) as raised:  # noqa: PT011  # the whole message is compared
        stream.count(Materialized.as_("s").with_retention(14))
    assert str(raised.value) == message


def test_a_store_of_the_users_own_supplier_is_taken_as_it_is() -> None:
    builder = StreamsBuilder()
    supplier = Stores.in_memory_window_store("own", 100, 10, False)
    grouped(builder).windowed_by(TUMBLING).count(Materialized.as_(supplier))
    assert only_store(builder).supplier == supplier


@pytest.mark.parametrize(
    ("windows", "supplier"),
    [
        (TUMBLING, Stores.persistent_window_store("own", 100, 10, False)),
        (SESSION, Stores.persistent_session_store("own", 100)),
    ],
    ids=["window", "session"],
)
def test_results_in_a_plain_store_have_timestamps_and_final_ones_are_read(windows: Any, supplier: Any) -> None:
    builder = StreamsBuilder()
    final = EmitStrategy.on_window_close()
    stream = builder.stream("in").group_by_key().windowed_by(windows)
    stream.count(Materialized.as_(supplier)).to_stream(lambda window, count: "now").to("out")
    own = replace(supplier, name="final")
    stream.emit_strategy(final).count(Materialized.as_(own)).to_stream(lambda window, count: "final").to("out")
    rows = [("x", 3), ("x", 7), ("x", 5), ("x", 60), ("x", 61)]
    text = Serdes.string()
    with TopologyTestDriver(builder.build(UNCACHED), {"application.id": "app", **UNCACHED}) as driver:
        topic = driver.create_input_topic("in", text, text)
        for value, timestamp in rows:
            topic.pipe_input("a", value, timestamp)
            driver.advance_wall_clock_time(2_000)  # final results come once a second
        output = driver.create_output_topic("out", text, Serdes.long()).read_records_to_list()
    found = [(each.key, each.value, each.timestamp) for each in output if each.value is not None]
    assert [row for row in found if row[0] == "now"][:3] == [("now", 1, 3), ("now", 2, 7), ("now", 3, 7)]
    assert [row for row in found if row[0] == "final"] == [("final", 3, 7)]


def test_windowed_tables_are_written_with_windowed_serdes_to_the_partition_of_the_key() -> None:
    builder = StreamsBuilder()
    stream = grouped(builder)
    stream.windowed_by(TUMBLING).count().to_stream().to("times")
    stream.windowed_by(SESSION).count().to_stream().to("sessions")
    sinks = {
        node.topic: node
        for part in builder.build().build("app").subtopologies
        for node in part.nodes
        if isinstance(node, SinkSpec)
    }
    times, sessions = sinks["times"], sinks["sessions"]
    assert isinstance(times.key_serde, TimeWindowedSerde)
    assert times.key_serde.window_size_ms == 10
    assert isinstance(sessions.key_serde, SessionWindowedSerde)
    assert isinstance(times.partitioner, WindowedStreamPartitioner)
    assert isinstance(sessions.partitioner, WindowedStreamPartitioner)
