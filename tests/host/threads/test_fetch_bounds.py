"""How the bounds of what waits are divided between the consumer, what waits for tasks, and their runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.config import StreamsConfig
from penstock.host.threads.fetch_bounds import consumer_bounds, limits
from penstock.host.threads.task_manager import BufferLimits

MIB = 1024 * 1024


def config_of(records: int, size: int) -> StreamsConfig:
    return StreamsConfig({"buffered.records.per.partition": records, "penstock.buffer.max.bytes": size}, environment={})


def test_half_of_the_defaults_waits_for_tasks() -> None:
    config = StreamsConfig({}, environment={})
    assert limits(config) == BufferLimits(15_000, 21 * MIB, 15_000, 3 * MIB)
    assert consumer_bounds(config, 4) == {
        "queued.min.messages": 30_000,
        "queued.max.messages.kbytes": 2048,
        "fetch.message.max.bytes": 262_144,
    }


@given(st.integers(1, 200_000), st.integers(MIB, 1 << 33), st.integers(0, 2_000))
def test_all_that_waits_is_no_more_than_the_user_allows(records: int, size: int, partitions: int) -> None:
    config = config_of(records, size)
    of_tasks, of_consumer = limits(config), consumer_bounds(config, partitions)
    assert of_tasks.records + of_tasks.fetched_records <= max(records, 1)
    waiting = of_tasks.bytes + of_tasks.fetched_bytes
    queue = 1024 * of_consumer["queued.max.messages.kbytes"]
    request = queue  # librdkafka lets a request bring no more than its queue holds
    assert 2 * waiting + queue + request <= size
    assert of_consumer["fetch.message.max.bytes"] <= MIB
    assert 1 <= of_consumer["queued.min.messages"] <= max(records, 1)


def test_the_smallest_bounds_let_a_record_through() -> None:
    config = config_of(1, 1024)
    assert limits(config) == BufferLimits(0, 336, 1, 48)
    assert consumer_bounds(config, 1)["queued.max.messages.kbytes"] == 1
