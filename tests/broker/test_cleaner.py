"""Compaction: what it keeps, what readers see afterwards, and kills in the middle of it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_broker.batch import BatchHeader, read_header
from penstock_broker.cleaner import ENTRY_BYTES
from penstock_broker.common.clock import MockClock
from penstock_broker.partition import Partition
from penstock_broker.records import EndTransactionMarker, LogRecord, encode_marker, read_marker, read_records
from penstock_broker.topic_config import log_config
from penstock_broker.wire.record_batches import TRANSACTIONAL
from tests.broker.test_log import open_partition, segments_in
from tests.support.record_batches import BatchRecord, Compression, encode_batch

MOST_BYTES = 1 << 20
COMPACT = {"cleanup_policy": "compact", "segment_bytes": 150, "min_cleanable_dirty_ratio": 0}


def compacted(directory: Path, clock: MockClock | None = None, **configs: object) -> Partition:
    return open_partition(directory, clock, **(COMPACT | configs))


def clean(partition: Partition, now: int = 0, most_bytes: int = MOST_BYTES) -> None:
    for _ in partition.clean(most_bytes, now):
        pass


def write(partition: Partition, *records: tuple[bytes, bytes | None], **settings: int) -> int:
    batch = encode_batch([BatchRecord(10, key, value) for key, value in records], **settings)
    return partition.append(memoryview(batch))


def batches(partition: Partition, start: int = 0) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches from an offset on, as a consumer fetches them."""
    while start < partition.end_offset:
        data = partition.read(start, 200)
        assert data, f"nothing at {start} before the end {partition.end_offset}"
        view = memoryview(data)
        while view:
            header = read_header(view)
            assert header.next_offset > start
            yield header, view[: header.size]
            view, start = view[header.size :], header.next_offset


