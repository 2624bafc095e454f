"""TopologyTestDriver over topologies made by hand: errors, times, the wall clock, stores, idle tasks."""

from __future__ import annotations

import re
from collections.abc import Callable
from traceback import format_exception
from typing import Any

import pytest

from penstock import (
    Consumed,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    Topology,
)
from penstock.errors import InvalidStateStoreError, StreamsError
from penstock.host.inline import inline_host
from penstock.record import ConsumerRecord
from penstock.testing import MockClock, TestInputTopic, TestOutputTopic, TestRecord, TopologyTestDriver

STRING = Serdes.string()
DEFAULTS = {"default.key.serde": STRING, "default.value.serde": STRING}


class Pass(Processor):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


class Remember(Processor):
    """Stores each value under its key."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.store = context.get_state_store("last")

    def process(self, record: Record[Any, Any]) -> None:
        self.store.put(record.key, record.value)
        self.context.forward(record)


class ShowPlace(Processor):
    def process(self, record: Record[Any, Any]) -> None:
        metadata = self.context.record_metadata
        assert metadata is not None
        self.context.forward(record.with_value(f"{metadata.topic} {metadata.offset}"))


class Tick(Processor):
    """Forwards the time of each punctuation of the wall clock, every 10 ms."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self._tick)

    def _tick(self, now: int) -> None:
        self.context.forward(Record("tick", str(now), now))

    def process(self, record: Record[Any, Any]) -> None:
        raise ValueError("no record can be processed here")


def copy(first: str = "in", last: str = "out") -> Topology:
    topology = Topology()
    topology.add_source("S", first).add_processor("P", Pass, "S").add_sink("K", last, "P")
    return topology


def topics(driver: TopologyTestDriver) -> tuple[TestInputTopic[str, str], TestOutputTopic[str, str]]:
    return driver.create_input_topic("in", STRING, STRING, 100), driver.create_output_topic("out", STRING, STRING)


def remember() -> Topology:
    store = Stores.key_value_store_builder(Stores.in_memory_key_value_store("last"), STRING, STRING)
    return Topology().add_source("S", "in").add_processor("P", Remember, "S").add_state_store(store, "P")


def test_times_of_a_test_are_whole_numbers_of_ms() -> None:
    seconds: Any = 1690451888.453
    message = r"whole number of ms since the epoch, got 1690451888.453: write int\(1000 \* seconds\)"
    with TopologyTestDriver(copy(), DEFAULTS) as driver:
        source, sink = topics(driver)
        calls: list[Callable[[], object]] = [
            lambda: source.pipe_input("k", "v", seconds),
            lambda: source.pipe_input(TestRecord("k", "v", seconds)),
            lambda: source.pipe_key_value_list([("k", "v")], start_timestamp=seconds),
            lambda: source.pipe_value_list(["v"], start_timestamp=seconds),
            lambda: driver.pipe_bytes("in", b"k", b"v", seconds),
            lambda: driver.create_input_topic("in", STRING, STRING, start_timestamp=seconds),
            lambda: TopologyTestDriver(copy(), DEFAULTS, initial_wall_clock_ms=seconds),
        ]
        for call in calls:
            with pytest.raises(TypeError, match=message):
                call()
        assert sink.is_empty()


class Stamp(Processor):
    """Forwards records with the time that is their value, in seconds."""

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record.with_timestamp(float(record.value)))  # type: ignore[arg-type]  # the mistake


def test_a_processor_that_forwards_float_seconds_fails_at_its_own_line() -> None:
    topology = Topology()
    topology.add_source("S", "in").add_processor("P", Stamp, "S").add_sink("K", "out", "P")
    with TopologyTestDriver(topology, DEFAULTS) as driver:
        with pytest.raises(StreamsError) as failed:
            driver.create_input_topic("in", STRING, STRING).pipe_input("k", "1690451888.453")
        assert "got 1690451888.453" in str(failed.value.__cause__)
        assert "record.with_timestamp(float(record.value))" in "".join(format_exception(failed.value.__cause__))


