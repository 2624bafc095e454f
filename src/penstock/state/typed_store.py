"""The common base of typed stores, for user code and processors, and its iterators.

Kafka classes: the Metered stores, TypedKeyValueStoreIterator.

Keys and values become bytes here; the layers below handle only bytes. Each kind of store only adds its reads and
writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, ClassVar, NoReturn, Self, cast

from penstock.config.isolation_level import IsolationLevel, checked_level
from penstock.errors import InvalidStateStoreError
from penstock.metrics.observer import TaskObserver
from penstock.record import Headers, Int64Array, KeyValue
from penstock.serdes import Serde
from penstock.state.api import FlushListener
from penstock.state.bytes_store import BufferedBytesStore, BytesStore, CachingBytesStore
from penstock.state.expiring_store import ExpiringStore
from penstock.state.guarded import Guard, GuardedReads
from penstock.state.state_serdes import StateSerdes
from penstock_broker.common.log_limits import limit_rate

_log = limit_rate(logging.getLogger(__name__))

KEY_IS_NULL = "key cannot be null"
"""Kafka's message for a call without a key."""


ENTRIES = "entries"
"""The name of the only part of most stores."""


class TypedStore:
    """A store of objects over a store of bytes (implements StateStore and EngineStore).

    Kafka class: WrappedStateStore.

    Args:
        serdes: the serdes of the store.
        buffer: the uncommitted writes.
        cache: the record cache over `buffer`, if any.
        persistent: whether the base outlives the process.
        logged: whether writes go to a changelog.
    """

    _calls: ClassVar[Mapping[str, str]] = {"flush": "flush"}
    """Kafka's operation for a call of each method, for metrics."""
    _column_calls: ClassVar[Mapping[str, str]] = {}
    """The same for methods whose first argument is a column of keys: one operation per key."""
    kind_name: ClassVar[str] = ""
    """The user's term for a store of this class, before the word "store"."""

    def __init__(
        self,
        serdes: StateSerdes,
        buffer: BufferedBytesStore,
        cache: CachingBytesStore | None,
        persistent: bool,
        logged: bool = False,
    ) -> None:
        self._logged = logged
        self._serdes = serdes
        self._name = serdes.store_name
        self._buffer = buffer
        self._cache = cache
        self._below: BytesStore = buffer if cache is None else cache
        self._persistent = persistent
        self._open = True
        self._exposed: Self | None = None
        self._of_operators: Self | None = None
        self._reporting: tuple[TaskObserver, str] | None = None

    # ---------- interface for users

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

    def num_keys(self) -> int:
        """Return the number of entries, without those that are only in the record cache (Kafka metric: num-keys)."""
        return self._buffer.approximate_num_entries()

    def flush(self) -> None:
        """Write cached entries through and forward them."""
        self._below.flush()

    def close(self) -> None:
        """Close the store; uncommitted writes are discarded. Later calls raise InvalidStateStoreError."""
        self._open = False
        if self._exposed is not None:
            self._exposed._open = False
        if self._cache is not None:
            self._cache.close()
        self._buffer.clear()

    def read_only(self, isolation_level: IsolationLevel) -> Self:
        """Return this store: its task sees its own writes at each isolation level (KIP-892).

        Raises TypeError for any other value.
        """
        checked_level(isolation_level)
        return self

    def approximate_num_uncommitted_bytes(self) -> int:
        """Return the approximate size (bytes) of the writes since the last commit, without those in a record cache."""
        return self.uncommitted_bytes()

    def _typed_stores(self) -> list[Self]:
        return [self]

    # ---------- interface for tasks and processors

    def exposed(self) -> Self:
        """Return the store for users' processors and queries: with the headers that operators do not see."""
        serdes = self._serdes.exposed()
        if serdes is self._serdes:
            return self
        if self._exposed is None:
            self._exposed = self._view()
            self._exposed._serdes, self._exposed._of_operators = serdes, self
            if self._reporting is not None:
                self._exposed.report_calls(*self._reporting)
        return self._exposed

    def of_operators(self) -> Self:
        """Return the store as operators see it; the opposite of `exposed`."""
        return self._of_operators or self

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
        """Whether the store keeps headers with the values."""
        return self._serdes.with_headers

    @property
    def kind(self) -> str:
        """The user's term for such a store, such as "timestamped key-value store"."""
        timestamped = "timestamped " if self.timestamped else ""
        return f"{timestamped}{self.kind_name} store{' with headers' if self.with_headers else ''}"

    @property
    def uses_headers(self) -> bool:
        """Whether a serde of the store uses the headers of the record being processed."""
        return self._serdes.uses_headers

    @property
    def logged(self) -> bool:
        """Whether writes go to a changelog, which requires the record that causes them."""
        return self._logged

    @property
    def cached(self) -> bool:
        """Whether the flush listener, not the writing processor, forwards updates."""
        return self._cache is not None

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> None:
        """Pass each entry leaving the record cache to `listener`; no effect without a cache."""
        if self._cache is not None:
            self._cache.set_flush_listener(listener, send_old_values)

    def set_expiry_listener(self, listener: FlushListener, send_old_values: bool) -> None:
        """Pass each deleted expired entry to `listener`; no effect with a cache, or without a time to live."""
        if isinstance(self._buffer, ExpiringStore):
            self._buffer.set_expiry_listener(listener, send_old_values)

    def uncommitted_bytes(self) -> int:
        """Return the approximate memory size (bytes) of the uncommitted writes."""
        return self._buffer.uncommitted_bytes()

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the uncommitted writes (after `flush`), None for a delete."""
        return self._buffer.changes()

    def clear_changes(self) -> None:
        """Forget the uncommitted writes, which the base now has."""
        self._buffer.clear()

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Int64Array) -> None:
        """Write the entries of changelog records of `timestamps` (ms), in order; None deletes."""
        self._buffer.put_many(keys, values)

    def deserialize_keys(self, keys: list[bytes], headers: Sequence[Headers] | None = None) -> list[Any]:
        """Deserialise each key; raises the errors of the serde.

        headers: one per key, for the serde.
        """
        return self._serdes.deserialize_keys(keys, headers)

    def deserialize_columns(
        self, values: list[bytes | None], headers: Sequence[Headers] | None = None
    ) -> tuple[list[Any], Int64Array]:
        """Deserialise each value; None stays None. Returns the values and their timestamps (ms).

        A missing timestamp is NO_TIMESTAMP. Raises the errors of the serde.

        headers: one per value, for the serde.
        """
        return self._serdes.deserialize_values(values, headers)

    def fresh(self, value: Any) -> Any:
        """Return `value`, about to be written, as the store will return it."""
        return self._serdes.fresh(value)

    def reads_back(self, kind: type) -> bool:
        """Return whether values of type `kind` survive the store's round trip unchanged."""
        return kind in self._serdes.value_serde.unchanging_types

    @property
    def repeatable(self) -> bool:
        """Whether a value read from the store survives being written again unchanged."""
        return self._serdes.value_serde.repeatable

    def report_calls(self, observer: TaskObserver, scope: str) -> None:
        """Report the duration of every later call to `observer`; an iterator lasts until its end.

        `scope` is Kafka's, such as rocksdb-window. The reporting methods are set on this instance instead of its class:
        other stores stay as fast.
        """
        self._reporting = observer, scope
        for calls, reporting in ((self._calls, _reporting), (self._column_calls, _reporting_each_key)):
            for method, operation in calls.items():
                began = partial(observer.call_began, scope, self._name, operation)
                opened = partial(observer.iterator_opened, scope, self._name)
                vars(self)[method] = reporting(getattr(self, method), began, opened)

    def beneath_cache(self) -> Self:
        """Return a view of the store below the record cache, or unchanged without a cache."""
        beneath = self._view()
        beneath._cache = None
        beneath._below = self._buffer
        return beneath

    def for_readers(self, guard: Guard) -> Self:
        """Return a view of the store for threads other than its task's.

        Each read happens within the context manager of `guard`.
        """
        return self.over(lambda part: self.reads(part, guard))

    def reads(self, part: str, guard: Guard) -> GuardedReads:
        """Return a part of the store's bytes, by its name in `over`, for other threads."""
        return GuardedReads(self._parts()[part], guard)

    def over(self, reads: Callable[[str], GuardedReads]) -> Self:
        """Return a view of the store for readers.

        reads: returns the bytes to read, by the name of the part; most kinds have one part, ENTRIES.
        """
        shown = self._view()
        shown._below = cast("BytesStore", reads(ENTRIES))  # readers only read
        return shown

    def _parts(self) -> Mapping[str, Any]:
        """Return the stores of bytes for readers, by name."""
        return {ENTRIES: self._below}

    # ---------- helpers

    def _view(self) -> Self:
        """Return a copy over the same bytes that reports no calls."""
        view = copy(self)
        for method in (*self._calls, *self._column_calls):
            vars(view).pop(method, None)  # a reporting method belongs to the original store
        return view

    def _serialize_key(self, key: Any, refusal: str = KEY_IS_NULL) -> bytes:
        if key is None or not self._open:
            self._refuse(refusal)
        return self._serdes.serialize_key(key)

    def _serialize_bounds(self, from_key: Any, to_key: Any) -> tuple[bytes | None, bytes | None] | None:
        """Serialise both inclusive bounds; None leaves an end open. Returns None for an empty range."""
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
        """Raise InvalidStateStoreError if the store is closed, otherwise TypeError.

        The TypeError has Kafka's text for a null argument.
        """
        if not self._open:
            raise InvalidStateStoreError(
                f"Store {self._name!r} is not open: its task was closed or has moved. Get the store again in init()."
            )
        error = TypeError(refusal)
        error.add_note(f"Store {self._name!r} received the key None: drop such records, or give them another key.")
        raise error


class TypedIterator:
    """Iterates over a store's entries as KeyValue (implements KeyValueIterator; Kafka class:
    TypedKeyValueStoreIterator).

    Args:
        store: the store.
        entries: its entries, as bytes.
        key_of: deserialises a key.
        value_of: deserialises a value.
    """

    __slots__ = ("_ended", "_entries", "_key_of", "_next", "_open", "_store", "_value_of")

    def __init__(
        self,
        store: TypedStore,
        entries: Iterator[tuple[bytes, bytes]],
        key_of: Callable[[bytes], Any],
        value_of: Callable[[bytes], Any],
    ) -> None:
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
        """Return the next key without consuming it; raises StopIteration at the end."""
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
    """Return `method`, with calls reported to `began` and their ends to its result.

    If a call returns an iterator, `opened` and its result are informed as well.
    """

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
    """Like `_reporting`, for a method with a key column first and no iterator as result."""

    def call(keys: Sequence[bytes], *args: Any) -> Any:
        ended = began()
        result = method(keys, *args)
        ended(len(keys))
        return result

    return call