def records_of(partition: Partition, start: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    found = (
        record for header, batch in batches(partition, start) if not header.is_control for record in read_records(batch)
    )
    return [(record.offset, record.key, record.value) for record in found if record.offset >= start]


def committed(partition: Partition) -> dict[bytes, bytes]:
    """The last value of each key, for a reader of committed records that begins at the start."""
    state: dict[bytes, bytes] = {}
    position = partition.start_offset
    while position < partition.last_stable_offset:
        records, next_offset = fetched_committed(partition, position, 200)
        for record in records:
            assert record.key is not None
            if record.value is None:
                state.pop(record.key, None)
            else:
                state[record.key] = record.value
        position = next_offset
    return state


def fetched_committed(partition: Partition, position: int, max_bytes: int) -> tuple[list[LogRecord], int]:
    """What a reader of committed records keeps of one Fetch, and where it goes on (Java class: CompletedFetch).

    It drops the records of a producer from the start of an aborted transaction to the next marker of an abort.
    """
    data, aborted = partition.read_committed(position, max_bytes)
    assert data, f"nothing at {position} before the last stable offset {partition.last_stable_offset}"
    view = memoryview(data)
    ahead = sorted(aborted, key=lambda one: one.first_offset)
    dropped: set[int] = set()
    kept: list[LogRecord] = []
    while view:
        header = read_header(view)
        while ahead and ahead[0].first_offset < header.next_offset:
            dropped.add(ahead.pop(0).producer_id)
        if header.is_control:
            marker = read_marker(view)
            if marker is not None and not marker.is_commit:
                dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            kept += read_records(view)
        view, next_offset = view[header.size :], header.next_offset
    return [record for record in kept if record.offset >= position], next_offset


def test_the_last_record_of_each_key_stays_at_its_offset(tmp_path: Path) -> None:
    partition = compacted(tmp_path)
    for number in range(6):
        write(partition, (b"a", b"%d" % number), (b"b%d" % (number % 2), b"x"))
    assert partition.dirtiness(0).is_due
    clean(partition)
    assert not partition.dirtiness(0).is_due
    # The active segment, which begins at 10, stays as it is.
    expected = [(7, b"b1", b"x"), (8, b"a", b"4"), (9, b"b0", b"x"), (10, b"a", b"5"), (11, b"b1", b"x")]
    for _ in range(2):
        assert segments_in(tmp_path)[0] == 0
        for start in range(13):
            assert records_of(partition, start) == [each for each in expected if each[0] >= start]
        assert (partition.start_offset, partition.end_offset) == (0, 12)
        partition.close()
        partition = compacted(tmp_path)


@pytest.mark.parametrize("compression", Compression)
def test_a_batch_that_loses_records_keeps_its_compression_and_its_times(
    tmp_path: Path, compression: Compression
) -> None:
    partition = compacted(tmp_path)
    first = [BatchRecord(30, b"a", b"1"), BatchRecord(20, b"b", None, (("h", b"1"),)), BatchRecord(10, b"c", b"3")]
    partition.append(memoryview(encode_batch(first, compression=compression)))
    write(partition, (b"a", b"2" * 100))
    write(partition, (b"z", b"2" * 100))
    clean(partition, now=1_000)
    header, batch = next(batches(partition))
    assert header == read_header(batch)
    assert header.attributes & 7 == compression
    assert (header.base_offset, header.next_offset, header.max_timestamp, header.record_count) == (0, 3, 20, 2)
    assert list(read_records(batch)) == [
        LogRecord(1, 20, b"b", None, (("h", b"1"),)),
        LogRecord(2, 10, b"c", b"3"),
    ]


def test_a_tombstone_goes_after_its_time(tmp_path: Path) -> None:
    partition = compacted(tmp_path, delete_retention_ms=100)
    write(partition, (b"a", b"1"))
    write(partition, (b"a", None), (b"b", b"1"))

    def cleaned_at(now: int) -> list[int]:
        write(partition, (b"%d" % now, b"x" * 200))
        write(partition, (b"active", b"x" * 200))
        clean(partition, now)
        return [offset for offset, key, _ in records_of(partition) if key in (b"a", b"b")]

    assert cleaned_at(1_000) == [1, 2]
    assert next(batches(partition, 1))[0].delete_horizon == 1_100
    assert cleaned_at(1_099) == [1, 2]
    partition.close()
    partition = compacted(tmp_path, delete_retention_ms=100)
    assert cleaned_at(1_100) == [2]


def end_transaction(partition: Partition, producer: int, is_commit: bool) -> int:
    return partition.append_own(memoryview(encode_marker(EndTransactionMarker(is_commit, 0), producer, 0, 10)))


def in_transaction(partition: Partition, producer: int, sequence: int, *records: tuple[bytes, bytes | None]) -> int:
    settings = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
    return write(partition, *records, attributes=TRANSACTIONAL, **settings)


def test_records_of_aborted_transactions_go_and_their_markers_later(tmp_path: Path) -> None:
    partition = compacted(tmp_path, delete_retention_ms=100)
    write(partition, (b"a", b"old"))
    in_transaction(partition, 1, 0, (b"a", b"aborted"))
    end_transaction(partition, 1, is_commit=False)
    in_transaction(partition, 1, 1, (b"b", b"committed"))
    end_transaction(partition, 1, is_commit=True)

    def markers_after(now: int) -> list[bool]:
        write(partition, (b"%d" % now, b"x" * 200))
        write(partition, (b"active", b"x" * 200))
        clean(partition, now)
        assert committed(partition).items() >= {(b"a", b"old"), (b"b", b"committed")}
        markers = [read_marker(batch) for header, batch in batches(partition) if header.is_control]
        return [marker.is_commit for marker in markers if marker is not None]

    # The first compaction removes the records, the next one finds the marker alone, and the last one may remove it.
    assert markers_after(1_000) == [False, True]
    assert len(partition.read_committed(1, 1 << 30)[1]) == 1
    assert markers_after(2_000) == [False, True]
    assert partition.read_committed(1, 1 << 30)[1] == []
    assert markers_after(2_100) == [True]


def test_a_kill_brings_no_aborted_transaction_back_whose_marker_is_gone(tmp_path: Path) -> None:
    directory = tmp_path / "0"
    partition = compacted(directory, delete_retention_ms=0)
    in_transaction(partition, 1, 0, (b"a", b"aborted"))
    end_transaction(partition, 1, is_commit=False)
    in_transaction(partition, 1, 1, (b"b", b"committed"))
    end_transaction(partition, 1, is_commit=True)
    for life in range(1, 6):
        write(partition, (b"%d" % life, b"x" * 200))
        write(partition, (b"active", b"x" * 200))
        clean(partition, now=life)
        directory = restarted(partition, directory, tmp_path / str(life), is_clean=False)
        partition = compacted(directory, delete_retention_ms=0)
        assert records_of(partition)[0] == (2, b"b", b"committed")
        markers = [read_marker(batch) for header, batch in batches(partition) if header.is_control]
        aborted = partition.read_committed(partition.start_offset, 1 << 30)[1]
        assert len(aborted) <= sum(marker is not None and not marker.is_commit for marker in markers)
    assert aborted == []


def test_a_compaction_that_fails_half_way_forgets_transactions_whose_marker_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = compacted(tmp_path, delete_retention_ms=0)
    in_transaction(partition, 1, 0, (b"a", b"aborted"))
    end_transaction(partition, 1, is_commit=False)
    in_transaction(partition, 1, 1, (b"b", b"committed" * 20))
    end_transaction(partition, 1, is_commit=True)
    replace, replaced = os.replace, []

    def replace_first(source: Path, target: Path) -> None:
        if source.suffix == ".cleaned":
            replaced.append(target)
            if len(replaced) > 1:
                raise OSError(5, "Input/output error")
        replace(source, target)

    for now in range(3):
        write(partition, (b"%d" % now, b"x" * 200))
        write(partition, (b"active", b"x" * 200))
        if now == 0:
            clean(partition, now)
        else:
            replaced.clear()
            monkeypatch.setattr(os, "replace", replace_first)
            with pytest.raises(OSError, match="Input/output"):
                clean(partition, now)
            monkeypatch.undo()
    assert partition.read_committed(partition.start_offset, 1 << 30)[1] == []
    clean(partition, now=9)
    assert records_of(partition)[0] == (2, b"b", b"committed" * 20)


def test_the_largest_timestamp_is_that_of_a_record_that_is_left(tmp_path: Path) -> None:
    partition = compacted(tmp_path)
    newest = encode_batch([BatchRecord(99, b"a", b"1")], producer_id=7, producer_epoch=0, base_sequence=0)
    partition.append(memoryview(newest))
    for _ in range(4):
        write(partition, (b"a", b"2" * 100))
    assert partition.offset_of_max_timestamp() == (0, 99)
    clean(partition)
    assert next(batches(partition))[0].record_count == 0
    assert partition.offset_of_max_timestamp() == (3, 10)


def test_an_open_transaction_is_not_compacted(tmp_path: Path) -> None:
    partition = compacted(tmp_path)
    in_transaction(partition, 1, 0, (b"a", b"1" * 100))
    for _ in range(4):
        write(partition, (b"a", b"2" * 100))
    assert not partition.dirtiness(0).is_due
    clean(partition)
    assert len(records_of(partition)) == 5
    end_transaction(partition, 1, is_commit=True)
    assert partition.dirtiness(0).is_due


def test_the_sequence_numbers_of_a_producer_outlive_its_records(tmp_path: Path) -> None:
    partition = compacted(tmp_path)
    sequenced = {"producer_id": 7, "producer_epoch": 0}
    assert write(partition, (b"a", b"1"), (b"a", b"1"), **sequenced, base_sequence=0) == 0
    for _ in range(4):
        write(partition, (b"a", b"2" * 100))
    clean(partition)
    partition.close()
    partition = compacted(tmp_path)
    assert next(batches(partition))[0].record_count == 0
    assert write(partition, (b"a", b"1"), (b"a", b"1"), **sequenced, base_sequence=0) == 0
    assert write(partition, (b"a", b"3"), **sequenced, base_sequence=2) == partition.end_offset - 1


def test_the_sequence_numbers_of_a_producer_outlive_the_deletion_of_its_records_and_a_kill(tmp_path: Path) -> None:
    partition = compacted(tmp_path / "first", cleanup_policy="delete", segment_bytes=100)
    for sequence in range(2):
        in_transaction(partition, 1, sequence, (b"a", None))
    partition.delete_records(2)
    directory = restarted(partition, tmp_path / "first", tmp_path / "second", is_clean=False)
    partition = compacted(directory, cleanup_policy="delete", segment_bytes=100)
    assert in_transaction(partition, 1, 2, (b"a", None)) == 2


def test_the_last_batch_that_is_compacted_stays_if_only_empty(tmp_path: Path) -> None:
    partition = compacted(tmp_path, segment_bytes=400)
    for sequence in range(2):
        in_transaction(partition, 1, sequence, (b"a", b"1" * 300))
    end_transaction(partition, 1, is_commit=False)
    in_transaction(partition, 1, 2, (b"a", b"1"))
    end_transaction(partition, 1, is_commit=True)
    assert segments_in(tmp_path) == [0, 1, 2]
    clean(partition)
    header, _ = next(batches(partition))
    assert (header.base_offset, header.record_count) == (1, 0)


def test_more_keys_than_the_map_has_room_for_take_several_compactions(tmp_path: Path) -> None:
    partition = compacted(tmp_path)
    for number in range(40):
        write(partition, (b"k%d" % (number % 20), b"%d" % number))
    write(partition, (b"active", b"x" * 200))
    compactions = 0
    while partition.dirtiness(0).is_due:
        clean(partition, most_bytes=5 * ENTRY_BYTES)
        compactions += 1
    assert 5 < compactions < 20
    assert [offset for offset, *_ in records_of(partition)][:20] == list(range(20, 40))


def test_a_topic_that_is_not_compacted_any_more_loses_nothing_to_a_compaction_that_has_begun(tmp_path: Path) -> None:
    partition = compacted(tmp_path)
    for number in range(6):
        write(partition, (b"a", b"%d" % number))
    written = records_of(partition)
    work = partition.clean(MOST_BYTES, 0)
    next(work)
    partition.log.config = log_config({"cleanup.policy": "delete"})
    for _ in work:
        pass
    assert records_of(partition) == written


def test_small_segments_become_one(tmp_path: Path) -> None:
    partition = compacted(tmp_path, segment_bytes=300)
    for _ in range(2):
        for number in range(20):
            write(partition, (b"a", b"%d" % number))
        clean(partition)
    assert [offset for offset, *_ in records_of(partition)] == [35, 36, 37, 38, 39]
    # All that was compacted twice is one segment by now.
    assert segments_in(tmp_path)[:2] == [0, 16]


@dataclass
class Written:
    """What was written to a partition, by offset."""

    records: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)
    open: dict[int, list[int]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    sequences: dict[int, int] = field(default_factory=dict)

    def add(self, offset: int, records: list[tuple[bytes, bytes | None]]) -> list[int]:
        numbered = dict(enumerate(records, offset))
        self.records |= numbered
        return list(numbered)

    def state(self, start: int) -> dict[bytes, bytes]:
        """The last value of each key from an offset on."""
        there = ((offset, record) for offset, record in self.records.items() if offset >= start)
        last = {key: value for offset, (key, value) in there if offset not in self.aborted}
        return {key: value for key, value in last.items() if value is not None}


KEYS = st.sampled_from([b"a", b"b", b"c", b"a longer key than a digest"])
RECORDS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=30)), min_size=1, max_size=4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), RECORDS, st.sampled_from(Compression)),
        st.tuples(st.just("transaction"), RECORDS, st.integers(1, 3)),
        st.tuples(st.just("end"), st.booleans(), st.integers(1, 3)),
        st.tuples(st.just("clean"), st.integers(0, 100), st.integers(1, 6)),
        st.tuples(st.just("stopped clean"), st.integers(0, 100), st.integers(0, 60)),
        st.tuples(st.just("restart"), st.booleans(), st.just(0)),
        st.tuples(st.just("delete"), st.integers(0, 30), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, segment_bytes=st.integers(100, 600), policy=st.sampled_from(["compact", "compact,delete"]))
