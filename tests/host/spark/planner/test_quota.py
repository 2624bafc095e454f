"""The planner: how far an epoch reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.host.spark.planner.quota import (
    FAN_OUT,
    UNKNOWN_RECORD_BYTES,
    QuotaLimits,
    first_quota,
    next_quota,
    positions_within,
    remaining_quota,
)
from penstock.record import TopicPartition

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 3))
offsets = st.integers(0, 10**9)
backlogs = st.dictionaries(partitions, st.tuples(offsets, st.integers(-5, 10**7)), min_size=1, max_size=12)
sizes = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.floats(1, 1e6))
quotas = st.integers(1, 10**9)


def cost(before: dict[TopicPartition, int], after: dict[TopicPartition, int], sizes: dict[str, float]) -> float:
    return sum((after[tp] - before[tp]) * sizes.get(tp.topic, UNKNOWN_RECORD_BYTES) for tp in before)


@given(backlogs, sizes, quotas, st.lists(st.sets(partitions), max_size=3))
def test_stays_within_ends_and_quota_and_always_moves_on(
    backlog: dict[TopicPartition, tuple[int, int]],
    sizes: dict[str, float],
    quota: int,
    first: list[set[TopicPartition]],
) -> None:
    positions = {tp: position for tp, (position, _) in backlog.items()}
    ends = {tp: position + lag for tp, (position, lag) in backlog.items()}
    planned = positions_within(positions, ends, sizes, quota, first=first)
    assert planned.keys() == positions.keys()
    for tp, position in positions.items():
        assert position <= planned[tp] <= max(ends[tp], position)
        assert (planned[tp] > position) == (ends[tp] > position)
    allowance = sum(sizes.get(tp.topic, UNKNOWN_RECORD_BYTES) for tp in positions)
    assert cost(positions, planned, sizes) <= quota + allowance


@given(backlogs, sizes, quotas, st.lists(st.sets(partitions), max_size=3))
def test_reaches_the_ends_in_a_bounded_number_of_epochs(
    backlog: dict[TopicPartition, tuple[int, int]],
    sizes: dict[str, float],
    quota: int,
    first: list[set[TopicPartition]],
) -> None:
    backlog = {tp: (position, min(lag, 200)) for tp, (position, lag) in backlog.items()}
    positions = {tp: position for tp, (position, _) in backlog.items()}
    ends = {tp: position + max(lag, 0) for tp, (position, lag) in backlog.items()}
    for _ in range(200):
        positions = positions_within(positions, ends, sizes, quota, first=first)
    assert positions == ends


def test_reads_all_where_it_fits() -> None:
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    assert positions_within({a: 5, b: 0}, {a: 10, b: 20}, {"a": 10.0, "b": 10.0}, 250) == {a: 10, b: 20}


def test_topics_advance_together_in_proportion_to_their_lag() -> None:
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    assert positions_within({a: 0, b: 0}, {a: 1000, b: 100}, {"a": 10.0, "b": 10.0}, 1100) == {a: 100, b: 10}


def test_partitions_that_are_waited_for_come_first() -> None:
    a, b, c = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("b", 1)
    positions, ends, sizes = {a: 0, b: 0, c: 0}, {a: 1000, b: 100, c: 50}, {"a": 10.0, "b": 10.0}
    assert positions_within(positions, ends, sizes, 2000, first=[{b, c}]) == {a: 50, b: 100, c: 50}
    assert positions_within(positions, ends, sizes, 300, first=[{b, c}]) == {a: 1, b: 20, c: 10}
    assert positions_within(positions, ends, sizes, 300, first=[{c}, {a, c}]) == {a: 1, b: 1, c: 30}
    assert positions_within(positions, ends, sizes, 700, first=[{c}, {b, c}]) == {a: 1, b: 20, c: 50}
    assert positions_within(positions, ends, sizes, 2000, unread={b}, first=[{b, c}]) == {a: 150, b: 0, c: 50}


def test_what_loops_send_holds_new_records_back_and_what_waits_leaves_half_of_the_quota() -> None:
    quota = 1_000_000
    assert remaining_quota(quota, 0, 0) == quota
    assert remaining_quota(quota, 300_000, 0) == 700_000
    assert remaining_quota(quota, 10 * quota, 0) == remaining_quota(quota, 20 * quota, 0) == 64 * 1024
    assert remaining_quota(quota, 0, 300_000) == 700_000
    assert remaining_quota(quota, 0, 10 * quota) == 500_000
    assert remaining_quota(quota, 200_000, 10 * quota) == 400_000
    assert remaining_quota(1, 10, 10) == 1


def test_a_partition_without_a_known_end_stays() -> None:
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    assert positions_within({a: 3, b: 4}, {b: 6}, {"a": 1.0, "b": 1.0}, 100) == {a: 3, b: 6}


LIMITS = QuotaLimits(max_bytes=1_000_000, target_ms=1000)


def test_the_first_epoch_of_a_topic_is_small() -> None:
    tp = TopicPartition("a", 0)
    assert positions_within({tp: 0}, {tp: 10**9}, {}, first_quota(QuotaLimits(64 << 20, 2000)))[tp] <= 256


def test_the_quota_grows_towards_the_target_at_most_by_doubling() -> None:
    assert next_quota(100_000, 100_000, 500, LIMITS) == 200_000
    assert next_quota(100_000, 100_000, 10, LIMITS) == 200_000
    assert next_quota(100_000, 100_000, 800, LIMITS) == 125_000


def test_the_quota_shrinks_where_epochs_take_too_long() -> None:
    assert next_quota(800_000, 800_000, 1250, LIMITS) == 640_000
    assert next_quota(800_000, 800_000, 10_000, LIMITS) == 400_000


def test_an_epoch_with_little_to_read_does_not_change_the_quota() -> None:
    assert next_quota(800_000, 100, 20, LIMITS) == 800_000


def test_an_epoch_that_multiplies_its_records_is_followed_by_smaller_ones() -> None:
    limits = QuotaLimits(64 << 20, 2000)
    quota = limits.max_bytes
    sent = []
    for _ in range(6):
        sent.append(quota * 100)
        quota = next_quota(quota, quota, 1, limits, sent[-1])
    assert sent[1] <= FAN_OUT * limits.max_bytes < sent[0]
    assert set(sent[1:]) == {sent[1]}
    few = limits.max_bytes // 2
    assert next_quota(few, few, 1, limits, limits.max_bytes) == next_quota(few, few, 1, limits)


@given(
    st.integers(1, 10**9),
    st.integers(0, 10**9),
    st.integers(0, 10**7),
    st.integers(1024, 10**9),
    st.integers(1, 10**6),
    st.integers(0, 10**11),
)
def test_the_quota_keeps_its_bounds(quota: int, read: int, duration: int, most: int, target: int, sent: int) -> None:
    limits = QuotaLimits(most, target)
    quota = min(quota, most)
    found = next_quota(quota, read, duration, limits, sent)
    assert 1 <= found <= most
    assert found <= max(quota * 2, 64 * 1024)
