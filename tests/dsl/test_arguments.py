"""Arguments that cannot be meant are refused where they are written, with what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    AutoOffsetReset,
    Branched,
    BufferConfig,
    CloseOptions,
    Consumed,
    FixedKeyProcessor,
    FixedKeyRecord,
    Grouped,
    Joined,
    JoinWindows,
    KafkaStreams,
    KGroupedStream,
    KStream,
    Materialized,
    Named,
    Processor,
    Produced,
    Record,
    Repartitioned,
    Serde,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TableJoined,
    TimeWindows,
    open_state,
)
from penstock.errors import ConfigError
from penstock.processor.timestamps import fail_on_invalid_timestamp
from penstock.testing import MockProcessorContext, TopologyTestDriver

S, L, D = Serdes.string(), Serdes.long(), Serdes.double()
MINUTE = timedelta(minutes=1)


def stream() -> KStream[Any, Any]:
    return StreamsBuilder().stream("t")


def grouped() -> KGroupedStream[Any, Any]:
    return stream().group_by_key()


class WithoutProcess(Processor):
    pass


class WithAsyncProcess(Processor):
    async def process(self, record: Record[Any, Any]) -> None: ...  # type: ignore[override]  # the mistake that is tested


class OfValues(FixedKeyProcessor):
    def process(self, record: FixedKeyRecord[Any, Any]) -> None: ...


async def later(value: Any) -> Any:
    return value


# What a call is given of the wrong type is given on purpose: `Any` keeps the type checker out of it.
BUILDER: Any = StreamsBuilder()
TEXT: Any = "x"
NUMBER: Any = 300_000
SERDE: Any = S
UNCALLED: Any = Serdes.string
CLASS: Any = Serde
BY_POSITION: Any = Grouped.with_
WINDOWS: Any = TimeWindows.of_size_with_no_grace(1)
ASYNC: Any = later
VALUES: Any = OfValues
NAMED: Any = Named.as_("n")
KEPT: Any = Materialized.as_("s")
CONFIG = {"application.id": "a"}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: TopologyTestDriver(BUILDER, CONFIG), "StreamsBuilder.build()"),
        (lambda: KafkaStreams(BUILDER, CONFIG), "StreamsBuilder.build()"),
        (lambda: open_state(BUILDER, CONFIG), "StreamsBuilder.build()"),
        (lambda: StreamsBuilder().stream("a", TEXT), "several topics go in a list"),
        (lambda: StreamsBuilder().table("t", TEXT), "Materialized.as_('x')"),
        (lambda: StreamsBuilder().stream("a", SERDE), "Consumed.with_(key_serde, value_serde)"),
        (lambda: StreamsBuilder().stream("a", Consumed.with_(UNCALLED)), "call it, Serdes.string()"),
        (lambda: Materialized.with_(S, UNCALLED), "value_serde of Materialized.with_"),
        (lambda: Produced.with_(CLASS), "write Serde()"),
        (lambda: Grouped.with_(TEXT, S), "name='x'"),
        (lambda: Materialized.as_(SERDE), "Materialized.with_(key_serde, value_serde)"),
        (lambda: stream().to("x", SERDE), "Produced.with_(key_serde, value_serde)"),
        (lambda: stream().repartition(TEXT), "Repartitioned.as_('x')"),
        (lambda: stream().group_by_key(TEXT), "Grouped.as_('x')"),
        (lambda: stream().to_table(materialized=TEXT), "Materialized.as_('x')"),
        (lambda: grouped().count(TEXT), "Materialized.as_('x')"),
        (lambda: grouped().windowed_by(WINDOWS).count(TEXT), "Materialized.as_('x')"),
        (lambda: grouped().windowed_by(NUMBER), "TimeWindows.of_size_with_no_grace(timedelta(minutes=5))"),
        (lambda: grouped().cogroup(lambda k, v, a: a).windowed_by(NUMBER), "TimeWindows.of_size"),
        (lambda: stream().join(stream(), lambda v, o: v, WINDOWS), "JoinWindows.of_time_difference"),
        (lambda: stream().to_table().suppress(NUMBER), "Suppressed.until_time_limit"),
        (lambda: stream().to_table().filter(lambda k, v: True, materialized=TEXT), "Materialized.as_('x')"),
        (lambda: stream().map_values(later), "later is a coroutine function"),
        (lambda: stream().to_table().filter(ASYNC), "write `def`, not `async def`"),
        (lambda: stream().process(WithAsyncProcess), "WithAsyncProcess.process is a coroutine function"),
        (lambda: stream().process(VALUES), "process_values() takes this one"),
        (lambda: grouped().count(NAMED, KEPT), "give it by name, named="),
        (lambda: grouped().aggregate(list, lambda k, v, a: a, NAMED, KEPT), "give it by name, named="),
        (lambda: stream().to_table().map_values(lambda v: v, KEPT), "give it by name, materialized="),
        (lambda: stream().deduplicate_by_key(5, NAMED), "Deduplicated.as_(name) create one"),
        (lambda: stream().repartition(KEPT), "Repartitioned.as_(name) create one"),
        (lambda: stream().print(TEXT), "Printed.to_sys_out()"),
        (lambda: stream().process(WithoutProcess), "WithoutProcess must define process(self, record)"),
        (lambda: Stores.key_value_store_builder(TEXT, S, S), "Stores.persistent_key_value_store('x')"),
        (lambda: Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), UNCALLED, S), "store 's'"),
        (lambda: TimeWindows.of_size_with_no_grace(TEXT), "size as a timedelta or a whole number of milliseconds"),
        (lambda: Materialized.as_("s").with_retention(TEXT), "retention as a timedelta"),
    ],
)
def test_a_wrong_argument_is_refused_with_what_to_write(wrong: Callable[[], object], told: str) -> None:
    with pytest.raises(TypeError) as refused:
        wrong()
    assert told in str(refused.value)


def test_serdes_are_given_by_position_as_in_java() -> None:
    assert Consumed.with_(S, L) == Consumed.with_(key_serde=S, value_serde=L)
    assert Produced.with_(S, L) == Produced.with_(key_serde=S, value_serde=L)
    assert Grouped.with_(S, L) == Grouped.with_(key_serde=S, value_serde=L)
    assert Repartitioned.with_(S, L) == Repartitioned.with_(key_serde=S, value_serde=L)
    assert Materialized.with_(S, L) == Materialized.with_(key_serde=S, value_serde=L)
    joined = Joined.with_(S, L, D)
    assert (joined.key_serde, joined.value_serde, joined.other_value_serde) == (S, L, D)
    stream_joined = StreamJoined.with_(S, L, D)
    assert (stream_joined.key_serde, stream_joined.value_serde, stream_joined.other_value_serde) == (S, L, D)


def everywhere(topic: str, key: Any, value: Any, partitions: int) -> set[int]:
    return {0}


THIS, OTHER = (Stores.in_memory_window_store(name, MINUTE, MINUTE, True) for name in ("this", "other"))


@pytest.mark.parametrize(
    ("by_position", "by_keyword"),
    [
        (Grouped.with_("g", S, L), Grouped.with_(S, L, name="g")),
        (Grouped.with_("g", None, L), Grouped.with_(value_serde=L, name="g")),
        (
            Consumed.with_(S, L, fail_on_invalid_timestamp, AutoOffsetReset.latest()),
            Consumed.with_(S, L, timestamp_extractor=fail_on_invalid_timestamp, offset_reset="latest"),
        ),
        (
            Consumed.with_(fail_on_invalid_timestamp),
            Consumed.with_(timestamp_extractor=fail_on_invalid_timestamp),
        ),
        (Consumed.with_(AutoOffsetReset.earliest()), Consumed.with_(offset_reset="earliest")),
        (Produced.with_(S, L, everywhere), Produced.with_(S, L, partitioner=everywhere)),
        (Joined.with_(S, L, D, "j", MINUTE), Joined.with_(S, L, D, name="j", grace_period_ms=60_000)),
        (StreamJoined.with_(THIS, OTHER), StreamJoined.with_(this_store_supplier=THIS, other_store_supplier=OTHER)),
        (TableJoined.with_(everywhere, None), TableJoined.with_(partitioner=everywhere)),
        (Branched.with_consumer(print, "b"), Branched.with_consumer(print, name="b")),
    ],
)
def test_with_takes_what_the_methods_of_java_take(by_position: object, by_keyword: object) -> None:
    assert by_position == by_keyword


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: BY_POSITION(S, S, S, S), "Expected key_serde, value_serde by position, got 4 arguments"),
        (lambda: BY_POSITION("g", S, S, name="h"), "name is given twice"),
        (lambda: Consumed.with_(CLASS), "write Serde()"),
    ],
)
def test_options_that_stand_in_no_order_are_refused(wrong: Callable[[], object], told: str) -> None:
    with pytest.raises(TypeError) as refused:
        wrong()
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("with_timedelta", "with_milliseconds"),
    [
        (TimeWindows.of_size_and_grace(MINUTE, MINUTE), TimeWindows.of_size_and_grace(60_000, 60_000)),
        (
            TimeWindows.of_size_with_no_grace(2 * MINUTE).advance_by(MINUTE),
            TimeWindows.of_size_with_no_grace(120_000).advance_by(60_000),
        ),
        (
            SlidingWindows.of_time_difference_and_grace(MINUTE, MINUTE),
            SlidingWindows.of_time_difference_and_grace(60_000, 60_000),
        ),
        (
            SessionWindows.of_inactivity_gap_and_grace(MINUTE, MINUTE),
            SessionWindows.of_inactivity_gap_and_grace(60_000, 60_000),
        ),
        (
            JoinWindows.of_time_difference_and_grace(MINUTE, MINUTE).before(-MINUTE),
            JoinWindows.of_time_difference_and_grace(60_000, 60_000).before(-60_000),
        ),
        (Materialized.as_("s").with_retention(MINUTE), Materialized.as_("s").with_retention(60_000)),
        (Joined.with_(grace_period_ms=MINUTE), Joined.with_(grace_period_ms=60_000)),
        (
            Suppressed.until_time_limit(MINUTE, BufferConfig.unbounded()),
            Suppressed.until_time_limit(60_000, BufferConfig.unbounded()),
        ),
        (
            Stores.in_memory_window_store("s", MINUTE, MINUTE, False),
            Stores.in_memory_window_store("s", 60_000, 60_000, False),
        ),
        (Stores.persistent_session_store("s", MINUTE), Stores.persistent_session_store("s", 60_000)),
        (
            Stores.persistent_versioned_key_value_store("s", MINUTE),
            Stores.persistent_versioned_key_value_store("s", 60_000),
        ),
        (CloseOptions.timeout(MINUTE), CloseOptions.timeout(60_000)),
    ],
)
def test_a_duration_may_be_a_timedelta(with_timedelta: object, with_milliseconds: object) -> None:
    assert with_timedelta == with_milliseconds


def test_the_test_driver_takes_timedeltas() -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(S, S)).to("out", Produced.with_(S, S))
    with TopologyTestDriver(builder.build(), initial_wall_clock_ms=0) as driver:
        topic = driver.create_input_topic("in", S, S, 5, timedelta(milliseconds=2))
        topic.pipe_input("a", "b")
        topic.pipe_input("a", "b")
        topic.advance_time(timedelta(seconds=1))
        topic.pipe_input("a", "b")
        topic.pipe_value_list(["c", "d"], 0, timedelta(milliseconds=3))
        read = driver.create_output_topic("out", S, S).read_records_to_list()
        driver.advance_wall_clock_time(MINUTE)
    assert [record.timestamp for record in read] == [5, 7, 1009, 0, 3]


def test_a_punctuation_takes_a_timedelta() -> None:
    context = MockProcessorContext()
    from_class: Any = context
    scheduled = from_class.schedule(MINUTE, None, lambda time: None)
    assert scheduled.interval_ms == 60_000


def test_processors_name_their_types() -> None:
    class Lengths(Processor[str, str, str, int]):
        def process(self, record: Record[str, str]) -> None:
            self.context.forward(record.with_value(len(record.value)))

    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(S, S)).process(Lengths).to("out", Produced.with_(S, L))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", S, S).pipe_input("a", "four")
        assert driver.create_output_topic("out", S, L).read_value() == 4


# ---------- the configuration


def test_a_misspelt_key_of_penstock_is_refused_with_the_one_that_is_meant() -> None:
    with pytest.raises(ConfigError, match=r"penstock.spark.partition: did you mean penstock.spark.partitions\?"):
        StreamsConfig({"penstock.spark.partition": 3})


def test_kafkas_constants_are_keys_and_values() -> None:
    config = StreamsConfig(
        {
            StreamsConfig.APPLICATION_ID_CONFIG: "a",
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG: StreamsConfig.EXACTLY_ONCE_V2,
            StreamsConfig.consumer_prefix("fetch.min.bytes"): 7,
        }
    )
    assert config["application.id"] == "a"
    assert config["processing.guarantee"] == "exactly_once_v2"
    assert config["consumer.fetch.min.bytes"] == 7


@pytest.mark.parametrize(
    "name", ["string", "StringSerde", "org.apache.kafka.common.serialization.Serdes$StringSerde", Serdes.string()]
)
def test_a_default_serde_may_be_named(name: object) -> None:
    assert StreamsConfig({"default.key.serde": name})["default.key.serde"].deserialize("t", b"a") == "a"


def test_a_default_serde_that_is_none_says_which_there_are() -> None:
    with pytest.raises(ConfigError, match="call it, or one of the names string, "):
        StreamsConfig({"default.key.serde": Serdes.string})


def test_the_configs_of_buffers_have_the_names_of_kafka_streams_too() -> None:
    assert Suppressed.BufferConfig.unbounded() == BufferConfig.unbounded()
    assert isinstance(Suppressed.BufferConfig.max_records(1), Suppressed.EagerBufferConfig)
    assert isinstance(Suppressed.BufferConfig.max_bytes(1).shut_down_when_full(), Suppressed.StrictBufferConfig)
