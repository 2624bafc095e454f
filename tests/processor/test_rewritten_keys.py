"""Key serdes that do not write the same bytes again: for a key that was read, or under the headers of another record.

What waits in a store leaves it once, because it is removed by its own bytes.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock import (
    BufferConfig,
    Consumed,
    Grouped,
    Headers,
    Joined,
    JoinWindows,
    Materialized,
    Produced,
    Serde,
    Serdes,
    SessionWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
)
from penstock.testing import TopologyTestDriver

STRING = Serdes.string()


class TenantSerde(Serde[str]):
    """Text after the tenant of the record's headers."""

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        return _tenant(headers) + value.encode()

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> str:
        return data.removeprefix(_tenant(headers)).decode()


class GrowingSerde(Serde[str]):
    """Text that is longer each time that it was read."""

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        return value.encode()

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> str:
        return data.decode() + "~"


def _tenant(headers: Headers) -> bytes:
    return b"".join(value or b"" for name, value in headers if name == "tenant")


REWRITING = pytest.mark.parametrize("serde", [TenantSerde(), GrowingSerde()], ids=["headers", "read"])
STORES = pytest.mark.parametrize("stores", ["rocksdb", "in_memory"])
CACHES = pytest.mark.parametrize("cache_bytes", [0, 1_000_000])

JOIN_WINDOWS = JoinWindows.of_time_difference_with_no_grace(1)
TABLE = Materialized.as_(Stores.persistent_versioned_key_value_store("table", 1000)).with_key_serde(STRING)


def output(builder: StreamsBuilder, records: list[tuple[str, int, str]], **config: Any) -> list[str]:
    """Return the values that `builder` writes to "out" for (topic, time, tenant); each value is the record's time."""
    settings = {"default.key.serde": STRING, "default.value.serde": STRING, "penstock.emit.interval.ms": 0, **config}
    with TopologyTestDriver(builder.build(), settings) as driver:
        for topic, time, tenant in records:
            driver.pipe_bytes(topic, b"k", str(time).encode(), time, (("tenant", tenant.encode()),))
        return [(record.value or b"").decode() for record in driver.read_all_bytes() if record.topic == "out"]


@STORES
@REWRITING
def test_a_record_that_waits_in_an_outer_join_comes_out_once(serde: Serde, stores: str) -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    joined = left.outer_join(
        right, lambda a, b: f"{a}+{b}", JOIN_WINDOWS, stream_joined=StreamJoined.with_(serde, STRING, STRING)
    )
    joined.to("out", Produced.with_(serde, STRING))
    records = [("left", 0, "t1"), ("right", 10, "t2"), ("left", 20, "t3"), ("right", 30, "t4"), ("left", 40, "t5")]
    got = output(builder, records, **{"dsl.store.suppliers.class": stores})
    assert got == ["0+None", "None+10", "20+None", "None+30"]


@REWRITING
def test_a_record_that_waits_for_a_table_is_joined_once(serde: Serde) -> None:
    builder = StreamsBuilder()
    table = builder.table("table", materialized=TABLE)
    joined = Joined.with_(serde, STRING, STRING, name="joined", grace_period_ms=1)
    builder.stream("in").left_join(table, lambda left, right: f"{left}+{right}", joined=joined).to("out")
    got = output(builder, [("in", 10 * number, f"t{number}") for number in range(5)])
    assert got == ["0+None", "10+None", "20+None", "30+None"]


@CACHES
@STORES
@REWRITING
def test_a_session_takes_each_record_once(serde: Serde, stores: str, cache_bytes: int) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key(Grouped.with_(serde, STRING))
    sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(10))
    counts = sessions.count(Materialized.as_("counts"))
    counts.to_stream(lambda key, _: key.key).map_values(str).to("out", Produced.with_(serde, STRING))
    config = {"dsl.store.suppliers.class": stores, "statestore.cache.max.bytes": cache_bytes}
    got = output(builder, [("in", time, "t") for time in range(3)], **config)
    assert [value for value in got if value != "None"] == ["1", "2", "3"]


@REWRITING
def test_an_update_that_is_held_back_comes_out_once(serde: Serde) -> None:
    builder = StreamsBuilder()
    held = Suppressed.until_time_limit(1, BufferConfig.unbounded())
    table = builder.table("in", Consumed.with_(serde, STRING), Materialized.as_("table").with_value_serde(STRING))
    table.suppress(held).to_stream().to("out", Produced.with_(serde, STRING))
    got = output(builder, [("in", 10 * number, f"t{number}") for number in range(5)])
    assert len(got) == len(set(got)) > 1