def test_times_cannot_be_negative() -> None:
    with pytest.raises(ValueError, match="Invalid timestamp: -1"):
        TestRecord("k", "v", -1)
    with TopologyTestDriver(copy(), DEFAULTS) as driver:
        source, _ = topics(driver)
        with pytest.raises(ValueError, match="0 or more"):
            source.advance_time(-1)
        with pytest.raises(ValueError, match="0 or more"):
            driver.create_input_topic("in", STRING, STRING, auto_advance_ms=-1)
        with pytest.raises(ValueError, match="0 ms or more"):
            driver.advance_wall_clock_time(-1)


def test_records_to_a_topic_that_is_read_again_are_processed_too() -> None:
    topology = copy("in", "middle")
    topology.add_source("S2", "middle").add_processor("P2", Pass, "S2").add_sink("K2", "out", "P2")
    with TopologyTestDriver(topology, DEFAULTS) as driver:
        source, sink = topics(driver)
        source.pipe_input("k", "v")
        assert sink.read_key_value() == ("k", "v")
        assert driver.produced_topic_names() == {"middle", "out"}


def test_a_topology_that_feeds_itself_without_an_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline_host, "MAXIMUM_FOLLOWING", 50)
    endless = pytest.raises(StreamsError, match="One record caused more than 50 further records, the last in topic in")
    with TopologyTestDriver(copy("in", "in"), DEFAULTS) as driver, endless:
        driver.create_input_topic("in", STRING, STRING).pipe_input("k", "v")


def test_topics_of_a_pattern_share_one_count_of_offsets() -> None:
    topology = Topology()
    topology.add_source("S", pattern="in-.*").add_processor("P", ShowPlace, "S").add_sink("K", "out", "P")
    with TopologyTestDriver(topology, DEFAULTS) as driver:
        for topic in ("in-a", "in-b", "in-a"):
            driver.create_input_topic(topic, STRING, STRING).pipe_input("k", "v")
        values = driver.create_output_topic("out", STRING, STRING).read_values_to_list()
        assert values == ["in-a 0", "in-b 1", "in-a 2"]


def test_a_pattern_matches_no_topic_of_the_application_itself() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("audit-.*")).group_by(lambda key, value: value).count().to_stream().to("out")
    config = {"application.id": "audit-app", **DEFAULTS}
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.create_input_topic("audit-db", STRING, STRING).pipe_input("k", "v")
        assert driver.create_output_topic("out", STRING, Serdes.long()).read_key_values_to_map() == {"v": 1}


def test_stores_are_closed_with_the_driver_which_may_be_closed_twice() -> None:
    with TopologyTestDriver(remember(), DEFAULTS) as driver:
        store = driver.get_key_value_store("last")
        driver.close()
    assert store is not None
    with pytest.raises(InvalidStateStoreError, match="'last' is not open"):
        store.get("k")


def test_the_wall_clock_moves_only_by_calls() -> None:
    topology = Topology()
    topology.add_source("S", "in").add_processor("P", Tick, "S").add_sink("K", "out", "P")
    with TopologyTestDriver(topology, DEFAULTS, initial_wall_clock_ms=1000) as driver:
        sink = driver.create_output_topic("out", STRING, STRING)
        driver.advance_wall_clock_time(9)
        assert sink.is_empty()
        driver.advance_wall_clock_time(1)
        driver.advance_wall_clock_time(35)
        assert sink.read_values_to_list() == ["1010", "1045"]


def test_an_error_names_task_node_topic_and_offset_and_keeps_the_users_own() -> None:
    topology = Topology()
    topology.add_source("S", "in").add_processor("P", Tick, "S")
    with TopologyTestDriver(topology, DEFAULTS) as driver:
        with pytest.raises(StreamsError, match="taskId=0_0, processor=P, topic=in, partition=0, offset=0") as caught:
            topics(driver)[0].pipe_input("k", "v")
        assert isinstance(caught.value.__cause__, ValueError)


