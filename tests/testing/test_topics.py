"""Topics of TopologyTestDriver: records piped in, and results in each form."""

from __future__ import annotations

import pytest

from penstock import Serdes, Topology
from penstock.testing import TestInputTopic, TestOutputTopic, TestRecord, TopologyTestDriver

STRING = Serdes.string()
DEFAULTS = {"default.key.serde": STRING, "default.value.serde": STRING}


def copying() -> Topology:
    return Topology().add_source("S", "in").add_sink("K", "out", "S")


def topics(driver: TopologyTestDriver) -> tuple[TestInputTopic[str, str], TestOutputTopic[str, str]]:
    return driver.create_input_topic("in", STRING, STRING, 100), driver.create_output_topic("out", STRING, STRING)


def test_a_record_comes_out_with_key_value_time_and_headers() -> None:
    with TopologyTestDriver(copying(), DEFAULTS) as driver:
        source, sink = topics(driver)
        source.pipe_input("k", "v", timestamp=7, headers=(("h", b"1"), ("h", None)))
        assert sink.read_record() == TestRecord("k", "v", 7, (("h", b"1"), ("h", None)))


def test_pipe_input_takes_a_value_a_key_and_value_or_a_record() -> None:
    with TopologyTestDriver(copying(), DEFAULTS) as driver:
        source, sink = topics(driver)
        source.pipe_input("alone")
        source.pipe_input("k", "v")
        source.pipe_input("k", None)
        source.pipe_input(value="named")
        source.pipe_input(TestRecord("r", "w", 5))
        assert sink.read_key_values_to_list() == [(None, "alone"), ("k", "v"), ("k", None), (None, "named"), ("r", "w")]


def test_records_without_a_time_get_that_of_the_topic_which_advances() -> None:
    with TopologyTestDriver(copying(), DEFAULTS) as driver:
        source = driver.create_input_topic("in", STRING, STRING, start_timestamp=100, auto_advance_ms=5)
        sink = driver.create_output_topic("out", STRING, STRING)
        source.pipe_input("a", "1")
        source.pipe_input("a", "2", timestamp=3)  # has its own time: the topic's does not advance
        source.pipe_input("a", "3")
        source.advance_time(1000)
        source.pipe_input("a", "4")
        assert [record.timestamp for record in sink.read_records_to_list()] == [100, 3, 105, 1110]


def test_lists_are_piped_in_with_times_from_the_start_given() -> None:
    with TopologyTestDriver(copying(), DEFAULTS) as driver:
        source, sink = topics(driver)
        source.pipe_value_list(["1", "2"], start_timestamp=10, advance_ms=2)
        source.pipe_key_value_list([("a", "3"), ("b", "4")], start_timestamp=20, advance_ms=3)
        source.pipe_key_value_list([("a", "5")])
        source.pipe_record_list([TestRecord("c", "6", 30)])
        records = [(record.key, record.value, record.timestamp) for record in sink.read_records_to_list()]
        assert records == [
            (None, "1", 10),
            (None, "2", 12),
            ("a", "3", 20),
            ("b", "4", 23),
            ("a", "5", 100),
            ("c", "6", 30),
        ]


def test_the_time_of_an_input_topic_starts_at_the_clock_of_the_driver() -> None:
    with TopologyTestDriver(copying(), DEFAULTS, initial_wall_clock_ms=42) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input("k", "v")
        assert driver.create_output_topic("out", STRING, STRING).read_record().timestamp == 42


def test_output_is_read_in_each_form_and_only_once() -> None:
    with TopologyTestDriver(copying(), DEFAULTS) as driver:
        source, sink = topics(driver)
        assert sink.is_empty()
        source.pipe_key_value_list([("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"), ("d", "5")])
        assert sink.get_queue_size() == 5
        assert sink.read_value() == "1"
        assert sink.read_key_value() == ("b", "2")
        assert sink.read_key_values_to_map() == {"a": "3", "c": "4", "d": "5"}
        assert sink.is_empty()
        assert sink.read_values_to_list() == []


def test_reading_an_empty_topic_is_an_error() -> None:
    with TopologyTestDriver(copying(), DEFAULTS) as driver:
        source, sink = topics(driver)
        with pytest.raises(LookupError, match="Uninitialized topic: out") as caught:
            sink.read_value()
        assert caught.value.__notes__ == ["Nothing was written to it; written were: no topics."]
        source.pipe_input("k", "v")
        sink.read_value()
        with pytest.raises(LookupError, match="Empty topic: out"):
            sink.read_record()


def test_a_map_has_no_null_key() -> None:
    with TopologyTestDriver(copying(), DEFAULTS) as driver:
        source, sink = topics(driver)
        source.pipe_input("no key")
        with pytest.raises(RuntimeError, match="Null keys not allowed"):
            sink.read_key_values_to_map()


def test_an_input_topic_must_be_read_by_the_topology() -> None:
    with (
        TopologyTestDriver(copying(), DEFAULTS) as driver,
        pytest.raises(ValueError, match="Unknown topic: nowhere") as refused,
    ):
        driver.create_input_topic("nowhere", STRING, STRING).pipe_input("k", "v")
    assert refused.value.__notes__ == ["The topology reads: in."]
