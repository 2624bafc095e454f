"""Sinks whose internal topics become tables of a lake: serdes, names, lines and keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Consumed, Produced
from penstock.dsl.stream import KStream
from penstock.dsl.table import KTable
from penstock.host.deployment.layout import own_topics
from penstock.lake import Delta
from penstock.lake.tables import LakeMode
from penstock.serdes import Serdes
from penstock.serdes.windowed import TimeWindowedSerde
from penstock.testing import TopologyTestDriver
from penstock.windows import TimeWindows

KEY, VALUE = Serdes.string(), Serdes.long()
TABLE = Delta("/lake/orders")


def stream() -> tuple[StreamsBuilder, KStream[Any, Any]]:
    builder = StreamsBuilder()
    return builder, builder.stream("in", Consumed.with_(KEY, VALUE))


def table() -> tuple[StreamsBuilder, KTable[Any, Any]]:
    builder = StreamsBuilder()
    return builder, builder.table("in", Consumed.with_(KEY, VALUE))


Source = Callable[[], tuple[StreamsBuilder, Any]]


@pytest.mark.parametrize(("source", "mode"), [(stream, LakeMode.APPEND), (table, LakeMode.UPSERT)])
def test_a_table_of_a_lake_receives_an_internal_topic(source: Source, mode: LakeMode) -> None:
    builder, records = source()
    records.to_lake(TABLE, Produced.as_("orders"), partitions=4)
    built = builder.build().build("app")
    assert built.lake_topics == built.subtopologies[0].sink_topics == ("app-orders-lake",)
    (sink,) = built.lake_sinks.values()
    assert (sink.table, sink.key_serde, sink.value_serde, sink.partitions) == (TABLE, KEY, VALUE, 4)
    assert sink.mode is mode
    assert re.fullmatch(r"orders \(created at .*test_internal_sinks\.py:\d+\)", sink.node)
    assert own_topics(built) == {"app-orders-lake"}


def test_a_windowed_table_has_the_serde_of_its_windows() -> None:
    builder, records = stream()
    records.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(5_000)).count().to_lake(TABLE)
    (sink,) = builder.build().build("app").lake_sinks.values()
    assert isinstance(sink.key_serde, TimeWindowedSerde)
    assert sink.key_serde.window_size_ms == 5_000


def test_the_topic_of_a_table_has_its_updates_in_a_test() -> None:
    builder, records = table()
    records.to_lake(TABLE, Produced.as_("orders"))
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        updates = driver.create_input_topic("in", KEY, VALUE)
        for key, value in (("a", 1), ("a", 2), ("a", None)):
            updates.pipe_input(key, value)
        rows = driver.create_output_topic("app-orders-lake", KEY, VALUE)
        assert rows.read_key_values_to_list() == [("a", 1), ("a", 2), ("a", None)]


@pytest.mark.parametrize("source", [stream, table])
def test_what_is_no_table_of_a_lake_is_refused(source: Source) -> None:
    _, records = source()
    with pytest.raises(TypeError, match=r"to_lake takes an Iceberg or a Delta of penstock\.lake, got 'orders'"):
        records.to_lake("orders")
    with pytest.raises(ValueError, match="1 partition or more, got partitions=0"):
        records.to_lake(TABLE, partitions=0)