def test_readers_of_a_compacted_log_see_the_last_committed_value_of_each_key(
    steps: list[tuple[str, list[tuple[bytes, bytes | None]] | bool | int, int]], segment_bytes: int, policy: str
) -> None:
    with tempfile.TemporaryDirectory() as path:
        directory, lives, now = Path(path) / "0", 0, 1_000
        configs = {"segment_bytes": segment_bytes, "cleanup_policy": policy, "delete_retention_ms": 50}
        partition = compacted(directory, **configs)
        written = Written()
        for kind, what, how in steps:
            if kind == "write" and isinstance(what, list):
                offset = write(partition, *what, compression=Compression(how))
                written.add(offset, what)
            elif kind == "transaction" and isinstance(what, list):
                sequence = written.sequences.get(how, 0)
                offset = in_transaction(partition, how, sequence, *what)
                written.sequences[how] = sequence + len(what)
                written.open.setdefault(how, []).extend(written.add(offset, what))
            elif kind == "end":
                end_transaction(partition, how, bool(what))
                ended = written.open.pop(how, [])
                written.aborted |= set() if what else set(ended)
            elif kind == "restart":
                lives += 1
                directory = restarted(partition, directory, Path(path) / str(lives), is_clean=bool(what))
                partition = compacted(directory, **configs)
            elif kind == "delete":
                if policy == "compact,delete":
                    partition.delete_records(min(int(str(what)), partition.end_offset))
            else:
                assert isinstance(what, int)
                now += what
                work = partition.clean(how * ENTRY_BYTES if kind == "clean" else MOST_BYTES, now)
                for _ in work if kind == "clean" else islice(work, how):
                    pass
                work.close()
        end = partition.end_offset
        if not written.open:
            assert committed(partition) == written.state(partition.start_offset)
        for start in range(partition.start_offset, end + 1):
            found = records_of(partition, start)
            assert [offset for offset, *_ in found] == sorted(offset for offset, *_ in found)
            assert all(written.records[offset] == (key, value) for offset, key, value in found)
        for producer, sequence in written.sequences.items():
            assert in_transaction(partition, producer, sequence, (b"a", b"next")) == partition.end_offset - 1
        partition.close()


