"""The decision on which entries have expired; `test_expiring_store` has its use in stores."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.state.expiry import Expiry
from penstock.state.layouts import pack_timestamp
from penstock.state.ttl import Ttl, TtlClock, TtlRenewal
from penstock.state.value_times import AT_START


class Task:
    """A task at a time (implements ExpiryServices)."""

    def __init__(self, stream_time: int, wall_clock: int) -> None:
        self.times = {TtlClock.STREAM_TIME: stream_time, TtlClock.WALL_CLOCK_TIME: wall_clock}
        self.is_processing = True
        self.cursors: dict[str, bytes] = {}
        self.scheduled: list[str] = []

    def now_ms(self, clock: TtlClock) -> int:
        return self.times[clock]

    def add(self, store_name: str, ttl: Ttl, sweep: Callable[[], None]) -> None:
        self.scheduled.append(store_name)


def expiry_of(task: Task | None, clock: TtlClock, metadata: dict[str, int]) -> Expiry:
    return Expiry("s", Ttl(10, clock), AT_START, metadata, task)


@pytest.mark.parametrize(("clock", "last"), [(TtlClock.STREAM_TIME, 20), (TtlClock.WALL_CLOCK_TIME, 90)])
def test_an_entry_expires_a_time_after_its_timestamp(clock: TtlClock, last: int) -> None:
    expiry = expiry_of(Task(30, 100), clock, {})
    assert expiry.unexpired(pack_timestamp(last)) is None
    assert expiry.unexpired(pack_timestamp(last + 1)) == pack_timestamp(last + 1)
    assert expiry.unexpired(None) is None
    assert expiry.delete_context(pack_timestamp(last)).timestamp == last + 10


def test_an_entry_without_a_timestamp_never_expires() -> None:
    value = pack_timestamp(-1)
    assert expiry_of(Task(1 << 60, 0), TtlClock.STREAM_TIME, {}).unexpired(value) == value


def test_a_wall_clock_that_was_set_right_expires_no_more_entries() -> None:
    task = Task(0, 1_000_000)
    expiry = expiry_of(task, TtlClock.WALL_CLOCK_TIME, {})
    expiry.commit_time()
    task.times[TtlClock.WALL_CLOCK_TIME] = 50
    assert expiry.unexpired(pack_timestamp(41)) == pack_timestamp(41)
    assert expiry.unexpired(pack_timestamp(40)) is None


def test_each_clock_has_its_own_time_of_the_commit() -> None:
    metadata: dict[str, int] = {}
    expiry_of(Task(30, 1_000_000), TtlClock.WALL_CLOCK_TIME, metadata).commit_time()
    assert expiry_of(None, TtlClock.STREAM_TIME, metadata).now_ms() == -1
    assert expiry_of(None, TtlClock.WALL_CLOCK_TIME, metadata).now_ms() == 1_000_000


def test_a_reader_of_committed_state_has_the_time_of_the_commit() -> None:
    metadata: dict[str, int] = {}
    reader = expiry_of(None, TtlClock.STREAM_TIME, metadata)
    assert reader.unexpired(pack_timestamp(0)) == pack_timestamp(0)  # nothing was committed
    expiry_of(Task(30, 0), TtlClock.STREAM_TIME, metadata).commit_time()
    assert reader.unexpired(pack_timestamp(20)) is None
    reader.commit_time()
    reader.count_writes(5)
    assert reader.now_ms() == 30
    assert reader.take_expired(None) == []  # type: ignore[arg-type]  # a reader sweeps nothing
    assert len(metadata) == 1


def reading(task: Task | None, duration_ms: int, renewal: TtlRenewal) -> Expiry:
    return Expiry("s", Ttl(duration_ms, renewal=renewal), AT_START, {}, task)


@pytest.mark.parametrize(
    ("timestamp", "is_renewed"), [(0, True), (40, True), (41, False), (50, False), (55, False), (-1, False)]
)
def test_a_read_renews_an_entry_at_most_once_in_a_tenth_of_its_time_to_live(timestamp: int, is_renewed: bool) -> None:
    expiry = reading(Task(50, 0), 100, TtlRenewal.READS_AND_WRITES)
    expected = pack_timestamp(50) + b"x" if is_renewed else None
    assert expiry.renewed(pack_timestamp(timestamp) + b"x") == expected


def test_a_short_time_to_live_has_a_renewal_in_each_millisecond() -> None:
    expiry = reading(Task(50, 0), 5, TtlRenewal.READS_AND_WRITES)
    assert expiry.renewed(pack_timestamp(50)) is None
    assert expiry.renewed(pack_timestamp(49)) == pack_timestamp(50)


def test_other_reads_renew_nothing() -> None:
    value = pack_timestamp(0)
    between = Task(50, 0)
    between.is_processing = False
    assert reading(Task(50, 0), 100, TtlRenewal.WRITES).renewed(value) is None
    assert reading(between, 100, TtlRenewal.READS_AND_WRITES).renewed(value) is None
    assert reading(None, 100, TtlRenewal.READS_AND_WRITES).renewed(value) is None
