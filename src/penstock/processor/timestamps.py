"""Timestamp extractors for records of sources (Kafka package: org.apache.kafka.streams.processor)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.errors import StreamsError
from penstock.record import ConsumerRecord
from penstock_broker.common.clock import SystemClock
from penstock_broker.common.log_limits import limit_rate

_log = limit_rate(logging.getLogger(__name__))


TimestampExtractor = Callable[[ConsumerRecord, int], int]
"""Called with the record and the partition time (ms, -1 if unknown).

It returns the record's timestamp in ms; a negative timestamp drops the record (Kafka class: TimestampExtractor).
"""


def fail_on_invalid_timestamp(record: ConsumerRecord, partition_time: int) -> int:
    """Return the record's own timestamp; raises StreamsError if it is negative.

    Kafka class: FailOnInvalidTimestamp.
    """
    if record.timestamp < 0:
        raise StreamsError(
            f"Input record {record.topic}-{record.partition} at offset {record.offset} has invalid (negative) "
            "timestamp. Possibly because a pre-0.10 producer client was used to write this record to Kafka without "
            "embedding a timestamp, or because the input topic was created before upgrading the Kafka cluster to "
            "0.10+. Use a different TimestampExtractor to process this data, such as log_and_skip_on_invalid_timestamp."
        )
    return record.timestamp


def log_and_skip_on_invalid_timestamp(record: ConsumerRecord, partition_time: int) -> int:
    """Return the record's own timestamp; a negative one is logged and drops the record.

    Kafka class: LogAndSkipOnInvalidTimestamp.
    """
    if record.timestamp < 0:
        _log.warning(
            "Input record %s-%d at offset %d will be dropped because it has an invalid (negative) timestamp.",
            record.topic, record.partition, record.offset,
        )  # fmt: skip
    return record.timestamp


def use_partition_time_on_invalid_timestamp(record: ConsumerRecord, partition_time: int) -> int:
    """Return the record's own timestamp, or the partition time if it is negative.

    Raises StreamsError if the partition time is still unknown (Kafka class: UsePartitionTimeOnInvalidTimestamp).
    """
    if record.timestamp >= 0:
        return record.timestamp
    if partition_time < 0:
        raise StreamsError(
            f"Could not infer new timestamp for input record {record.topic}-{record.partition} at offset "
            f"{record.offset} because partition time is unknown."
        )
    return partition_time


def wallclock_timestamp_extractor(record: ConsumerRecord, partition_time: int) -> int:
    """Return the wall-clock time (Kafka class: WallclockTimestampExtractor).

    Tasks use their own time in its place: that of the test driver's clock or, on Spark, the planned time of the epoch,
    so that a replay gives the same timestamps.
    """
    return SystemClock().milliseconds()
