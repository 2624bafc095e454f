"""The buffer of `suppress` with `dsl.store.format=headers` (KIP-1285).

Kafka class: InMemoryTimeOrderedKeyValueChangeBuffer, with `storeHeaders`. Each value has its origin, the headers and
the timestamp of its record, and its serde receives these headers. The value before the first waiting update was never
in the buffer, so its origin is unknown.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from itertools import repeat
from typing import Any

from penstock.metrics.observer import NOT_OBSERVED, TaskObserver
from penstock.record import Change, ValueAndTimestamp, named_tuples
from penstock.state.api import RecordContext
from penstock.state.buffered_change import (
    UNKNOWN_ORIGIN,
    BufferedChange,
    Origins,
    pack_origin,
    unpack_origin,
    with_origins,
)
from penstock.state.change_logging_store import StoreChangeLog
from penstock.state.state_serdes import BufferWithHeadersStateSerdes
from penstock.state.time_ordered_buffer import TimeOrderedChangeBuffer, WaitingUpdate
from penstock.state.uncommitted import UncommittedStore


class ChangeBufferWithHeaders(TimeOrderedChangeBuffer):
    """Updates that wait for their time, each value with its origin (implements EngineStore).

    Args:
        serdes: the serdes of the store.
        buffer: the uncommitted writes, which contain the updates.
        metadata: contains the counts.
        log: receives the changes of a commit, also a key that came and went since the last one.
        observer: receives the size after each added update.
    """

    def __init__(
        self,
        serdes: BufferWithHeadersStateSerdes,
        buffer: UncommittedStore,
        metadata: MutableMapping[str, int],
        log: StoreChangeLog | None = None,
        observer: TaskObserver = NOT_OBSERVED,
    ) -> None:
        super().__init__(serdes, buffer, metadata, log, observer)
        self._values = serdes
        self._shows_origins = serdes.value_serde.uses_headers

    def serialize_change(self, key: Any, change: Change) -> tuple[bytes, bytes | None, Any]:
        """Return key and new value as bytes, and the old value, for `put_serialized`.

        The old value is bytes unless its serde uses headers, which depend on the waiting update. Raises TypeError for a
        None key, and the errors of the serde.
        """
        if not self._shows_origins:
            return super().serialize_change(key, change)
        serialized, new, _ = super().serialize_change(key, _without_old(change))
        return serialized, new, change.old_value

    def serialize_changes(
        self, keys: Sequence[Any], changes: Sequence[Change]
    ) -> tuple[list[bytes], list[bytes | None], list[Any]]:
        """Return keys and new values as bytes, and old values, as `serialize_change` does."""
        if not self._shows_origins:
            return super().serialize_changes(keys, changes)
        serialized, new, _ = super().serialize_changes(keys, list(map(_without_old, changes)))
        return serialized, new, [change.old_value for change in changes]

    def deserialize_changes(self, updates: Sequence[WaitingUpdate]) -> tuple[list[Any], list[Change]]:
        """Deserialise the keys and changes of `updates`; the serde of each value receives the headers of its origin."""
        if not self._shows_origins:
            return super().deserialize_changes(updates)
        changes = [update.change for update in updates]
        headers = [change.context.headers for change in changes]
        keys = self._serdes.deserialize_keys([update.key for update in updates], headers)
        new, _ = self._serdes.deserialize_values([change.new_value for change in changes], headers)
        earlier = [unpack_origin(_origins(change).old)[0] for change in changes]
        old, _ = self._serdes.deserialize_values([change.old_value for change in changes], earlier)
        return keys, named_tuples(Change, new, old, repeat(True))

    def prior_value(self, key: Any) -> ValueAndTimestamp | None:
        """Return the value that a waiting `key` had before its first update, with the timestamp of its origin.

        Returns None if it had no value or is not waiting.
        """
        update = self._waiting(self._serialize_key(key))
        if update is None:
            return None
        headers, timestamp = unpack_origin(_origins(update.change).prior)
        (value,), _ = self._serdes.deserialize_values([update.change.prior_value], [headers])
        return None if value is None else ValueAndTimestamp(value, timestamp)

    def _change_after(
        self, before: WaitingUpdate | None, new: bytes | None, old: Any, context: RecordContext
    ) -> BufferedChange:
        waited = before is not None and before.change.new_value is not None
        origin = pack_origin(before.change.context) if before is not None and waited else UNKNOWN_ORIGIN
        if self._shows_origins:
            old = self._values.serialize_under(old, unpack_origin(origin)[0])
        old_origin = None if old is None else origin
        if before is None:
            return BufferedChange(old, old, new, context, Origins(old_origin, old_origin))
        prior_origin = _origins(before.change).prior
        return BufferedChange(before.change.prior_value, old, new, context, Origins(prior_origin, old_origin))


def _without_old(change: Change) -> Change:
    """Return `change` without its old value, whose headers are not those of the record."""
    return change._replace(old_value=None)


def _origins(change: BufferedChange) -> Origins:
    """Return the origins of `change`, also if an earlier version of Penstock wrote it without."""
    origins = change.origins or with_origins(change).origins
    assert origins is not None
    return origins
