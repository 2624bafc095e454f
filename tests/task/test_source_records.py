"""The source records of a task: of the current lane, and of records from a cache, which may belong to any lane."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.record import Int64Array, RecordBatch, RecordMetadata, TopicPartition
from penstock.task.source_records import SourceRecords
from tests.task.topologies import batch_of

PLACE = TopicPartition("in", 0)


def batch(lane: str, first: int, count: int) -> RecordBatch:
    return batch_of(*((f"{lane}{first + row}", "v", 1) for row in range(count)), first_offset=first)


def found(records: SourceRecords, offset: int) -> bytes | None:
    return records.find(RecordMetadata(*PLACE, offset))[0]


def test_the_record_in_progress_belongs_to_the_current_lane() -> None:
    records = SourceRecords()
    one, other = batch("a", 0, 3), batch("b", 0, 2)
    for current, expected in ((one, b"a1"), (other, b"b1"), (one, b"a1")):
        records.take(PLACE, current)
        assert found(records, 1) == expected


def test_a_record_from_a_cache_is_known_if_one_lane_has_its_offset() -> None:
    records = SourceRecords()
    for current in (batch("a", 0, 3), batch("b", 0, 2)):
        records.take(PLACE, current)
    with records.flushed():
        assert [found(records, offset) for offset in range(4)] == [None, None, b"a2", None]


def test_nothing_is_found_where_no_records_are_kept() -> None:
    records = SourceRecords()
    records.take(PLACE, None)
    assert records.kept(RecordMetadata(*PLACE, 0)) is None
    records.take(PLACE, batch("a", 0, 1))
    records.forget()
    assert records.kept(RecordMetadata(*PLACE, 0)) is None


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.booleans()), max_size=20))
def test_batches_of_any_lanes_in_any_order_are_found(steps: list[tuple[int, int, bool]]) -> None:
    records, ends = SourceRecords(), [0, 0, 0]
    last: dict[int, RecordBatch] = {}
    expected: dict[int, set[bytes]] = {}
    for lane, count, again in steps:
        if again and lane in last:
            records.take(PLACE, last[lane])
            continue
        last[lane] = batch(f"lane {lane} ", ends[lane], count)
        for offset in range(ends[lane], ends[lane] + count):
            expected.setdefault(offset, set()).add(f"lane {lane} {offset}".encode())
        ends[lane] += count
        records.take(PLACE, last[lane])
    with records.flushed():
        for offset, keys in expected.items():
            assert found(records, offset) == (keys.pop() if len(keys) == 1 else None)


def test_a_search_does_not_look_at_all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    original = np.searchsorted

    def counting(offsets: Int64Array, offset: int) -> np.intp:
        searched.append(offset)
        return original(offsets, offset)

    records = SourceRecords()
    for first in range(1_000):
        records.take(PLACE, batch("a", first, 1))
    monkeypatch.setattr(np, "searchsorted", counting)
    with records.flushed():
        assert [found(records, offset) for offset in (0, 500, 999)] == [b"a0", b"a500", b"a999"]
    assert searched == [0, 500, 999]


def test_a_record_from_a_store_hides_those_of_the_task() -> None:
    records = SourceRecords()
    records.take(PLACE, batch("a", 5, 1))
    stored, other = RecordMetadata(*PLACE, 3), RecordMetadata(*PLACE, 5)
    assert records.kept(other) is not None
    with records.stored(stored, (b"k", b"v")):
        assert records.are_stored
        assert (records.find(stored), records.place(stored)) == ((b"k", b"v"), stored)
        assert records.kept(other) is None
        with records.hidden():
            assert records.kept(stored) is None
    assert not records.are_stored
    with records.stored(stored, None):
        assert records.place(stored) is None
    assert records.kept(other) is not None


def test_a_failed_record_from_a_store_stays_the_current_one() -> None:
    records = SourceRecords()
    with pytest.raises(LookupError), records.stored(RecordMetadata(*PLACE, 3), None):
        raise LookupError
    assert records.are_stored
