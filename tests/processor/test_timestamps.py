"""The timestamp extractors: valid timestamps stay, and each has its own way with negative ones."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import StreamsError
from penstock.processor.timestamps import (
    TimestampExtractor,
    fail_on_invalid_timestamp,
    log_and_skip_on_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
    wallclock_timestamp_extractor,
)
from penstock.record import ConsumerRecord

EXTRACTORS = [
    fail_on_invalid_timestamp,
    log_and_skip_on_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
]


def record(timestamp: int) -> ConsumerRecord:
    return ConsumerRecord("in", 2, 7, timestamp, "k", "v")


@pytest.mark.parametrize("partition_time", [-1, 50])
@pytest.mark.parametrize("timestamp", [0, 5])
@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_a_valid_timestamp_is_that_of_the_record(
    extractor: TimestampExtractor, timestamp: int, partition_time: int
) -> None:
    assert extractor(record(timestamp), partition_time) == timestamp


@pytest.mark.parametrize(
    ("extractor", "partition_time", "message"),
    [
        (fail_on_invalid_timestamp, 50, r"record in-2 at offset 7 has invalid \(negative\) timestamp"),
        (use_partition_time_on_invalid_timestamp, -1, "record in-2 at offset 7 because partition time is unknown"),
    ],
)
def test_a_negative_timestamp_is_refused_with_the_place_of_the_record(
    extractor: TimestampExtractor, partition_time: int, message: str
) -> None:
    with pytest.raises(StreamsError, match=message):
        extractor(record(-1), partition_time)


def test_the_partition_time_replaces_a_negative_timestamp() -> None:
    assert use_partition_time_on_invalid_timestamp(record(-1), 0) == 0


def test_a_skipped_record_is_logged_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    assert log_and_skip_on_invalid_timestamp(record(-3), 50) == -3
    (message,) = caplog.messages
    assert message.startswith("Input record in-2 at offset 7 will be dropped")


def test_the_wall_clock_replaces_every_timestamp(monkeypatch: pytest.MonkeyPatch) -> None:
    times: Any = iter([70, 80])
    monkeypatch.setattr("penstock.processor.timestamps.SystemClock.milliseconds", lambda clock: next(times))
    assert [wallclock_timestamp_extractor(record(time), 50) for time in (5, -1)] == [70, 80]
