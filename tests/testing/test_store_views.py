"""Views of timestamped stores without timestamps."""

from __future__ import annotations

import pytest

from penstock import Materialized, Serdes, StreamsBuilder, ValueAndTimestamp
from penstock.testing import TopologyTestDriver
from penstock.windows import TimeWindows

TEXT = Serdes.string()
DEFAULTS = {"default.key.serde": TEXT, "default.value.serde": TEXT}


def test_a_timestamped_store_shows_plain_values_or_both() -> None:
    builder = StreamsBuilder()
    builder.table("in", materialized=Materialized.as_("last"))
    with TopologyTestDriver(builder.build(), DEFAULTS) as driver:
        source = driver.create_input_topic("in", TEXT, TEXT)
        source.pipe_key_value_list([("a", "1"), ("b", "2")], start_timestamp=5, advance_ms=1)
        both, plain = driver.get_timestamped_key_value_store("last"), driver.get_key_value_store("last")
        assert both is not None
        assert plain is not None
        assert both.get("a") == ValueAndTimestamp("1", 5)
        assert plain.get("a") == "1"
        with plain.range("a", None) as entries:
            assert entries.peek_next_key() == "a"
            assert list(entries) == [("a", "1"), ("b", "2")]
        assert plain.put_if_absent("a", "9") == "1"
        plain.put_all([("c", "3")])
        assert both.get("c") == ValueAndTimestamp("3", -1)
        assert plain.delete("b") == "2"
        with plain.reverse_all() as entries:
            assert list(entries) == [("c", "3"), ("a", "1")]
        with plain.prefix_scan("a", TEXT) as entries:
            assert list(entries) == [("a", "1")]
        with pytest.raises(ValueError, match="get_timestamped_key_value_store"):
            driver.get_state_store("last")


def test_a_timestamped_window_store_is_shown_without_timestamps() -> None:
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    windowed.count(Materialized.as_("counts"))
    with TopologyTestDriver(builder.build(), DEFAULTS) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        topic.pipe_input("a", "x", 3)
        topic.pipe_input("a", "y", 12)
        store = driver.get_window_store("counts")
        assert store is not None
        assert store.fetch("a", 0) == 1
        with store.fetch("a", 0, 10) as entries:
            assert list(entries) == [(0, 1), (10, 1)]
        with store.all() as entries:
            assert [(windowed.key, windowed.window.start, count) for windowed, count in entries] == [
                ("a", 0, 1),
                ("a", 10, 1),
            ]
        timestamped = driver.get_timestamped_window_store("counts")
        assert timestamped is not None
        assert timestamped.fetch("a", 10) == ValueAndTimestamp(1, 12)
        store.put("b", 7, 20)
        assert timestamped.fetch("b", 20) == ValueAndTimestamp(7, -1)
