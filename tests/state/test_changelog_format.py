"""Every kind of store converts a changelog record to an entry and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Stores
from penstock.errors import ProcessorStateError
from penstock.record import Headers
from penstock.state.api import RecordContext
from penstock.state.buffered_change import BufferedChange, Origins, pack_change, with_origins
from penstock.state.changelog_format import (
    BUFFER_HEADERS,
    ChangelogFormat,
    ChangelogRecord,
    ChangelogValues,
    changelog_format,
)
from penstock.state.layouts import pack_session, pack_timestamp, pack_window
from penstock.state.suppliers import (
    StoreSupplier,
    TimeOrderedBufferBytesStoreSupplier,
    TimeOrderedKeyValueBytesStoreSupplier,
)
from tests.support.stores import changelog_batch

TIMES = st.integers(0, 2**62)


BYTES = st.binary(max_size=12)


HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | BYTES), max_size=3).map(tuple)


CHANGES = st.builds(
    BufferedChange,
    st.none() | BYTES,
    st.none() | BYTES,
    BYTES,
    st.builds(RecordContext, TIMES, HEADERS, st.none() | st.text(max_size=5), st.integers(0, 99), TIMES),
)


PLAIN, TIMESTAMPED = ChangelogValues(), ChangelogValues(timestamped=True)


WITH_HEADERS = ChangelogValues(timestamped=True, with_headers=True)


AGGREGATION = ChangelogValues(with_headers=True)


WINDOW = Stores.persistent_window_store("s", 600_000, 10, False)


DUPLICATES = Stores.persistent_window_store("s", 600_000, 10, True)


SESSION = Stores.in_memory_session_store("s", 600_000)


KINDS: list[tuple[StoreSupplier, ChangelogValues]] = [
    (Stores.in_memory_key_value_store("s"), PLAIN),
    (Stores.persistent_timestamped_key_value_store("s"), TIMESTAMPED),
    (Stores.persistent_timestamped_key_value_store_with_headers("s"), WITH_HEADERS),
    (Stores.lru_map("s", 10), PLAIN),
    (Stores.persistent_versioned_key_value_store("s", 1000), PLAIN),
    (WINDOW, PLAIN),
    (WINDOW, TIMESTAMPED),
    (WINDOW, WITH_HEADERS),
    (DUPLICATES, PLAIN),
    (SESSION, PLAIN),
    (SESSION, AGGREGATION),
]


@st.composite
def _records(draw: st.DrawFn, supplier: StoreSupplier, values: ChangelogValues) -> ChangelogRecord:
    key = draw(BYTES)
    if supplier.kind == "window":
        key += pack_window(draw(TIMES), draw(st.integers(0, 2**31 - 1)))
    if supplier.kind == "session":
        key += pack_session(draw(TIMES), draw(TIMES))
    headers: Headers = draw(HEADERS) if values.with_headers else ()
    return ChangelogRecord(key, draw(st.none() | BYTES), draw(TIMES), headers)


def _there_and_back(format: ChangelogFormat, record: ChangelogRecord) -> ChangelogRecord:
    (key,), (value,) = format.entries(changelog_batch([record]))
    return format.record(key, value, RecordContext(record.timestamp or 0, record.headers))


@pytest.mark.parametrize(("supplier", "values"), KINDS, ids=lambda given: getattr(given, "kind", str(given)))
@given(data=st.data())
def test_a_record_comes_back_from_its_entry(
    supplier: StoreSupplier, values: ChangelogValues, data: st.DataObject
) -> None:
    record = data.draw(_records(supplier, values))
    assert _there_and_back(changelog_format(supplier, values), record) == record


@given(BYTES, TIMES, st.none() | BYTES)
def test_a_record_of_a_join_buffer_comes_back(key: bytes, time: int, value: bytes | None) -> None:
    format = changelog_format(TimeOrderedKeyValueBytesStoreSupplier("s", False), PLAIN)
    written = None if value is None else value + bytes(8)
    record = ChangelogRecord(b"\0" + pack_timestamp(time) + key, written, None)
    assert _there_and_back(format, record) == record


@given(BYTES, TIMES, CHANGES)
def test_a_record_of_a_buffer_of_updates_comes_back(key: bytes, time: int, change: BufferedChange) -> None:
    format = changelog_format(TimeOrderedBufferBytesStoreSupplier("s"), PLAIN)
    record = ChangelogRecord(key, pack_change(change) + pack_timestamp(time), None, BUFFER_HEADERS)
    assert _there_and_back(format, record) == record


@given(BYTES, TIMES, CHANGES, st.none() | BYTES, st.none() | BYTES)
def test_a_record_of_a_buffer_with_headers_comes_back(
    key: bytes, time: int, change: BufferedChange, prior: bytes | None, old: bytes | None
) -> None:
    format = changelog_format(TimeOrderedBufferBytesStoreSupplier("s"), ChangelogValues(with_headers=True))
    known = with_origins(change, Origins(prior, old))
    entry_key, update = pack_timestamp(time) + key, pack_change(known)
    record = format.record(entry_key, update, change.context)
    assert record.value == pack_change(change._replace(origins=None)) + pack_timestamp(time)
    assert format.entries(changelog_batch([record])) == ([entry_key], [update])


@pytest.mark.parametrize(
    ("supplier", "record", "expected"),
    [
        (WINDOW, ChangelogRecord(b"short", b"v", 1), "ends in 12 bytes"),
        (SESSION, ChangelogRecord(b"short", b"v", 1), "ends in 16 bytes"),
        (TimeOrderedBufferBytesStoreSupplier("s"), ChangelogRecord(b"k", bytes(99), 1), "another version"),
        (TimeOrderedBufferBytesStoreSupplier("s"), ChangelogRecord(b"k", b"v", 1, BUFFER_HEADERS), "8 bytes of time"),
        (TimeOrderedKeyValueBytesStoreSupplier("s", False), ChangelogRecord(b"k", b"v", 1), "a byte of 0"),
    ],
)
def test_a_record_of_another_store_is_refused(supplier: StoreSupplier, record: ChangelogRecord, expected: str) -> None:
    with pytest.raises(ProcessorStateError, match=expected):
        changelog_format(supplier, PLAIN).entries(changelog_batch([record]))
