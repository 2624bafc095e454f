"""What all typed stores have in common: the upper layer that user code and processors hold, and its iterators (Kafka
classes: the Metered stores, TypedKeyValueStoreIterator).

Keys and values become bytes here; below there are only bytes. A kind of store only adds its own reads and writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, ClassVar, NoReturn, Self, cast

from penstock.errors import InvalidStateStoreError
from penstock.metrics.observer import TaskObserver
from penstock.record import Headers, Int64Array, KeyValue
from penstock.serdes import Serde
from penstock.state.api import BufferedBytesStore, BytesStore, CachingBytesStore, FlushListener
from penstock.state.guarded import Guard, GuardedReads
from penstock.state.state_serdes import StateSerdes
from penstock_broker.common.log_limits import limit_rate

_log = limit_rate(logging.getLogger(__name__))

KEY_IS_NULL = "key cannot be null"
"""What Kafka says of a call without a key."""


ENTRIES = "entries"
"""The name of what most stores have below them."""


class TypedStore:
    """A store of objects over a store of bytes (implements StateStore and EngineStore; Kafka class:
    WrappedStateStore)."""

    _calls: ClassVar[Mapping[str, str]] = {"flush": "flush"}
    """The operation that Kafka counts a call of each method as."""
    _column_calls: ClassVar[Mapping[str, str]] = {}
    """The same for methods whose first argument is a column of keys: one operation for each key."""
    kind_name: ClassVar[str] = ""
    """What users call a store of this class, before the word "store"."""

    def __init__(
        self,
        serdes: StateSerdes,
        buffer: BufferedBytesStore,
        cache: CachingBytesStore | None,
        persistent: bool,
        logged: bool = False,
    ) -> None:
        """Hold the store that `serdes` are made for over `buffer`, its uncommitted writes, through `cache` if it has
        one. persistent: whether the base outlives the process. logged: whether writes go to a changelog."""
        self._logged = logged
        self._serdes = serdes
        self._name = serdes.store_name
        self._buffer = buffer
        self._cache = cache
        self._below: BytesStore = buffer if cache is None else cache
        self._persistent = persistent
        self._open = True

    # ---------- what users call

    @property
    def name(self) -> str:
        """The name of the store."""
        return self._name

    def is_open(self) -> bool:
        """Return whether the store can be used."""
        return self._open

    def persistent(self) -> bool:
        """Return whether the store's base outlives the process."""
        return self._persistent

    def flush(self) -> None:
        """Write cached entries through and forward them."""
        self._below.flush()

    def close(self) -> None:
        """Close the store; uncommitted writes are discarded. Later calls raise InvalidStateStoreError."""
        self._open = False
        if self._cache is not None:
            self._cache.close()
        self._buffer.clear()

    def _typed_stores(self) -> list[Self]:
        return [self]

    # ---------- what tasks and processors call

    def exposed(self) -> Self:
        """Return the store itself: processors get it."""
        return self

    @property
    def key_serde(self) -> Serde:
        """The serde of the keys."""
        return self._serdes.key_serde

    @property
    def value_serde(self) -> Serde:
        """The serde of the values."""
        return self._serdes.value_serde

    @property
    def timestamped(self) -> bool:
        """Whether the values are ValueAndTimestamp."""
        return self._serdes.timestamped

    @property
    def with_headers(self) -> bool:
        """Whether headers are kept with the values."""
        return self._serdes.with_headers

    @property
    def kind(self) -> str:
        """What users call such a store, such as "timestamped key-value store"."""
        timestamped = "timestamped " if self.timestamped else ""
        return f"{timestamped}{self.kind_name} store{' with headers' if self.with_headers else ''}"

    @property
    def uses_headers(self) -> bool:
        """Whether a serde of the store uses the headers of the record that is being processed."""
        return self._serdes.uses_headers

    @property
    def logged(self) -> bool:
        """Whether writes go to a changelog, so that the record that causes one must be known."""
        return self._logged

    @property
    def cached(self) -> bool:
        """Whether updates leave by the flush listener, and not by the processor that writes."""
        return self._cache is not None

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> None:
        """Give each entry that leaves the record cache to `listener`; does nothing for a store without a cache."""
        if self._cache is not None:
            self._cache.set_flush_listener(listener, send_old_values)

    def uncommitted_bytes(self) -> int:
        """Return about how many bytes of memory the uncommitted writes take."""
        return self._buffer.uncommitted_bytes()

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the uncommitted writes (after `flush`), None for a delete."""
        return self._buffer.changes()

    def clear_changes(self) -> None:
        """Forget the uncommitted writes: the base has them now."""
        self._buffer.clear()

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Int64Array) -> None:
        """Write the entries that changelog records of `timestamps` (ms) stand for, in turn; None deletes."""
        self._buffer.put_many(keys, values)

    def deserialize_keys(self, keys: list[bytes], headers: Sequence[Headers] | None = None) -> list[Any]:
        """Return the key that each of `keys` stands for, the serde being shown the `headers` at its place; raises what
        the serde does."""
        return self._serdes.deserialize_keys(keys, headers)

    def deserialize_columns(
        self, values: list[bytes | None], headers: Sequence[Headers] | None = None
    ) -> tuple[list[Any], Int64Array]:
        """Return the values that `values` stand for, None for None, and their timestamps (ms), NO_TIMESTAMP where there
        is none, the serde being shown the `headers` at their places; raises what the serde does."""
        return self._serdes.deserialize_values(values, headers)

    def fresh(self, value: Any) -> Any:
        """Return `value`, which is being written, as it will come back from the store."""
        return self._serdes.fresh(value)

    def reads_back(self, kind: type) -> bool:
        """Return whether values of type `kind` come back from the store as they were written."""
        return kind in self._serdes.value_serde.unchanging_types

    @property
    def repeatable(self) -> bool:
        """Whether a value from the store, if it is written again, comes back the same."""
        return self._serdes.value_serde.repeatable

    def report_calls(self, observer: TaskObserver, scope: str) -> None:
        """Report the duration of every later call to `observer`, of an iterator until its end; `scope` is Kafka's, such
        as rocksdb-window. The methods that report belong to this store instead of its class: other stores stay as
        fast."""
        for calls, reporting in ((self._calls, _reporting), (self._column_calls, _reporting_each_key)):
            for method, operation in calls.items():
                began = partial(observer.call_began, scope, self._name, operation)
                opened = partial(observer.iterator_opened, scope, self._name)
                vars(self)[method] = reporting(getattr(self, method), began, opened)

    def beneath_cache(self) -> Self:
        """Return the same store as it is below the record cache; a store without a cache is as it is."""
        beneath = copy(self)
        for method in (*self._calls, *self._column_calls):
            vars(beneath).pop(method, None)  # one that reports its calls belongs to this store
        beneath._cache = None
        beneath._below = self._buffer
        return beneath

    def for_readers(self, guard: Guard) -> Self:
        """Return the same store as other threads than that of its task read it: each read is done in what `guard`
        returns."""
        return self.over(lambda part: self.reads(part, guard))

    def reads(self, part: str, guard: Guard) -> GuardedReads:
        """Return a part of the bytes of the store, by the name that `over` has for it, as other threads read it."""
        return GuardedReads(self._parts()[part], guard)

    def over(self, reads: Callable[[str], GuardedReads]) -> Self:
        """Return the same store for readers. reads: returns the bytes that it reads, by the name of the part: most
        kinds have one part, ENTRIES."""
        shown = copy(self)
        for method in (*self._calls, *self._column_calls):
            vars(shown).pop(method, None)  # as above
        shown._below = cast("BytesStore", reads(ENTRIES))  # readers only read
        return shown

    def _parts(self) -> Mapping[str, Any]:
        """Return the stores of bytes that readers read, by name."""
        return {ENTRIES: self._below}

    # ---------- helpers

    def _serialize_key(self, key: Any, refusal: str = KEY_IS_NULL) -> bytes:
        if key is None or not self._open:
            self._refuse(refusal)
        return self._serdes.serialize_key(key)

    def _serialize_bounds(self, from_key: Any, to_key: Any) -> tuple[bytes | None, bytes | None] | None:
        """Return both inclusive bounds as bytes, None for an open end; None for both if nothing lies between."""
        if not self._open:
            self._refuse()
        first = None if from_key is None else self._serdes.serialize_key(from_key)
        last = None if to_key is None else self._serdes.serialize_key(to_key)
        if first is None or last is None or first <= last:
            return first, last
        _log.warning(
            "Store %s: the range is empty, since its first key is greater than its last (%r > %r). "
            "Are they in the wrong order, or does the key serde not keep the order in its bytes? "
            "Serdes of numbers do not for negative ones.",
            self._name,
            from_key,
            to_key,
        )
        return None

    def _check_open(self) -> None:
        if not self._open:
            self._refuse()

    def _refuse(self, refusal: str = KEY_IS_NULL) -> NoReturn:
        """Raise InvalidStateStoreError if the store is closed, else TypeError with Kafka's text for a null
        argument."""
        if not self._open:
            raise InvalidStateStoreError(
                f"Store {self._name!r} is not open: its task was closed or has moved. Get the store again in init()."
            )
        error = TypeError(refusal)
        error.add_note(f"Store {self._name!r} received the key None: drop such records, or give them another key.")
        raise error


class TypedIterator:
    """Iterates over the entries of a store as KeyValue (implements KeyValueIterator; Kafka class:
    TypedKeyValueStoreIterator)."""

    __slots__ = ("_ended", "_entries", "_key_of", "_next", "_open", "_store", "_value_of")

    def __init__(
        self,
        store: TypedStore,
        entries: Iterator[tuple[bytes, bytes]],
        key_of: Callable[[bytes], Any],
        value_of: Callable[[bytes], Any],
    ) -> None:
        """Read `entries` of `store`, which are bytes, by `key_of` and `value_of`."""
        self._store = store
        self._entries = entries
        self._key_of = key_of
        self._value_of = value_of
        self._next: tuple[bytes, bytes] | None = None
        self._ended: Callable[[], object] | None = None
        self._open = True

    def __iter__(self) -> TypedIterator:
        return self

    def __next__(self) -> KeyValue:
        if not self._open or not self._store.is_open():
            self._refuse()
        entry = self._next
        if entry is None:
            entry = next(self._entries, None)
            if entry is None:
                self._end()
                raise StopIteration
        else:
            self._next = None
        return KeyValue(self._key_of(entry[0]), self._value_of(entry[1]))

    def __enter__(self) -> TypedIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def peek_next_key(self) -> Any:
        """Return the next key without taking it; raises StopIteration at the end."""
        if not self._open or not self._store.is_open():
            self._refuse()
        if self._next is None:
            self._next = next(self._entries)
        return self._key_of(self._next[0])

    def close(self) -> None:
        """Release the iterator; later calls raise InvalidStateStoreError."""
        self._open = False
        self._entries = iter(())
        self._next = None
        self._end()

    def call_at_end(self, ended: Callable[[], object]) -> None:
        """Call `ended` once, when all entries have been read or the iterator is closed."""
        self._ended = ended

    def _end(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()

    def _refuse(self) -> NoReturn:
        what = "iterator" if self._store.is_open() else "store"
        raise InvalidStateStoreError(
            f"Store {self._store.name!r}: the {what} is closed. Read all that you need before you close it."
        )


_Began = Callable[[], Callable[[int], None]]
_Opened = Callable[[], Callable[[], None]]


def _reporting(method: Callable[..., Any], began: _Began, opened: _Opened) -> Callable[..., Any]:
    """Return `method`, whose calls report their beginning to `began`, and their end to what that returns; if they
    return an iterator, `opened` and what that returns learn of it too."""

    def call(*args: Any, **kwargs: Any) -> Any:
        ended = began()
        result = method(*args, **kwargs)
        if isinstance(result, TypedIterator):
            closed = opened()
            result.call_at_end(lambda: (ended(1), closed()))
        else:
            ended(1)
        return result

    return call


def _reporting_each_key(method: Callable[..., Any], began: _Began, opened: _Opened) -> Callable[..., Any]:
    """As `_reporting`, for a method whose first argument is a column of keys, and which returns no iterator."""

    def call(keys: Sequence[bytes], *args: Any) -> Any:
        ended = began()
        result = method(keys, *args)
        ended(len(keys))
        return result

    return call
