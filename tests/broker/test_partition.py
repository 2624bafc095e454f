"""The log of a partition: appending, reading, recovery after a crash, and search by time."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_broker.batch import check_batch
from penstock_broker.common.clock import MockClock
from penstock_broker.errors import ApiError, BrokerError
from penstock_broker.partition import HIGH_WATERMARK, Partition
from penstock_broker.records import (
    EndTransactionMarker,
    LogRecord,
    encode_marker,
    encode_records,
    encode_transactional_records,
)
from penstock_broker.topic_config import LogConfig, log_config
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.record_batches import BatchRecord, Compression, encode_batch

CONFIG = log_config({"segment.bytes": str(1 << 20)})


def open_log(directory: Path, config: LogConfig = CONFIG) -> Partition:
    return Partition(directory, "topic", 0, config, MockClock())


def batch(count: int, first_time: int = 0, size: int = 10) -> memoryview:
    return memoryview(encode_batch([BatchRecord(first_time + n, b"k", b"v" * size) for n in range(count)]))


def batches_of(log: Partition, start: int = 0, max_bytes: int = 1 << 30) -> Iterator[bytes]:
    """All batches from an offset on, as a consumer reads them."""
    while start < log.end_offset:
        data = log.read(start, max_bytes)
        assert data, f"nothing at {start} before the end {log.end_offset}"
        while data:
            header = check_batch(memoryview(data))
            assert header.base_offset <= start < header.next_offset
            yield data[: header.size]
            data, start = data[header.size :], header.next_offset


def forget_clean_stop(directory: Path) -> None:
    """Leave a closed log as a kill leaves it, without what a clean stop writes."""
    for path in (*directory.glob("*.index"), *directory.glob("*.snapshot")):
        path.unlink()


def offsets_of(log: Partition, start: int = 0, max_bytes: int = 1 << 30) -> list[int]:
    return [check_batch(memoryview(one)).base_offset for one in batches_of(log, start, max_bytes)]


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp())
    yield path / "log"
    shutil.rmtree(path)


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3000)), max_size=40),
    segment_bytes=st.integers(100, 30_000),
    max_bytes=st.integers(1, 20_000),
    data=st.data(),
)
def test_batches_are_read_back_from_any_offset_before_and_after_a_restart(
    counts: list[tuple[int, int]], segment_bytes: int, max_bytes: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as path:
        config = log_config({"segment.bytes": str(segment_bytes)})
        log = open_log(Path(path), config)
        expected, offset = [], 0
        for count, size in counts:
            expected.append(offset)
            assert log.append(batch(count, size=size)) == offset
            offset += count
        start = data.draw(st.integers(0, offset))
        wanted = [o for i, o in enumerate(expected) if ([*expected, offset][i + 1]) > start]
        for _ in range(2):
            assert (log.start_offset, log.end_offset) == (0, offset)
            assert offsets_of(log, start, max_bytes) == wanted
            log.close()
            log = open_log(Path(path), config)
        log.close()


def test_a_log_cut_at_any_byte_opens_with_all_whole_batches(directory: Path) -> None:
    log = open_log(directory)
    ends = [0]
    for count in (1, 3, 2):
        log.append(batch(count))
        ends.append((directory / f"{0:020d}.log").stat().st_size)
    log.close()
    offsets = [0, 1, 4, 6]
    content = (directory / f"{0:020d}.log").read_bytes()
    for size in range(len(content) + 1):
        forget_clean_stop(directory)
        (directory / f"{0:020d}.log").write_bytes(content[:size])
        whole = max(number for number, end in enumerate(ends) if end <= size)
        log = open_log(directory)
        assert log.end_offset == offsets[whole]
        assert (directory / f"{0:020d}.log").stat().st_size == ends[whole]
        assert log.append(batch(2)) == offsets[whole]
        assert offsets_of(log) == offsets[: whole + 1]
        log.close()


@settings(max_examples=100, deadline=None)
@given(tail=st.binary(min_size=1, max_size=300), data=st.data())
def test_what_follows_the_last_whole_batch_is_cut(tail: bytes, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as path:
        log = open_log(Path(path))
        for count in (2, 5):
            log.append(batch(count))
        log.close()
        file = Path(path) / f"{0:020d}.log"
        whole = file.read_bytes()
        at = data.draw(st.integers(0, len(whole) - 1))
        kind = data.draw(st.sampled_from(["appended", "flipped"]))
        damaged = whole + tail if kind == "appended" else whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]
        forget_clean_stop(Path(path))
        file.write_bytes(damaged)
        log = open_log(Path(path))
        assert log.end_offset in ((7,) if kind == "appended" else (0, 2, 7))
        assert whole.startswith(b"".join(batches_of(log))) or kind == "flipped"
        end = log.end_offset
        assert log.append(batch(1)) == end
        log.close()


def test_damage_before_the_last_segment_is_an_error_that_names_the_place(directory: Path) -> None:
    log = open_log(directory, log_config({"segment.bytes": str(100)}))
    for _ in range(3):
        log.append(batch(1))
    log.close()
    first = directory / f"{0:020d}.log"
    first.write_bytes(first.read_bytes()[:-1])
    with pytest.raises(BrokerError, match=rf"{first}.* byte 0 of \d+ .*offset 0"):
        open_log(directory)


def test_reading_outside_the_log_is_out_of_range(directory: Path) -> None:
    log = open_log(directory)
    log.append(batch(3))
    assert log.read(3, 100) == b""
    for offset in (-1, 4, 2**62):
        with pytest.raises(ApiError) as caught:
            log.read(offset, 100)
        assert caught.value.code == ErrorCode.offset_out_of_range


def test_a_failed_write_leaves_the_log_as_it_was(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(directory)
    log.append(batch(3))
    real = os.pwrite

    def full_after_20_bytes(descriptor: int, data: memoryview, position: int) -> int:
        if len(data) > 20 and position == before:
            return real(descriptor, data[:20], position)
        raise OSError(28, "No space left on device")

    file = directory / f"{0:020d}.log"
    before = file.stat().st_size
    monkeypatch.setattr(os, "pwrite", full_after_20_bytes)
    with pytest.raises(ApiError) as caught:
        log.append(batch(2))
    assert caught.value.code == ErrorCode.kafka_storage_error
    assert file.stat().st_size == before
    monkeypatch.undo()
    assert log.append(batch(2)) == 3
    log.close()
    assert open_log(directory).end_offset == 5


def sequenced(sequence: int, count: int = 2, epoch: int = 0, producer: int = 9) -> memoryview:
    records = [BatchRecord(0, None, b"v")] * count
    return memoryview(encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence))


def refused(log: Partition, records: memoryview) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        log.append(records)
    return caught.value.code


@settings(max_examples=40, deadline=None)
@given(
    times=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=5), min_size=1, max_size=10),
    compression=st.sampled_from(Compression),
    segment_bytes=st.integers(70, 1000),
)
def test_the_offset_for_a_time_is_the_first_that_is_not_older(
    times: list[list[int]], compression: Compression, segment_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as path:
        log = open_log(Path(path), log_config({"segment.bytes": str(segment_bytes)}))
        for one in times:
            records = [BatchRecord(timestamp, b"k", b"v") for timestamp in one]
            log.append(memoryview(encode_batch(records, compression=compression)))
        flat = [timestamp for one in times for timestamp in one]
        for wanted in range(52):
            expected = next(((offset, t) for offset, t in enumerate(flat) if t >= wanted), None)
            assert log.offset_for_time(wanted) == expected
        assert log.offset_of_max_timestamp() == (flat.index(max(flat)), max(flat))
        log.close()


def test_an_empty_log_has_no_times(directory: Path) -> None:
    log = open_log(directory)
    assert log.offset_for_time(0) is None
    assert log.offset_of_max_timestamp() is None
    assert (log.start_offset, log.end_offset, log.read(0, 10)) == (0, 0, b"")


def test_listeners_are_called_after_an_append_until_they_are_removed(directory: Path) -> None:
    log = open_log(directory)
    calls: list[int] = []

    def wake() -> None:
        calls.append(log.end_offset)

    log.add_listener(wake)
    log.append(batch(2))
    log.append(batch(1))
    log.remove_listener(wake)
    log.append(batch(1))
    assert calls == [2, 3]


def own(*offsets: int) -> memoryview:
    return memoryview(encode_records([LogRecord(offset, 0, b"k", b"v") for offset in offsets]))


def in_transaction(producer: int, count: int = 1, epoch: int = 0) -> memoryview:
    records = [LogRecord(number, 0, b"k", b"v") for number in range(count)]
    return memoryview(encode_transactional_records(records, producer, epoch))


def end_transaction(log: Partition, producer: int, is_commit: bool, epoch: int = 0) -> int:
    return log.append_own(memoryview(encode_marker(EndTransactionMarker(is_commit, 0), producer, epoch, 0)))


def test_what_the_broker_itself_writes_is_appended_and_wakes_the_readers(directory: Path) -> None:
    log = open_log(directory)
    calls: list[int] = []
    log.add_listener(lambda: calls.append(log.end_offset))
    assert log.append_own(own(0, 1)) == 0
    assert log.append_own(own(2)) == 2
    assert (log.end_offset, log.last_stable_offset, calls) == (3, 3, [2, 3])
    assert offsets_of(log) == [0, 2]


def test_the_last_stable_offset_is_that_of_the_first_open_transaction(directory: Path) -> None:
    log = open_log(directory, log_config({"segment.bytes": str(200)}))

    def reopened() -> Partition:
        log.close()
        return open_log(directory, log.config)

    log.append_own(own(0))
    log.append_own(in_transaction(1, 3))  # 1 to 3
    log.append_own(in_transaction(2, 2))  # 4, 5
    log.append_own(in_transaction(1))  # 6
    assert log.last_stable_offset == 1
    log = reopened()
    assert log.last_stable_offset == 1
    assert end_transaction(log, 2, is_commit=False) == 7
    assert log.last_stable_offset == 1
    assert end_transaction(log, 1, is_commit=True) == 8
    assert log.last_stable_offset == log.end_offset == 9
    log = reopened()
    assert log.last_stable_offset == 9


class KilledError(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("error", [KilledError(), OSError(28, "No space left on device")])
def test_an_ended_transaction_stays_ended_though_its_marker_is_deleted(
    directory: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    log = open_log(directory, log_config({"segment.bytes": str(300)}))
    log.append_own(in_transaction(1))
    log.append(batch(1, size=200))  # the snapshot of this segment's start knows an open transaction
    end_transaction(log, 1, is_commit=True)
    log.append(batch(1, size=120))

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("penstock_broker.producer_snapshot.write_durably", fail)
    with suppress(KilledError):
        log.append(batch(1, size=50))
    monkeypatch.undo()
    if isinstance(error, KilledError):
        log = open_log(directory, log.config)
    log.delete_old_segments(0)
    log.delete_records(HIGH_WATERMARK)
    log.append(batch(1))
    shutil.copytree(directory, killed := directory.with_name("killed"))
    log = open_log(killed, log.config)
    assert log.last_stable_offset == log.end_offset


@settings(max_examples=100, deadline=None)
@given(data=st.data(), segment_bytes=st.integers(100, 2000), max_bytes=st.integers(1, 1000))
def test_readers_of_committed_records_see_what_was_committed(
    data: st.DataObject, segment_bytes: int, max_bytes: int
) -> None:
    steps = data.draw(
        st.lists(st.tuples(st.sampled_from(["write", "commit", "abort", "plain"]), st.integers(1, 3)), max_size=30)
    )
    with tempfile.TemporaryDirectory() as path:
        log = open_log(Path(path), log_config({"segment.bytes": str(segment_bytes)}))
        committed: set[int] = set()
        still_open: dict[int, list[int]] = {}
        for step, producer in steps:
            if step == "write":
                still_open.setdefault(producer, []).append(log.append_own(in_transaction(producer)))
            elif step == "plain":
                committed.add(log.append_own(own(0)))
            else:
                end_transaction(log, producer, step == "commit")
                ended = still_open.pop(producer, [])
                committed |= set(ended) if step == "commit" else set()
        stable = min((offsets[0] for offsets in still_open.values()), default=log.end_offset)
        start = data.draw(st.integers(0, log.end_offset))
        for _ in range(2):
            assert log.last_stable_offset == stable
            assert consumed(log, start, max_bytes) == sorted(o for o in committed if start <= o < stable)
            log.close()
            log = open_log(Path(path), log.config)
        log.close()


def consumed(log: Partition, start: int, max_bytes: int) -> list[int]:
    """The offsets that a consumer with isolation level read_committed returns, by the rule that clients follow."""
    seen: list[int] = []
    while start < log.last_stable_offset:
        records, found = log.read_committed(start, max_bytes)
        aborted = sorted(found, key=lambda one: one.first_offset)
        ignored: set[int] = set()
        assert records
        while records:
            header = check_batch(memoryview(records))
            while aborted and aborted[0].first_offset <= header.base_offset:
                ignored.add(aborted.pop(0).producer_id)
            if header.is_control:
                ignored.discard(header.producer_id)
            elif header.producer_id not in ignored or not header.is_transactional:
                seen.append(header.base_offset)
            records, start = records[header.size :], header.next_offset
    return seen