def test_stores_can_be_read_and_written() -> None:
    with TopologyTestDriver(remember(), DEFAULTS) as driver:
        topics(driver)[0].pipe_input("k", "v")
        store = driver.get_key_value_store("last")
        assert store is not None
        assert store.get("k") == "v"
        store.put("j", "w")
        with store.all() as entries:
            assert list(entries) == [("j", "w"), ("k", "v")]
        assert set(driver.get_all_state_stores()) == {"last"}
        assert driver.get_timestamped_key_value_store("last") is None
        with pytest.raises(ValueError, match=r"get_key_value_store\(\)"):
            driver.get_state_store("last")


def test_an_unknown_store_is_none() -> None:
    with TopologyTestDriver(copy(), DEFAULTS) as driver:
        assert driver.get_state_store("gone") is None
        assert driver.get_key_value_store("gone") is None
        assert driver.get_all_state_stores() == {}


def test_the_mock_clock_is_at_hand() -> None:
    clock = MockClock(5)
    clock.advance(3)
    assert clock.milliseconds() == 8


def test_waits_for_topics_without_records_as_long_as_the_task_may_idle() -> None:
    topology = Topology().add_source("source", "a", "b").add_sink("sink", "out", "source")
    with TopologyTestDriver(topology, {**DEFAULTS, "max.task.idle.ms": 100}, 0) as driver:
        first, second = (driver.create_input_topic(topic, STRING, STRING) for topic in ("a", "b"))
        output = driver.create_output_topic("out", STRING, STRING)
        first.pipe_input("k", "late", 9)
        assert output.is_empty()
        second.pipe_input("k", "early", 1)
        assert output.read_values_to_list() == ["early"]
        driver.advance_wall_clock_time(99)
        assert output.is_empty()
        driver.advance_wall_clock_time(1)
        assert output.read_values_to_list() == ["late"]


def test_topics_without_records_are_waited_for_one_after_the_other() -> None:
    topology = Topology().add_source("source", "a", "b", "c").add_sink("sink", "out", "source")
    with TopologyTestDriver(topology, {**DEFAULTS, "max.task.idle.ms": 100}, 0) as driver:
        first, second = (driver.create_input_topic(topic, STRING, STRING) for topic in ("a", "b"))
        output = driver.create_output_topic("out", STRING, STRING)
        first.pipe_input("k", "1", 5)
        driver.advance_wall_clock_time(100)
        driver.advance_wall_clock_time(99)
        assert output.is_empty()
        driver.advance_wall_clock_time(1)
        assert output.read_values_to_list() == ["1"]
        first.pipe_input("k", "2", 6)
        assert output.read_values_to_list() == ["2"]
        driver.advance_wall_clock_time(100)
        second.pipe_input("k", "3", 1)  # only now there is a record that could wait for those of a
        driver.advance_wall_clock_time(99)
        assert output.is_empty()
        driver.advance_wall_clock_time(1)
        assert output.read_values_to_list() == ["3"]


def test_records_are_taken_by_their_extracted_timestamps() -> None:
    def behind_the_sign(record: ConsumerRecord, _: int) -> int:
        return int(record.value.partition("@")[2])

    builder = StreamsBuilder()
    for topic, time in (("late", "@9"), ("early", "@3")):
        builder.stream("in").map_values(f"{{}}{time}".format).to(topic)
        builder.stream(topic, Consumed.with_(behind_the_sign)).to("out")
    with TopologyTestDriver(builder.build(), DEFAULTS) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input("k", "v", 5)
        assert driver.create_output_topic("out", STRING, STRING).read_values_to_list() == ["v@3", "v@9"]


def test_a_record_that_is_dropped_is_waited_for_no_longer() -> None:
    topology = Topology()
    topology.add_source("A", "a", timestamp_extractor=lambda record, _: -1 if record.value == "drop" else 1)
    topology.add_source("B", "b").add_sink("sink", "out", "A", "B")
    with TopologyTestDriver(topology, {**DEFAULTS, "max.task.idle.ms": 100}, 0) as driver:
        driver.create_input_topic("a", STRING, STRING).pipe_input("k", "drop", 9)
        driver.create_input_topic("b", STRING, STRING).pipe_input("k", "v", 2)
        output = driver.create_output_topic("out", STRING, STRING)
        driver.advance_wall_clock_time(99)
        assert output.is_empty()
        driver.advance_wall_clock_time(1)
        assert output.read_values_to_list() == ["v"]
