"""The record cache of a task whose `metrics.recording.level` asks how many reads it answers (Kafka class:
NamedCacheMetrics). Any other task has the plain one, and pays nothing."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.metrics.host_metrics import CACHE_ID, HIT_RATIO, operation_of
from penstock.metrics.measurements import Measurement, Recorder
from penstock.state.record_cache import CacheEntry, FlushDirty, NamedCache, RecordCache


class MeasuredRecordCache(RecordCache):
    """A record cache whose named caches measure their hit ratio."""

    __slots__ = ("_recorder",)

    def __init__(self, max_bytes: int, recorder: Recorder) -> None:
        """As RecordCache; `recorder` takes what is measured."""
        super().__init__(max_bytes)
        self._recorder = recorder

    def _make_cache(self, store_name: str, flush_dirty: FlushDirty) -> NamedCache:
        return MeasuredNamedCache(self, flush_dirty, store_name, self._recorder)


class MeasuredNamedCache(NamedCache):
    """A named cache that measures the part of its reads which it answered so far; at each that it answers, as in
    Kafka."""

    __slots__ = ("_hits", "_operation", "_reads", "_recorder")

    def __init__(self, owner: RecordCache, flush_dirty: FlushDirty, store_name: str, recorder: Recorder) -> None:
        """As NamedCache, of the store `store_name`; `recorder` takes what is measured."""
        super().__init__(owner, flush_dirty)
        self._operation = operation_of(HIT_RATIO, CACHE_ID, store_name)
        self._recorder = recorder
        self._reads = self._hits = 0

    def get(self, key: bytes) -> CacheEntry | None:
        """Return the entry of `key` and count it as used, None if there is none."""
        entry = super().get(key)
        self._read(1, 0 if entry is None else 1)
        return entry

    def peek_many(self, keys: Sequence[bytes]) -> list[CacheEntry | None]:
        """Return the entry of each of `keys`, None if there is none, without counting it as used."""
        entries = super().peek_many(keys)
        self._read(len(entries), len(entries) - entries.count(None))
        return entries

    def _read(self, reads: int, hits: int) -> None:
        self._reads += reads
        self._hits += hits
        if hits:
            ratio = self._hits / self._reads
            self._recorder.record(self._operation, Measurement(hits, hits * ratio, ratio, ratio))
