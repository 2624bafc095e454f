"""`windowed_by`, `emit_strategy` and `cogroup`: nodes, stores, serdes and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import (
    EmitStrategy,
    Materialized,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    TimeWindows,
    UnlimitedWindows,
)
from penstock.dsl.grouped import KGroupedStream
from penstock.dsl.options import Consumed, Grouped, Repartitioned
from penstock.errors import TopologyError
from penstock.plan.partitioning import WindowedStreamPartitioner
from penstock.plan.subtopology import SinkSpec
from penstock.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import SessionBytesStoreSupplier, WindowBytesStoreSupplier

TUMBLING = TimeWindows.of_size_and_grace(10, 5)
SLIDING = SlidingWindows.of_time_difference_and_grace(10, 5)
SESSION = SessionWindows.of_inactivity_gap_and_grace(10, 5)


def grouped(builder: StreamsBuilder, topic: str = "in") -> KGroupedStream:
    return builder.stream(topic, Consumed.with_(key_serde=Serdes.string(), value_serde=Serdes.long())).group_by_key()


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


def test_unlimited_windows_have_no_final_results() -> None:
    stream = grouped(StreamsBuilder()).windowed_by(UnlimitedWindows.of())
    with pytest.raises(ValueError, match="ON_WINDOW_CLOSE emit strategy cannot be used for UnlimitedWindows"):
        stream.emit_strategy(EmitStrategy.on_window_close())


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


def test_the_nodes_of_a_cogroup_are_named_after_it() -> None:
    builder = StreamsBuilder()
    cogrouped = grouped(builder).cogroup(lambda key, value, total: total + value)
    cogrouped.cogroup(grouped(builder, "other"), lambda key, value, total: total - value)
    cogrouped.aggregate(lambda: 0, Materialized.as_("s"), "sums")
    (part,) = builder.build().build("app").subtopologies
    assert {node.name for node in part.nodes if node.name.startswith("sums")} == {
        "sums-cogroup-agg-0",
        "sums-cogroup-agg-1",
        "sums-cogroup-merge",
    }
    assert list(part.stores) == ["s"]
    assert builder.build().build("app").copartition_groups == (frozenset({"in", "other"}),)


def test_a_cogroup_asks_nothing_of_topics_above_its_repartitions() -> None:
    builder = StreamsBuilder()
    three = builder.stream("in").repartition(Repartitioned.as_("three").with_number_of_partitions(3))
    two = builder.stream("other").repartition(Repartitioned.as_("two").with_number_of_partitions(2))
    rekeyed = three.group_by(lambda key, value: value, Grouped.as_("by-value"))
    rekeyed.cogroup(lambda key, value, total: total).cogroup(
        two.group_by_key(), lambda key, value, total: total
    ).aggregate(lambda: "")
    assert builder.build().build("app").copartition_groups == (
        frozenset({"app-by-value-repartition", "app-two-repartition"}),
    )


def test_a_cogroup_repartitions_a_stream_whose_key_changed_once_for_all_its_tables() -> None:
    builder = StreamsBuilder()
    rekeyed = builder.stream("in").group_by(lambda key, value: value, Grouped.as_("by-value"))
    cogrouped = rekeyed.cogroup(lambda key, value, total: total)
    cogrouped.aggregate(lambda: "", Materialized.as_("s"))
    cogrouped.windowed_by(SESSION).aggregate(lambda: "", lambda key, one, other: one, Materialized.as_("t"))
    built = builder.build().build("app")
    assert list(built.repartition_topics) == ["app-by-value-repartition"]


@pytest.mark.parametrize("windows", [TUMBLING, SLIDING, SESSION], ids=["tumbling", "sliding", "session"])
def test_names_that_are_not_legal_and_functions_that_do_not_fit_are_refused(windows: Any) -> None:
    stream: Any = grouped(StreamsBuilder()).windowed_by(windows)
    with pytest.raises(TopologyError, match="illegal"):
        stream.count(named="a b")
    with pytest.raises(TypeError, match=r"reducer\(aggregate, value\)"):
        stream.reduce(lambda aggregate: aggregate)


@pytest.mark.parametrize(
    ("supplier", "expected"),
    [
        (Stores.in_memory_session_store("s", 20), "KeyValueBytesStoreSupplier or .*, which `Stores` creates"),
        (Stores.lru_map("s", 3), "expected WindowBytesStoreSupplier, which"),
        (Stores.in_memory_window_store("s", 20, 10, False), "expected SessionBytesStoreSupplier, which"),
    ],
)
def test_a_store_of_another_kind_is_refused_by_name(supplier: Any, expected: str) -> None:
    stream, kept = grouped(StreamsBuilder()), Materialized.as_(supplier)
    of_kind = {"session": stream.count, "lru": stream.windowed_by(TUMBLING).count}
    make = of_kind.get(supplier.kind, stream.windowed_by(SESSION).count)
    with pytest.raises(TypeError, match=rf"cannot use store .s. of {type(supplier).__name__}.*{expected}"):
        make(kept)
