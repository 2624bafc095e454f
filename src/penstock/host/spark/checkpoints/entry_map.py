"""Rewrites single entries of a store by a function of the user, and counts what it has done.

Windows, sessions, timestamps and headers stay as they are. No I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.plan.user_lines import failing_line, function_line
from penstock.record import Headers
from penstock.serdes import Serde
from penstock.serdes.format import are_alike, format_of
from penstock.serdes.subscription import SubscriptionWrapperSerde
from penstock.state.api import StoreBuilder
from penstock.state.build import store_serde
from penstock.state.headers_layout import unpack_headers
from penstock.state.kept_headers import begins_with
from penstock.state.layouts import TIMESTAMP_SIZE, session_of, window_start_of
from penstock.state.record_keys import sizes_around_key
from penstock.state.suppliers import (
    KeyValueBytesStoreSupplier,
    SessionBytesStoreSupplier,
    TimeOrderedKeyValueBytesStoreSupplier,
    WindowBytesStoreSupplier,
)
from penstock.topic_names import changelog_name

MapFunction = Callable[[Any, Any], Any]
"""Returns the new key and value of an entry as a pair; None, or a value of None, deletes the entry."""

_FIRST_FAILURES: Final = 10


@dataclass(frozen=True)
class MapFailure:
    """An entry that cannot be rewritten: its task, its key as text, and the reason."""

    task: str
    key: str
    reason: str


@dataclass(frozen=True)
class MappedStore:
    """The result for one store.

    Args:
        name: of the store.
        entries: number of entries that were read.
        changed: of those, the entries with another key or value.
        deleted: the entries that the function has deleted.
        moved: the entries that go to another task.
        failed: the entries that cannot be rewritten.
        failures: the first of them.
    """

    name: str
    entries: int = 0
    changed: int = 0
    deleted: int = 0
    moved: int = 0
    failed: int = 0
    failures: tuple[MapFailure, ...] = ()


class StoreSerdes:
    """The serdes of a store under a configuration, and the topic that they receive.

    Args:
        builder: the store.
        config: of its program.
    """

    def __init__(self, builder: StoreBuilder, config: StreamsConfig) -> None:
        self.key: Serde = store_serde(builder, "key", config)
        self.value: Serde = store_serde(builder, "value", config)
        self.topic = changelog_name(config["application.id"] or "", builder.name)
        self.formats = [format_of(builder.key_serde), format_of(builder.value_serde)]
        """The formats in the shape of the program, which does not name those of default serdes."""


class EntryReader:
    """Reads the entries of one store.

    Args:
        builder: the store.
        config: of its program.
        has_headers: whether the values begin with headers; None if they do as the program writes them.
    """

    def __init__(self, builder: StoreBuilder, config: StreamsConfig, has_headers: bool | None = None) -> None:
        self.serdes = StoreSerdes(builder, config)
        self._supplier = builder.supplier
        self._sizes = sizes_around_key(builder.supplier)
        with_headers, self._has_timestamp = begins_with(builder, config)
        self._has_headers = with_headers if has_headers is None else has_headers

    def key_parts(self, key: bytes) -> tuple[bytes, bytes, bytes]:
        """Return the time segment of an entry's key, its record key, and its suffix."""
        before, after = self._sizes
        end = len(key) - after
        return key[:before], key[before:end], key[end:]

    def head(self, value: bytes) -> tuple[Headers, int]:
        """Return the headers of a value, and the offset after them and its timestamp."""
        headers, at = unpack_headers(value) if self._has_headers else ((), 0)
        return headers, at + TIMESTAMP_SIZE * self._has_timestamp

    def read(self, key: bytes, value: bytes) -> tuple[Any, Any]:
        """Return the key and the value of an entry; raises the errors of the serdes."""
        (_, plain, _), (headers, at) = self.key_parts(key), self.head(value)
        return (
            self.serdes.key.deserialize(self.serdes.topic, plain, headers),
            self.serdes.value.deserialize(self.serdes.topic, value[at:], headers),
        )

    def key_text(self, key: bytes) -> str:
        """Return the key of an entry as the program shows it, or as bytes if unreadable, and its window or session."""
        plain = self.key_parts(key)[1]
        try:
            text = f"{self.serdes.key.deserialize(self.serdes.topic, plain)!r:.200}"
        except Exception:  # a user's serde may raise anything
            text = f"{plain!r:.200}"
        match self._supplier:
            case WindowBytesStoreSupplier():
                return f"{text} at {window_start_of(key)} ms"
            case SessionBytesStoreSupplier():
                end, start = session_of(key)
                return f"{text} from {start} to {end} ms"
            case _:
                return text


