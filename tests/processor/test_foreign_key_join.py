"""The join of two tables by foreign key."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import KTable, StreamsBuilder, TableJoined
from penstock.errors import StreamsError
from penstock.processor.foreign_key_join import SingletonPartitioner, partition_of_response
from penstock.record import Headers
from penstock.serdes.subscription import SubscriptionResponseWrapper, SubscriptionResponseWrapperSerde, hash_of
from penstock.testing import TopologyTestDriver
from tests.support.joins import LEFT, OUT, RIGHT, STRING, Row, final, last, pair, run, updates
from tests.support.tables import UNCACHED


def foreign_key(value: str) -> str | None:
    return value[0] if value[0] != "z" else None


@given(updates(), st.sampled_from(["join", "left_join"]), st.sampled_from([0, 10_000_000]))
@settings(max_examples=80, deadline=None)
def test_the_join_by_foreign_key_ends_as_the_join_of_what_the_tables_end_as(
    rows: list[Row], type: str, cache: int
) -> None:
    def shape(builder: StreamsBuilder) -> None:
        left, right = builder.table(LEFT), builder.table(RIGHT)
        joined: KTable = getattr(left, type)(right, pair, foreign_key_extractor=foreign_key)
        joined.to_stream().to(OUT)

    left, right = final(rows, LEFT), final(rows, RIGHT)
    expected = {
        key: pair(value, right.get(foreign_key(value) or ""))
        for key, value in left.items()
        if type == "left_join" or (foreign_key(value) or "") in right
    }
    assert last(run(shape, rows, **{"statestore.cache.max.bytes": cache})) == expected


def test_a_partitioner_of_a_foreign_key_join_must_choose_one_partition() -> None:
    def shape(builder: StreamsBuilder) -> None:
        options = TableJoined.as_("j").with_other_partitioner(lambda topic, key, value, partitions: {0, 1})
        builder.table(LEFT).join(
            builder.table(RIGHT), pair, foreign_key_extractor=foreign_key, table_joined=options
        ).to_stream().to(OUT)

    with pytest.raises(StreamsError) as raised:
        run(shape, [(LEFT, "a", "xp", 0)])
    cause: BaseException | None = raised.value
    while cause is not None and not isinstance(cause, ValueError):
        cause = cause.__cause__
    assert "should be a singleton set" in str(cause)


@pytest.mark.parametrize("chosen", [None, {2}])
def test_the_partitioner_of_the_user_chooses_by_the_key_alone(chosen: set[int] | None) -> None:
    calls: list[tuple[Any, ...]] = []

    def partitioner(*arguments: Any) -> set[int] | None:
        calls.append(arguments)
        return chosen

    assert SingletonPartitioner(partitioner)("topic", "k", "v", (), 4) == chosen
    assert calls == [("topic", "k", None, 4)]


def test_the_partitioner_of_the_user_gets_the_headers_if_it_takes_them() -> None:
    def partitioner(topic: str, key: Any, value: Any, headers: Headers, partitions: int) -> set[int]:
        return {len(headers) % partitions}

    choose = SingletonPartitioner(partitioner)
    assert choose("topic", "k", "v", (("a", b"1"), ("b", None)), 4) == {2}
    again = pickle.loads(pickle.dumps(SingletonPartitioner(max)))
    assert vars(again) == {"_partitioner": max}


@pytest.mark.parametrize("chosen", [set(), {0, 1}])
def test_a_partitioner_must_choose_exactly_one_partition(chosen: set[int]) -> None:
    with pytest.raises(ValueError, match="should be a singleton set"):
        SingletonPartitioner(lambda topic, key, value, partitions: chosen)("topic", "k", None, (), 4)


@pytest.mark.parametrize(("partition", "chosen"), [(3, {3}), (0, {0}), (None, None)])
def test_a_response_returns_to_the_partition_of_its_subscription(
    partition: int | None, chosen: set[int] | None
) -> None:
    response = SubscriptionResponseWrapper(None, "v", partition)
    assert partition_of_response("topic", "k", response, 4) == chosen


def test_a_row_moves_to_the_foreign_key_of_its_new_value() -> None:
    def shape(builder: StreamsBuilder) -> None:
        left, right = builder.table(LEFT), builder.table(RIGHT)
        left.join(right, pair, foreign_key_extractor=foreign_key).to_stream().to(OUT)

    rows: list[Row] = [(RIGHT, "x", "X", 1), (RIGHT, "y", "Y", 2), (LEFT, "a", "xp", 3), (LEFT, "a", "yp", 4)]
    rows += [(RIGHT, "x", "Z", 5), (LEFT, "a", "zp", 6), (RIGHT, "y", "W", 7), (LEFT, "a", None, 8)]
    assert run(shape, rows) == [("a", "xpX", 3), ("a", "ypY", 4), ("a", None, 6)]


@pytest.mark.parametrize(("hashed", "results", "dropped"), [(b"xp", ["xpN"], 0), (b"xq", [], 1)])
def test_a_response_to_a_row_that_has_changed_since_is_dropped(hashed: bytes, results: list[str], dropped: int) -> None:
    builder = StreamsBuilder()
    left, right = builder.table(LEFT), builder.table(RIGHT)
    options = TableJoined.as_("j")
    left.join(right, pair, foreign_key_extractor=foreign_key, table_joined=options).to_stream().to(OUT)
    response = SubscriptionResponseWrapper(hash_of(hashed), "N", 0)
    with TopologyTestDriver(builder.build(), {**UNCACHED, "application.id": "app"}) as driver:
        driver.create_input_topic(LEFT, STRING, STRING).pipe_input("a", "xp", 1)
        data = SubscriptionResponseWrapperSerde(STRING).serialize("", response)
        driver.pipe_bytes("app-j-subscription-response-topic", b"a", data, 2)
        assert driver.create_output_topic(OUT, STRING, STRING).read_values_to_list() == results
        assert driver.dropped_records() == dropped
