"""The buffer of suppress that keeps headers: those that a serde receives, over commits, restarts and restores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

from hypothesis import given
from hypothesis import strategies as st

from penstock.record import NO_TIMESTAMP, Change, Headers, ValueAndTimestamp
from penstock.serdes import Serdes
from penstock.state.api import RecordContext, StoreBuilder
from penstock.state.build import build_store, changelog_records
from penstock.state.change_buffer_with_headers import ChangeBufferWithHeaders
from penstock.state.changelog_format import ChangelogRecord
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from penstock.state.suppliers import TimeOrderedBufferBytesStoreSupplier
from penstock.state.time_ordered_buffer import Eviction, TimeOrderedChangeBuffer
from penstock.windows import LONG_MAX
from tests.oracle.interpreter.serdes import HeaderStringSerde
from tests.support.stores import CONFIG, restored

BUILDER = StoreBuilder(TimeOrderedBufferBytesStoreSupplier("b"), Serdes.string(), HeaderStringSerde())
WITH_HEADERS = CONFIG.overridden({"dsl.store.format": "headers"})


def build(base: MemoryBase, metadata: dict[str, int], config: Any = WITH_HEADERS) -> TimeOrderedChangeBuffer:
    store = build_store(BUILDER, config, base.view("b"), RecordCache(0), lambda: RecordContext(0, ()), metadata)
    assert isinstance(store, TimeOrderedChangeBuffer)
    return store


def cause(time: int, headers: Headers = ()) -> RecordContext:
    return RecordContext(time, headers, "topic", 0, time)


def put(store: TimeOrderedChangeBuffer, new: str | None, old: str | None, context: RecordContext) -> None:
    store.put(context.timestamp, "k", Change(new, old), context)


def taken(store: TimeOrderedChangeBuffer) -> list[Eviction]:
    """Return what leaves the buffer, all of it."""
    found: list[Eviction] = []
    store.evict_while(lambda: store.num_records > 0, found.append)
    return found


def test_an_old_value_has_the_headers_that_it_came_with() -> None:
    store = build(MemoryBase(), {})
    assert isinstance(store, ChangeBufferWithHeaders)
    put(store, "one", "zero", cause(1, (("h", b"1"),)))
    put(store, "two", "one", cause(2, (("h", b"2"),)))
    assert store.prior_value("k") == ValueAndTimestamp("zero", NO_TIMESTAMP)
    (left,) = taken(store)
    assert left.change.old_value == "one>h=1<h=1"
    assert left.context.headers == (("h", b"2"),)


class OfOneRecord(HeaderStringSerde):
    """Refuses to write a value under headers of another record."""

    def serialize(self, topic: str, value: str, headers: Headers = ()) -> bytes:
        if headers and headers[0][1] != value.encode():
            raise ValueError(f"{value} under {headers}")
        return super().serialize(topic, value, headers)


def test_an_old_value_is_written_under_its_own_headers_only() -> None:
    store = build_store(
        replace(BUILDER, value_serde=OfOneRecord()),
        WITH_HEADERS,
        MemoryBase().view("b"),
        RecordCache(0),
        lambda: current,
        {},
    )
    assert isinstance(store, TimeOrderedChangeBuffer)
    current = cause(1, (("h", b"one"),))
    put(store, "one", "zero", current)
    current = cause(2, (("h", b"two"),))
    put(store, "two", "one", current)
    assert taken(store)[0].change.old_value == "one>h=one<h=one"


def test_after_a_delete_an_old_value_has_no_headers() -> None:
    store = build(MemoryBase(), {})
    put(store, None, "zero", cause(1, (("h", b"1"),)))
    put(store, "two", "one", cause(2))
    assert taken(store)[0].change == Change("two", "one")


STEPS = st.lists(
    st.tuples(st.none() | st.sampled_from("xy"), st.none() | st.sampled_from("xy"), st.none() | st.sampled_from("12")),
    min_size=1,
    max_size=6,
)


@given(STEPS, st.integers(0, 6))
def test_updates_are_the_same_after_a_restart(steps: list[tuple[Any, Any, Any]], restart: int) -> None:
    base, metadata = MemoryBase(), dict[str, int]()
    kept, restarted = build(MemoryBase(), {}), build(base, metadata)
    for at, (new, old, header) in enumerate(steps):
        context = cause(at, () if header is None else (("h", header.encode()),))
        if at == restart:
            base.apply({"b": restarted.changes()}, b"")
            restarted = build(base, metadata)
        for store in (kept, restarted):
            put(store, new, old, context)
        assert kept.prior_value("k") == restarted.prior_value("k")
        assert kept.buffer_size == restarted.buffer_size
    assert taken(kept) == taken(restarted)
    assert kept.buffer_size == restarted.buffer_size == 0


def test_an_update_of_a_store_without_headers_is_read() -> None:
    base, metadata = MemoryBase(), dict[str, int]()
    plain = build(base, metadata, CONFIG)
    put(plain, "one", "zero", cause(1))
    base.apply({"b": plain.changes()}, b"")
    store = build(base, metadata)
    assert store.prior_value("k") == ValueAndTimestamp("zero", 1)  # Kafka gives it the time of the update
    put(store, "two", "one", cause(2, (("h", b"2"),)))
    assert taken(store)[0].change.old_value == "one"
    assert (store.num_records, store.buffer_size, store.min_timestamp) == (0, 0, LONG_MAX)


def test_a_store_that_kept_headers_is_exported_without_them() -> None:
    base = MemoryBase()
    store = build(base, {})
    put(store, "one", "zero", cause(1))
    base.apply({"b": store.changes()}, b"")
    written = [list(changelog_records(BUILDER, config, base.view("b"), 0, Mock())) for config in (WITH_HEADERS, CONFIG)]
    (with_headers,), (plain,) = written
    assert with_headers.value == plain.value, "the time is behind the values"
    assert (len(with_headers.headers), len(plain.headers)) == (2, 1)


def test_a_changelog_of_another_format_is_read() -> None:
    time, value = bytes(7) + b"\x01", b"\0\0\0\x01"
    context = bytes(16) + b"\xff\xff\xff\xff" + b"\0\0\0\0" + b"\0\0\0\0"
    update = context + value + b"o" + b"\xff\xff\xff\xfe" + value + b"n" + time
    for config in (CONFIG, WITH_HEADERS):
        for origins in ((), (("vh.old", b"\x06\x02\x02h\x00" + bytes(8)),)):
            record = ChangelogRecord(b"k", update, 5, (("v", b"\x03"), *origins))
            store = restored(BUILDER, config, [record])
            (left,) = taken(store)
            shown = "o<h=" if origins and config is WITH_HEADERS else "o"
            assert left.change == Change("n", shown)