def restarted(partition: Partition, directory: Path, new: Path, is_clean: bool) -> Path:
    """Return a copy of the files as a clean stop or a kill leaves them."""
    if is_clean:
        partition.close()
    if directory.exists():
        shutil.copytree(directory, new)
    if not is_clean:
        partition.close()
    return new


def test_a_kill_at_any_moment_of_a_compaction_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "log"
    partition = compacted(directory, segment_bytes=300)
    for number in range(12):
        write(partition, (b"%d" % (number % 3), b"%d" % number))
        in_transaction(partition, 1, number, (b"t", b"%d" % number))
        end_transaction(partition, 1, is_commit=number % 2 == 0)
        if number == 6:
            clean(partition)
    expected = committed(partition)
    copies: list[Path] = []

    def copying_first(name: str) -> None:
        real = getattr(os, name)

        def copy_and_call(*args: object, **settings: object) -> object:
            monkeypatch.setattr(os, name, real)
            copies.append(shutil.copytree(directory, tmp_path / str(len(copies))))
            monkeypatch.setattr(os, name, copy_and_call)
            return real(*args, **settings)

        monkeypatch.setattr(os, name, copy_and_call)

    for name in ("open", "pwrite", "replace", "unlink"):
        copying_first(name)
    clean(partition, now=1)
    monkeypatch.undo()
    assert len(copies) > 20
    partition.close()
    for copy in copies:
        again = compacted(copy, segment_bytes=300)
        assert committed(again) == expected == committed(partition)
        assert again.end_offset == partition.end_offset
        clean(again, now=1)
        assert records_of(again) == records_of(partition)
        again.close()


