"""The caching layer writes and forwards the entries that leave its cache."""

from __future__ import annotations

from penstock.state.api import FlushedEntries, RecordContext
from penstock.state.caching_store import CachingKeyValueStore
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from penstock.state.uncommitted import UncommittedStore


class Layer:
    """A caching layer over a base that has a=old."""

    def __init__(self, send_old_values: bool, max_bytes: int = 1000) -> None:
        base = MemoryBase()
        base.apply({"s": {b"a": b"old"}}, b"1")
        self.cache = RecordCache(max_bytes)
        self.buffer = UncommittedStore(base.view("s"))
        self.offset = 0
        self.layer = CachingKeyValueStore("s", self.buffer, self.cache, lambda: context(self.offset))
        self.flushed: list[tuple[bytes, bytes | None, bytes | None, RecordContext]] = []
        self.layer.set_flush_listener(self.listen, send_old_values)

    def listen(self, entries: FlushedEntries) -> None:
        for key, value in zip(entries.keys, entries.new_values, strict=True):
            assert self.buffer.get(key) == value  # written below before it is forwarded
        old_values = entries.old_values or [None] * len(entries.keys)
        self.flushed += zip(entries.keys, entries.new_values, old_values, entries.contexts, strict=True)

    def put(self, key: bytes, value: bytes | None) -> None:
        self.offset += 1
        self.layer.put(key, value)


def test_the_last_update_leaves_with_the_value_before_the_first() -> None:
    store = Layer(send_old_values=True)
    store.put(b"a", b"1")
    store.put(b"b", b"2")
    store.put(b"a", b"3")
    store.layer.flush()
    assert store.flushed == [
        (b"b", b"2", None, context(2)),
        (b"a", b"3", b"old", context(3)),
    ]
    store.layer.flush()
    assert len(store.flushed) == 2


def test_old_values_are_left_out_unless_asked_for() -> None:
    store = Layer(send_old_values=False)
    store.put(b"a", None)
    store.put(b"never", None)
    store.put(b"b", b"1")
    store.layer.flush()
    assert store.flushed == [(b"a", None, None, context(1)), (b"b", b"1", None, context(3))]
    assert store.buffer.changes() == {b"a": None, b"b": b"1"}


def test_a_listener_may_read_and_write_the_store() -> None:
    store = Layer(send_old_values=False)
    written: list[bytes] = []

    def listen(entries: FlushedEntries) -> None:
        written.extend(entries.keys)
        if entries.keys[0] == b"b":
            assert store.layer.get(b"b") == b"1"
            store.put(b"c", b"2")
            store.put(b"a", b"again")

    store.layer.set_flush_listener(listen, False)
    store.put(b"b", b"1")
    store.put(b"a", None)
    store.layer.flush()
    assert written == [b"b", b"a"]
    assert list(store.layer.range(None, None, False)) == [(b"a", b"again"), (b"b", b"1"), (b"c", b"2")]
    store.layer.flush()
    assert written == [b"b", b"a", b"c", b"a"]


def test_without_a_listener_entries_are_only_written_below() -> None:
    base = MemoryBase()
    buffer = UncommittedStore(base.view("s"))
    layer = CachingKeyValueStore("s", buffer, RecordCache(1000), context)
    layer.put(b"a", None)
    assert buffer.changes() == {}
    layer.flush()
    assert buffer.changes() == {b"a": None}


def context(offset: int = 0, topic: str = "topic", *headers: str) -> RecordContext:
    return RecordContext(5, tuple((name, b"hv") for name in headers), topic, 0, offset)


def test_a_column_read_has_cached_and_stored_values_and_keeps_none_of_them() -> None:
    store = Layer(send_old_values=False)
    store.put(b"b", b"1")
    store.put(b"c", None)
    size = store.cache.size_bytes
    assert store.layer.multi_get([b"c", b"a", b"b", b"absent"]) == [None, b"old", b"1", None]
    assert store.layer.multi_get([b"a", b"absent"]) == [b"old", None]
    assert store.layer.multi_get([]) == []
    assert store.cache.size_bytes == size
    assert store.layer.get(b"a") == b"old"
    assert store.cache.size_bytes > size  # a single read is kept


def test_a_closed_layer_has_discarded_its_writes() -> None:
    store = Layer(send_old_values=False)
    store.put(b"a", b"1")
    store.layer.close()
    assert (store.buffer.get(b"a"), store.flushed, store.cache.size_bytes) == (b"old", [], 0)
