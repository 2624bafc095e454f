"""The options of a time to live, and the stores that can have one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import Materialized, OnExpiry, Stores, TtlClock, TtlRenewal
from penstock.state.api import StoreBuilder
from penstock.state.ttl import Ttl
from tests.support.custom_stores import DictStoreSupplier
from tests.support.stores import STRING

TIMESTAMPED = Stores.timestamped_key_value_store_builder
DISK = Stores.persistent_timestamped_key_value_store("s")


def test_a_store_has_its_time_to_live_and_loses_no_other_option() -> None:
    builder = TIMESTAMPED(DISK, STRING, STRING).with_caching_enabled()
    assert builder.with_ttl(timedelta(hours=1)).ttl == Ttl(3_600_000, TtlClock.STREAM_TIME, OnExpiry.DROP)
    expiring = builder.with_ttl(5, clock=TtlClock.WALL_CLOCK_TIME)
    assert (expiring.ttl, expiring.caching) == (Ttl(5, TtlClock.WALL_CLOCK_TIME, OnExpiry.DROP), True)
    read = builder.with_ttl(5, renewal=TtlRenewal.READS_AND_WRITES)
    assert read.ttl == Ttl(5, on_expiry=OnExpiry.DROP, renewal=TtlRenewal.READS_AND_WRITES)
    assert (
        expiring.layout == read.layout == builder.layout
    )  # so state continues when a time to live is added or removed


def test_a_table_forwards_deletes_unless_told_otherwise() -> None:
    assert Materialized.as_("t").with_ttl(5).ttl == Ttl(5, TtlClock.STREAM_TIME, OnExpiry.FORWARD_DELETE)
    options = Materialized.as_("t").with_ttl(5, clock=TtlClock.WALL_CLOCK_TIME, on_expiry=OnExpiry.DROP)
    built = options.store_builder("t", STRING, STRING)
    assert built.ttl == Ttl(5, TtlClock.WALL_CLOCK_TIME, OnExpiry.DROP)


@pytest.mark.parametrize("ttl", [0, -1, 1 << 63, timedelta(microseconds=1)])
def test_a_time_to_live_is_at_least_a_millisecond(ttl: Any) -> None:
    with pytest.raises(ValueError, match="at least 1 ms"):
        TIMESTAMPED(DISK, STRING, STRING).with_ttl(ttl)


@pytest.mark.parametrize(
    ("ttl", "options", "message"),
    [
        ("1h", {}, "Expected the time to live as a timedelta"),
        (5, {"clock": "wall"}, "Expected TtlClock.STREAM_TIME or TtlClock.WALL_CLOCK_TIME as clock of with_ttl"),
        (5, {"on_expiry": True}, "Expected OnExpiry.FORWARD_DELETE or OnExpiry.DROP as on_expiry"),
    ],
)
def test_an_option_of_another_type_is_refused(ttl: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Materialized.as_("t").with_ttl(ttl, **options)


def test_a_renewal_of_another_type_is_refused() -> None:
    mistaken: Any = True
    with pytest.raises(TypeError, match=r"Expected TtlRenewal.WRITES or TtlRenewal.READS_AND_WRITES as renewal"):
        TIMESTAMPED(DISK, STRING, STRING).with_ttl(5, renewal=mistaken)


REFUSED = [
    (Stores.window_store_builder(Stores.in_memory_window_store("s", 9, 9, False), STRING, STRING), "with_retention"),
    (Stores.session_store_builder(Stores.persistent_session_store("s", 9), STRING, STRING), "with_retention"),
    (
        Stores.versioned_key_value_store_builder(Stores.persistent_versioned_key_value_store("s", 9), STRING, STRING),
        "history retention",
    ),
    (TIMESTAMPED(Stores.lru_map("s", 9), STRING, STRING), "least recently used"),
    (Stores.key_value_store_builder(DISK, STRING, STRING), "no timestamps.*timestamped_key_value_store_builder"),
    (TIMESTAMPED(Stores.persistent_key_value_store("s"), STRING, STRING), "no timestamps"),
    (StoreBuilder(DictStoreSupplier("s")), "only key-value stores with timestamps"),
]


@pytest.mark.parametrize(("builder", "why"), REFUSED, ids=[builder.kind for builder, _ in REFUSED])
def test_a_store_without_timestamps_of_its_entries_is_refused(builder: StoreBuilder, why: str) -> None:
    with pytest.raises(TypeError, match=rf"Store 's' cannot have a time to live \(with_ttl\): .*{why}"):
        builder.with_ttl(5)


@pytest.mark.parametrize(
    ("ttl", "interval_ms"),
    [
        (Ttl(5), 1),
        (Ttl(60_000), 6_000),
        (Ttl(5, TtlClock.WALL_CLOCK_TIME), 1_000),
        (Ttl(60_000, TtlClock.WALL_CLOCK_TIME), 6_000),
    ],
)
def test_sweeps_are_a_tenth_of_the_time_to_live_apart(ttl: Ttl, interval_ms: int) -> None:
    assert ttl.sweep_interval_ms == interval_ms