def test_a_compaction_without_space_loses_nothing_and_is_done_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = compacted(tmp_path)
    for number in range(6):
        write(partition, (b"a", b"%d" % number))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    for name in ("pwrite", "replace"):
        monkeypatch.setattr(os, name, full)
        with pytest.raises(OSError, match="No space"):
            clean(partition)
        monkeypatch.undo()
        assert committed(partition) == {b"a": b"5"}
        assert not list(tmp_path.glob("*.cleaned"))
    clean(partition)
    assert [offset for offset, *_ in records_of(partition)] == [3, 4, 5]


@pytest.mark.skipif(sys.platform != "linux", reason="open files are found by way of /proc")
def test_the_open_files_of_a_log_do_not_grow_with_its_segments(tmp_path: Path) -> None:
    partition = compacted(tmp_path, cleanup_policy="compact,delete", retention_bytes=600, file_delete_delay_ms=0)

    def open_files() -> list[str]:
        links = (Path("/proc/self/fd") / each for each in os.listdir("/proc/self/fd"))
        return [os.readlink(link) for link in links if link.is_symlink() and str(tmp_path) in os.readlink(link)]

    for number in range(40):
        write(partition, (b"a", b"%d" % number), (b"b", b"x" * 40))
        clean(partition, now=number)
        partition.read(partition.start_offset, 1)
        partition.delete_old_segments(number)
        partition.log.segments.remove_files_set_aside(number)
        assert len(open_files()) <= 3  # what is written, and what was read last
        assert not [each for each in open_files() if each.endswith("(deleted)")]
    partition.close()
    assert open_files() == []
