"""The records that a topic's configuration refuses: their times and their keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_broker.batch import LOG_APPEND_TIME
from penstock_broker.common.clock import MockClock
from penstock_broker.errors import RefusedRecordsError
from penstock_broker.partition import Partition
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.test_log import open_partition
from tests.support.record_batches import BatchRecord, Compression, encode_batch


def refused_by(partition: Partition, *records: BatchRecord, attributes: int = 0) -> tuple[ErrorCode, list[int]]:
    with pytest.raises(RefusedRecordsError) as refused:
        partition.append(memoryview(encode_batch(records, attributes=attributes)))
    assert partition.end_offset == 0
    return refused.value.code, [place for place, _ in refused.value.records]


def test_records_whose_time_is_out_of_range_are_refused(tmp_path: Path) -> None:
    configs = {"message_timestamp_before_max_ms": 100, "message_timestamp_after_max_ms": 10}
    partition = open_partition(tmp_path, MockClock(1_000), **configs)
    times = (900, 899, 1_010, 1_011, -1)
    records = [BatchRecord(time, b"k", b"v") for time in times]
    assert refused_by(partition, *records) == (ErrorCode.invalid_timestamp, [1, 3])
    assert refused_by(partition, records[0], attributes=LOG_APPEND_TIME) == (ErrorCode.invalid_timestamp, [0])
    partition.append(memoryview(encode_batch([records[0], records[2], records[4]])))


def test_a_compacted_topic_refuses_records_without_keys(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, cleanup_policy="compact")
    records = [BatchRecord(0, b"", b"v"), BatchRecord(0, None, b"v"), BatchRecord(0, b"k", None)]
    assert refused_by(partition, *records) == (ErrorCode.invalid_record, [1])


@pytest.mark.parametrize("compression", Compression)
def test_keys_are_looked_at_in_every_compression(tmp_path: Path, compression: Compression) -> None:
    partition = open_partition(tmp_path, cleanup_policy="compact,delete")
    without = [BatchRecord(0, b"k", b"v"), BatchRecord(0, None, b"v")]
    with pytest.raises(RefusedRecordsError):
        partition.append(memoryview(encode_batch(without, compression=compression)))
    assert partition.append(memoryview(encode_batch(without[:1], compression=compression))) == 0
