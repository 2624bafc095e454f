"""The parked records of an application, for its operators: rows, and requests about them.

A row is a key, with the first of its records that wait. A request is a record for the application (`parked_requests`);
nothing here writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.application.store_entries import EntrySelection, Queried, StoreEntries
from penstock.config import StreamsConfig
from penstock.errors import UnknownStateStoreError
from penstock.plan.subtopology import BuiltTopology
from penstock.processor.parked_requests import ParkedAction, ParkedRequest
from penstock.processor.waiting_records import WaitingRecord, unpack_waiting
from penstock.record import Headers
from penstock.serdes.sequenced_key import SequencedKeySerde, split_sequenced_key
from penstock.state.api import StoreBuilder
from penstock.state.build import store_serde
from penstock.topic_names import changelog_name


def parked_stores(topology: BuiltTopology) -> frozenset[str]:
    """Return the names of the stores of parked records; those of calls, which wait for their answers, are others."""
    return frozenset(store for spec in topology.subtopologies for store in spec.requests_topics.values())


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
        bytes: the size of its records in the store.
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
    bytes: int


class PartitionRequest(NamedTuple):
    """A request for one partition of a store of parked records.

    Args:
        partition: of the store, and of the topic with requests.
        request: the request.
        keys: the number of keys that it concerns.
        records: the number of their records.
    """

    partition: int
    request: ParkedRequest
    keys: int
    records: int


@dataclass
class _Line:
    """The records of one key that wait, in one partition."""

    partition: int | None
    first: WaitingRecord
    numbers: list[int] = field(default_factory=list)
    bytes: int = 0


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
        if store is not None:
            self._check(store)
        for name in self._stores if store is None else (store,):
            for line in self._lines(name):
                first = line.first
                yield ParkedKey(
                    name,
                    line.partition,
                    self._readable(name, first.key, first.headers),
                    len(line.numbers),
                    first.attempts,
                    first.due,
                    first.failure,
                    first.timestamp,
                    first.topic,
                    first.partition,
                    first.offset,
                    line.bytes,
                )

    def requests(
        self, store: str, action: ParkedAction, chosen: Callable[[Any], bool] | None = None
    ) -> list[PartitionRequest]:
        """Return a request for each partition with parked records of chosen keys.

        Args:
            store: the name of the store.
            action: what becomes of the records that wait now.
            chosen: returns whether a key, as in `ParkedKey`, is chosen; None for all keys.

        Raises:
            UnknownStateStoreError: there is no such store of parked records.
        """
        self._check(store)
        by_partition: dict[int, list[_Line]] = {}
        for line in self._lines(store):
            first = line.first
            if chosen is None or chosen(self._readable(store, first.key, first.headers)):
                by_partition.setdefault(line.partition or 0, []).append(line)
        return [
            PartitionRequest(
                partition,
                ParkedRequest(
                    action,
                    max(number for line in lines for number in line.numbers),
                    None if chosen is None else tuple(dict.fromkeys(line.first.key for line in lines)),
                ),
                len(lines),
                sum(len(line.numbers) for line in lines),
            )
            for partition, lines in sorted(by_partition.items())
        ]

    def _check(self, store: str) -> None:
        """Raise UnknownStateStoreError unless `store` is a store of parked records."""
        if store not in self._stores:
            raise UnknownStateStoreError(
                f"Store {store} is no store of parked records: expected one of {', '.join(self._stores) or 'none'}. An "
                "operator has one if it is given a Park as on_error."
            )

    def _lines(self, name: str) -> list[_Line]:
        """Return the lines of a store, in the order of arrival of their first records."""
        lines: dict[tuple[Any, ...], _Line] = {}
        with closing(self._entries.of(name, EntrySelection())) as entries:
            for entry in entries:
                record = unpack_waiting(entry["value"], name)
                partition, (number, _) = entry["partition"], split_sequenced_key(entry["key"])
                place = (partition, number) if record.key is None else (partition, None, record.key)
                line = lines.setdefault(place, _Line(partition, record))
                line.numbers.append(number)
                line.bytes += len(entry["key"]) + len(entry["value"])
        return list(lines.values())

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
