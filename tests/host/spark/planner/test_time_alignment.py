"""Topics that advance together in time."""

from __future__ import annotations

import bisect

from hypothesis import given
from hypothesis import strategies as st

from penstock import Consumed, Grouped, Joined, Serdes, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.host.spark.planner.time_alignment import USED_SHARE, aligned_topics, common_time
from penstock.host.spark.protocol.placement import place
from penstock.processor.timestamps import wallclock_timestamp_extractor

STRING = Serdes.string()
TEXT = Consumed.with_(key_serde=STRING, value_serde=STRING)
JOINED = Joined.with_(key_serde=STRING, value_serde=STRING, other_value_serde=STRING)
TOPICS = {"a": 2, "b": 2, "c": 2, "d": 2, "e": 2, "out": 1}


def aligned(builder: StreamsBuilder, **values: object) -> frozenset[str]:
    topology = builder.build().build("app")
    config = StreamsConfig({"application.id": "app", **{k.replace("_", "."): v for k, v in values.items()}})
    return aligned_topics(topology, place(topology, TOPICS, 2), config)


def rekeyed_and_joined() -> StreamsBuilder:
    """`a`, by another key, joined with the table `b`; `c` alone."""
    builder = StreamsBuilder()
    rekeyed = builder.stream("a", TEXT).select_key(lambda _, value: value)
    rekeyed.join(builder.table("b", TEXT), lambda one, other: one + other, joined=JOINED).to("out")
    builder.stream("c", TEXT).to("out")
    return builder


def test_topics_that_meet_in_a_task_of_any_level_are_aligned() -> None:
    assert aligned(rekeyed_and_joined()) == {"a", "b"}
    assert aligned(rekeyed_and_joined(), penstock_max_skew_ms=0) == frozenset()


def test_the_partitions_of_a_topic_that_is_repartitioned_advance_together() -> None:
    builder = StreamsBuilder()
    builder.stream("a", TEXT).group_by(lambda _, value: value, Grouped.with_(STRING, STRING)).count().to_stream()
    builder.stream("c", TEXT).group_by_key(Grouped.with_(STRING, STRING)).count()
    assert aligned(builder) == {"a"}
    assert aligned(builder, penstock_max_skew_ms=0) == frozenset()


def test_topics_with_times_that_the_brokers_do_not_know_are_not() -> None:
    builder = rekeyed_and_joined()
    clocked = Consumed.with_(key_serde=STRING, value_serde=STRING, timestamp_extractor=wallclock_timestamp_extractor)
    texts = builder.stream("d", clocked).merge(builder.stream("e", TEXT))
    texts.to("out")
    assert aligned(builder) == {"a", "b"}
    assert aligned(rekeyed_and_joined(), default_timestamp_extractor=wallclock_timestamp_extractor) == frozenset()


@given(st.lists(st.integers(0, 10**13), min_size=1), st.integers(0, 10**13), st.integers(1, 10**9), st.data())
def test_an_epoch_reaches_as_far_as_its_quota_allows(
    times: list[int], begin: int, skew: int, data: st.DataObject
) -> None:
    times = sorted(times)
    quota = data.draw(st.integers(0, len(times) - 1))
    asked: list[int] = []

    def bytes_before(time: int) -> int:
        asked.append(time)
        return bisect.bisect_left(times, time)

    found = common_time(begin, bytes_before, quota, skew)
    assert found >= begin
    if bytes_before(found) <= quota:
        assert bytes_before(found) >= max(USED_SHARE * quota, 1)
    else:
        assert found == begin or bytes_before(found - 1) < max(USED_SHARE * quota, 1)
    assert len(asked) < 100
