"""The parked records of an application, for its operators: one row per key, with the first record that waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from penstock.application.store_entries import EntrySelection, Queried, StoreEntries
from penstock.config import StreamsConfig
from penstock.errors import UnknownStateStoreError
from penstock.processor.waiting_records import WaitingRecord, unpack_waiting
from penstock.record import Headers
from penstock.serdes.sequenced_key import SequencedKeySerde
from penstock.state.api import StoreBuilder
from penstock.state.build import store_serde
from penstock.topic_names import changelog_name


@dataclass(frozen=True)
class ParkedKey:
    """A key whose records are parked.

    Args:
        store: the name of the store.
        partition: of the store.
        key: as an object, or as bytes if its serde cannot read it; None for a null key.
        records: the number of its records that wait.
        attempts: the number of failed attempts of the first record.
        due_ms: the time of the next attempt, in ms since the epoch.
        failure: the first error of the first record.
        timestamp: of the first record, in ms since the epoch.
        topic: of the input record of the first record; None if unknown.
        source_partition: of the input record; -1 if unknown.
        offset: of the input record; -1 if unknown.
    """

    store: str
    partition: int | None
    key: Any
    records: int
    attempts: int
    due_ms: int
    failure: str
    timestamp: int
    topic: str | None
    source_partition: int
    offset: int


class ParkedRecords:
    """Reads the stores of parked records.

    Args:
        state: the source of the entries.
        stores: the builders of its stores, by name.
        config: of the application.
    """

    def __init__(self, state: Queried, stores: Mapping[str, StoreBuilder], config: StreamsConfig) -> None:
        self._entries = StoreEntries(state, stores, config)
        self._config = config
        self._stores = {
            name: builder
            for name, builder in sorted(stores.items())
            if isinstance(builder.key_serde, SequencedKeySerde)
        }

    def keys(self, store: str | None = None) -> Iterator[ParkedKey]:
        """Yield the parked keys of a store, or of all stores, in the order of arrival of their first records.

        Raises UnknownStateStoreError if there is no such store of parked records.
        """
        if store is not None and store not in self._stores:
            raise UnknownStateStoreError(
                f"Store {store} is no store of parked records: expected one of {', '.join(self._stores) or 'none'}. An "
                "operator has one if it is given a Park as on_error."
            )
        for name in self._stores if store is None else (store,):
            yield from self._of_store(name)

    def _of_store(self, name: str) -> Iterator[ParkedKey]:
        firsts: dict[tuple[Any, ...], WaitingRecord] = {}
        counts: dict[tuple[Any, ...], int] = {}
        with closing(self._entries.of(name, EntrySelection())) as entries:
            for entry in entries:
                record = unpack_waiting(entry["value"], name)
                partition = entry["partition"]
                line = (partition, entry["key"]) if record.key is None else (partition, None, record.key)
                firsts.setdefault(line, record)
                counts[line] = counts.get(line, 0) + 1
        for line, first in firsts.items():
            yield ParkedKey(
                name,
                line[0],
                self._readable(name, first.key, first.headers),
                counts[line],
                first.attempts,
                first.due,
                first.failure,
                first.timestamp,
                first.topic,
                first.partition,
                first.offset,
            )

    def _readable(self, store: str, key: bytes | None, headers: Headers) -> Any:
        """Return a key as an object, or its bytes if the serde cannot read them."""
        serde = store_serde(self._stores[store], "key", self._config)
        if key is None or not isinstance(serde, SequencedKeySerde) or serde.inner is None:
            return key
        topic = changelog_name(self._config["application.id"] or "", store)
        try:
            return serde.inner.deserialize(topic, key, headers)
        except Exception:  # any error of a serde: the bytes still identify the key
            return key
