"""The processor that fills the store of a global table."""

from __future__ import annotations

from penstock import Consumed, Materialized, Serdes, StreamsBuilder, ValueAndTimestamp
from penstock.testing import TopologyTestDriver
from tests.support.tables import STRINGS

TEXT = Serdes.string()


def test_a_global_table_holds_values_with_timestamps_and_drops_records_without_a_key() -> None:
    builder = StreamsBuilder()
    table = builder.global_table("global", Consumed.with_(TEXT, TEXT), Materialized.as_("kept"))
    assert table.queryable_store_name == "kept"
    with TopologyTestDriver(builder.build(), STRINGS) as driver:
        topic = driver.create_input_topic("global", TEXT, TEXT)
        topic.pipe_input("a", "1", 5)
        topic.pipe_input("b", "2", 6)
        topic.pipe_input("b", None, 7)
        topic.pipe_input(None, "3", 8)
        store = driver.get_timestamped_key_value_store("kept")
        assert store is not None
        with store.all() as entries:
            assert list(entries) == [("a", ValueAndTimestamp("1", 5))]
        assert driver.dropped_records() == 1