class EntryMap:
    """Rewrites the entries of one store.

    Args:
        function: of the user.
        builder: the store in the program of the savepoint.
        config: of that program.
        written: the serdes that write the entries.

    Raises:
        StreamsError: the entries of this kind of store cannot be rewritten.
    """

    def __init__(
        self, function: MapFunction, builder: StoreBuilder, config: StreamsConfig, written: StoreSerdes
    ) -> None:
        _check_kind(builder)
        self.written = written
        self.has_new_keys = False
        """Whether an entry got another key, so that two entries may get the same one."""
        self._name = builder.name
        self._counts: Counter[str] = Counter()
        self._failures: list[MapFailure] = []
        self._function = function
        self._reader = EntryReader(builder, config)
        self._same_keys = are_alike(self._reader.serdes.key, written.key)

    def apply(self, key: bytes, value: bytes) -> tuple[bytes, bytes] | None:
        """Return the new key and value of an entry; None deletes it.

        Raises the errors of the function and of the serdes, TypeError if the function returns no pair with a key.
        """
        before, plain, after = self._reader.key_parts(key)
        headers, at = self._reader.head(value)
        old_key, old_value = self._reader.read(key, value)
        result = self._function(old_key, old_value)
        if result is None:
            return None
        if not isinstance(result, tuple) or len(result) != 2 or result[0] is None:
            raise TypeError(
                f"{function_line(self._function)} returned {result!r:.100}: expected a key and a value, or None for an "
                "entry to delete"
            )
        new_key, new_value = result
        if new_value is None:
            return None
        if new_key is not old_key or not self._keeps_key(plain, new_key, headers):
            plain = self.written.key.serialize(self.written.topic, new_key, headers)
        written = self.written.value.serialize(self.written.topic, new_value, headers)
        return before + plain + after, value[:at] + written

    def _keeps_key(self, plain: bytes, key: Any, headers: Headers) -> bool:
        """Return whether the function has returned the object of `plain`, its key, unchanged.

        Then the bytes stay: another program may have written them in another form.
        """
        serde, topic = self._reader.serdes.key, self._reader.serdes.topic
        if not self._same_keys or type(key) in serde.unchanging_types:
            return self._same_keys
        return serde.serialize(topic, serde.deserialize(topic, plain, headers)) == serde.serialize(topic, key)

    @property
    def result(self) -> MappedStore:
        """The result so far."""
        return MappedStore(self._name, **self._counts, failures=tuple(self._failures))

    def count(self, old: tuple[bytes, bytes], new: tuple[bytes, bytes] | None, is_moved: bool) -> None:
        """Count an entry that was rewritten, or deleted."""
        counts = self._counts
        counts["entries"] += 1
        if new is None:
            counts["deleted"] += 1
        elif new != old:
            counts["changed"] += 1
        counts["moved"] += is_moved

    def count_failure(self, task: str, key: bytes, error: Exception) -> None:
        """Count an entry of `task` that could not be rewritten."""
        self._counts["entries"] += 1
        self._counts["failed"] += 1
        if len(self._failures) < _FIRST_FAILURES:
            line = failing_line(error)
            reason = f"{type(error).__name__}: {error}" + ("" if line is None else f" ({line})")
            self._failures.append(MapFailure(task, self._reader.key_text(key), reason))


def has_mappable_entries(builder: StoreBuilder) -> bool:
    """Return whether the entries of a store are single values of keys, windows or sessions, of the user's serdes."""
    match builder.supplier:
        case TimeOrderedKeyValueBytesStoreSupplier() | WindowBytesStoreSupplier(retain_duplicates=True):
            return False
        case KeyValueBytesStoreSupplier() | WindowBytesStoreSupplier() | SessionBytesStoreSupplier():
            return not isinstance(builder.value_serde, SubscriptionWrapperSerde)
        case _:
            return False


def _check_kind(builder: StoreBuilder) -> None:
    """Raise StreamsError for a store that Penstock fills, or whose entries are not single values of a key."""
    if builder.source is not None:
        raise StreamsError(
            f"Store {builder.name} has the topic {builder.source.topic} as its changelog, so its entries are the "
            "records of that topic: write records with other values there, or turn topology.optimization off."
        )
    if not has_mappable_entries(builder):
        raise StreamsError(
            f"Store {builder.name} is of the kind {builder.kind}, or belongs to a join: --map rewrites stores of keys "
            "and values, of windows and of sessions."
        )
