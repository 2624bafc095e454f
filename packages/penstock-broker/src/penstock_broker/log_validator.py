"""Validation of produced records against the topic's configuration (Kafka class: LogValidator).

Contains the checks of timestamps and keys. Not here: the checks of the batch itself (batch.py).

Rules:
- Records are read only if the header is not sufficient: on compacted topics, with a limit for old timestamps, and to
  name the rejected records.
- A rejection names a limited number of records: a batch of a few kilobytes may decompress to millions.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from penstock_broker.batch import LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader
from penstock_broker.errors import RefusedRecordsError
from penstock_broker.records import record_times, records_without_key
from penstock_broker.topic_config import NEVER, LogConfig
from penstock_broker.wire.error_codes import ErrorCode

MOST_REFUSED: Final = 10_000
"""Maximum number of rejected records named in the answer to one Produce."""


def check_records(batch: memoryview, header: BatchHeader, config: LogConfig, now: int) -> None:
    """Check the records of a produced batch.

    Args:
        batch: the batch, as sent by the client.
        header: its header.
        config: the topic's configuration.
        now: the time (ms).

    Raises:
        RefusedRecordsError: INVALID_TIMESTAMP or INVALID_RECORD, with the rejected records.
        InvalidBatchError: the records cannot be read.
    """
    refused = _wrong_times(batch, header, config, now)
    if refused:
        raise RefusedRecordsError(
            ErrorCode.invalid_timestamp, "One or more records have been rejected due to invalid timestamp", refused
        )
    if config.compact:
        without_key = islice(records_without_key(batch), MOST_REFUSED)
        refused = [(place, "a record of a compacted topic needs a key") for place in without_key]
    if refused:
        raise RefusedRecordsError(
            ErrorCode.invalid_record,
            "One or more records have been rejected: they have no key, and the topic is compacted",
            refused,
        )


def _wrong_times(batch: memoryview, header: BatchHeader, config: LogConfig, now: int) -> list[tuple[int, str]]:
    if header.attributes & LOG_APPEND_TIME:
        reason = "a producer cannot set the timestamp type LogAppendTime"
        # The header may count more records than the batch contains.
        return [(place, reason) for place, _ in enumerate(islice(record_times(batch), MOST_REFUSED))]
    earliest, latest = now - config.timestamp_before_max_ms, now + config.timestamp_after_max_ms
    if config.is_log_append_time or (header.max_timestamp <= latest and config.timestamp_before_max_ms == NEVER):
        return []
    wrong = (
        (place, f"timestamp {time} is not between {earliest} and {latest}, which the topic allows now")
        for place, (_, time) in enumerate(record_times(batch))
        if time != NO_TIMESTAMP and not earliest <= time <= latest
    )
    return list(islice(wrong, MOST_REFUSED))
