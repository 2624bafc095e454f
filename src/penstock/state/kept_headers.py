"""Which stores keep headers with their values, and the bytes of their entries with headers and without.

A changelog holds the headers of an entry as those of its record, so it fits either kind of store. The entries of a base
or a segment fit one kind. The buffer of `suppress` and the windows of a join of streams read both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from penstock.config import StreamsConfig
from penstock.state.api import BaseView, StoreBuilder
from penstock.state.headers_layout import NO_HEADERS, without_headers
from penstock.state.suppliers import (
    KeyValueBytesStoreSupplier,
    SessionBytesStoreSupplier,
    TimeOrderedBufferBytesStoreSupplier,
    WindowBytesStoreSupplier,
)

_WITH_HEADERS: Final = ", with headers"


def is_in_memory(builder: StoreBuilder, config: StreamsConfig) -> bool:
    """Return whether the base of a store is in memory."""
    given = builder.in_memory
    return config["dsl.store.suppliers.class"] == "in_memory" if given is None else given


def keeps_headers(builder: StoreBuilder, config: StreamsConfig) -> bool:
    """Return whether a store keeps headers with its values; for stores of joins, see `keeps_headers_of_duplicates`."""
    if isinstance(builder.supplier, TimeOrderedBufferBytesStoreSupplier):
        return _wants_headers(config)  # Kafka holds it in memory, and keeps headers even so
    if builder.with_headers is not None:
        return builder.with_headers
    match builder.supplier:
        case (
            KeyValueBytesStoreSupplier(keeps_headers=kept)
            | WindowBytesStoreSupplier(keeps_headers=kept)
            | SessionBytesStoreSupplier(keeps_headers=kept)
        ):
            wanted = _wants_headers(config) and not is_in_memory(builder, config)
            return wanted if kept is None else kept
        case _:
            return False


def keeps_headers_of_duplicates(builder: StoreBuilder, config: StreamsConfig) -> bool:
    """Return whether this is a window store of a join that keeps headers: as in Kafka, in memory always."""
    match builder.supplier:
        case WindowBytesStoreSupplier(retain_duplicates=True, keeps_headers=kept) if builder.logs_headers:
            return is_in_memory(builder, config) or (_wants_headers(config) if kept is None else kept)
        case _:
            return False


def begins_with(builder: StoreBuilder, config: StreamsConfig) -> tuple[bool, bool]:
    """Return whether the values in the base of a store begin with headers, and whether a timestamp follows.

    For stores of keys and values, windows and sessions.
    """
    match builder.supplier:
        case KeyValueBytesStoreSupplier(keeps_timestamps=False):
            return False, False
        case SessionBytesStoreSupplier():
            return keeps_headers(builder, config), False
        case _:
            return builder.timestamped and keeps_headers(builder, config), builder.timestamped


def _wants_headers(config: StreamsConfig) -> bool:
    wanted: bool = config["dsl.store.format"] == "headers"
    return wanted


# ---------- layouts


def store_layout(builder: StoreBuilder, config: StreamsConfig) -> str:
    """Return the layout of a store with this configuration; entries in another layout are unreadable."""
    return layout_with_headers(builder.layout, _begins_with_headers(builder, config))


def _begins_with_headers(builder: StoreBuilder, config: StreamsConfig) -> bool:
    """Return whether the values of a store of the DSL begin with headers; the kind of other stores says so."""
    match builder.supplier:
        case KeyValueBytesStoreSupplier(keeps_timestamps=True) | WindowBytesStoreSupplier(retain_duplicates=False):
            has_place = builder.timestamped
        case SessionBytesStoreSupplier():
            has_place = True
        case _:
            has_place = False
    return has_place and builder.with_headers is None and keeps_headers(builder, config)


def has_headers(layout: str) -> bool:
    """Return whether the values of a store of the DSL with this layout begin with headers."""
    return layout.endswith(_WITH_HEADERS)


def layout_with_headers(layout: str, with_headers: bool) -> str:
    """Return `layout` for values that begin with headers, or for those that do not."""
    return layout.removesuffix(_WITH_HEADERS) + (_WITH_HEADERS if with_headers else "")


class HeadersView:
    """Committed entries of a store whose values get empty headers or lose theirs (implements BaseView).

    Args:
        below: the entries as they are.
        with_headers: whether the values get headers.
    """

    def __init__(self, below: BaseView, with_headers: bool) -> None:
        self._below = below
        self._with_headers = with_headers

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`."""
        value = self._below.get(key)
        return None if value is None else self._changed(value)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each of `keys`."""
        return [None if value is None else self._changed(value) for value in self._below.multi_get(keys)]

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with from_key <= key < to_key, in byte order or reversed."""
        return ((key, self._changed(value)) for key, value in self._below.range(from_key, to_key, reverse))

    def approximate_num_entries(self) -> int:
        """Return the approximate number of entries."""
        return self._below.approximate_num_entries()

    def _changed(self, value: bytes) -> bytes:
        return NO_HEADERS + value if self._with_headers else without_headers(value)
