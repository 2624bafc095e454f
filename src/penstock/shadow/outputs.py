"""Reads the outputs and stores of a version, as rows of a comparison, and shows them with their serdes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final, NamedTuple

import msgspec

from penstock.application.store_entries import Entry, EntrySelection, StoreEntries
from penstock.client.api import Admin, Fetcher
from penstock.errors import InvalidStateStoreError, StreamsError, UnsupportedOperationError
from penstock.host.open import open_durable_state
from penstock.record import AggregationWithHeaders, Headers, TopicPartition
from penstock.serdes import Serde
from penstock.serdes.windowed import WindowedSerde
from penstock.shadow.comparison import Difference, Recorded
from penstock.shadow.content import Content, ContentRow, Pair, Side
from penstock.shadow.version import ShadowVersion
from penstock.state.api import StoreBuilder
from penstock.task.standby_task import empty_store

_FAILURE_DETAILS: Final = "__streams.errors."
"""The headers of dead letters with tracebacks and places, which depend on the program's files."""

_STABLE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.05
_TIMES: Final = ("window_start", "window_end")


class PartSerdes(NamedTuple):
    """The serdes of a topic or a store, None if unknown. topic: the name that they receive."""

    topic: str
    key: Serde | None
    value: Serde | None


def read_topic(
    version: ShadowVersion, topic: str, content: Content, side: Side, admin: Admin, fetcher: Fetcher
) -> None:
    """Add the records of an output topic to `content`. topic: its name in the program."""
    physical = version.output_topics(admin)[topic]
    partitions = [TopicPartition(physical, number) for number in range(admin.topics()[physical])]
    for partition, end in sorted(_stable_ends(admin, partitions).items()):
        if end:
            content.add(f"topic {topic}", side, _records(fetcher, partition, end))


def _stable_ends(admin: Admin, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the ends of the committed records.

    A broker confirms a transaction before its marker is in every partition. Raises StreamsError if one stays open.
    """
    deadline = time.monotonic() + _STABLE_SECONDS
    while True:
        committed = admin.end_offsets(partitions, read_committed=True)
        ends = admin.end_offsets(partitions)
        if committed == ends:
            return ends
        if time.monotonic() > deadline:
            open_ones = ", ".join(f"{each}" for each, end in ends.items() if committed[each] != end)
            raise StreamsError(
                f"A transaction is still open after {_STABLE_SECONDS:.0f} s in {open_ones}. Another program writes to "
                "this topic: find it with `penstock transactions list`."
            )
        time.sleep(_LOOK_SECONDS)


def _records(fetcher: Fetcher, partition: TopicPartition, end: int) -> Iterator[ContentRow]:
    for batch in fetcher.fetch(partition, 0, end, read_committed=True):
        rows = zip(batch.keys, batch.timestamps.tolist(), batch.values, batch.header_column(), strict=True)
        for key, timestamp, value, headers in rows:
            yield ContentRow(key, timestamp, value, _encoded(headers))


def _encoded(headers: Headers) -> bytes:
    kept = [each for each in headers if not each[0].startswith(_FAILURE_DETAILS)]
    return msgspec.msgpack.encode(kept) if kept else b""


def topic_difference(pair: Pair, old: PartSerdes, new: PartSerdes) -> Difference:
    """Return a difference between records, deserialised."""
    sides = zip(pair, (old, new), strict=True)
    known, serdes = next((row, each) for row, each in sides if row is not None)
    return Difference(_read(serdes.key, serdes.topic, known.key), _recorded(pair.old, old), _recorded(pair.new, new))


def _recorded(row: ContentRow | None, serdes: PartSerdes) -> Recorded | None:
    if row is None:
        return None
    headers = msgspec.msgpack.decode(row.extra, type=list[tuple[str, bytes | None]]) if row.extra else []
    return Recorded(_read(serdes.value, serdes.topic, row.value), row.timestamp, tuple(headers))


def _read(serde: Serde | None, topic: str, data: bytes | None) -> Any:
    if data is None or serde is None:
        return data
    try:
        return serde.deserialize(topic, data)
    except Exception:  # a user's serde may raise anything
        return data


# ---------------------------------------- stores


def compared_stores(old: ShadowVersion, new: ShadowVersion) -> tuple[list[str], dict[str, str]]:
    """Return the stores of both versions, and the reason for each store that only one has.

    Global stores are copies of topics, so they are left out.
    """
    stores = [set(_stores(version)) for version in (old, new)]
    alone = dict.fromkeys(stores[0] - stores[1], "only the old version has it")
    alone |= dict.fromkeys(stores[1] - stores[0], "only the new version has it")
    return sorted(stores[0] & stores[1]), dict(sorted(alone.items()))


def _stores(version: ShadowVersion) -> dict[str, StoreBuilder]:
    return {name: builder for part in version.built.subtopologies for name, builder in part.stores.items()}


def read_stores(version: ShadowVersion, names: list[str], content: Content, side: Side) -> dict[str, str]:
    """Add the entries of stores to `content`, and return the reason for each store that cannot be read."""
    unread = {}
    config = version.config.overridden(version.built.config_overrides)
    with open_durable_state(version.topology, config) as state:
        entries = StoreEntries(state, state.stores(), config)
        for name in names:
            codec = StoreCodec(version, name)
            try:
                with closing(entries.of(name, EntrySelection())) as found:
                    content.add(f"store {name}", side, map(codec.row, found))
            except (InvalidStateStoreError, UnsupportedOperationError) as error:
                unread[name] = str(error)
    return unread


class StoreCodec:
    """Converts the entries of a store to rows and back.

    Args:
        version: the version with the store.
        name: of the store.
    """

    def __init__(self, version: ShadowVersion, name: str) -> None:
        config = version.config.overridden(version.built.config_overrides)
        store: Any = empty_store(_stores(version)[name], config)
        key = getattr(store, "key_serde", None)
        # An entry has the times of a windowed key apart, whatever the kind of its store.
        key = key.inner if isinstance(key, WindowedSerde) else key
        self._serdes = PartSerdes(name, key, getattr(store, "value_serde", None))

    def row(self, entry: Entry) -> ContentRow:
        """Return an entry as a row; its timestamp is a part of the content."""
        times = [entry.get(name) for name in _TIMES]
        key = msgspec.msgpack.encode([*times, self._written(self._serdes.key, entry["key"])])
        value = entry["value"]
        if isinstance(value, AggregationWithHeaders):  # headers of entries are not compared
            value = value.aggregation
        return ContentRow(
            key, 0, self._written(self._serdes.value, value), msgspec.msgpack.encode(entry.get("timestamp"))
        )

    def difference(self, pair: Pair) -> Difference:
        """Return a difference between entries, deserialised."""
        known = next(row for row in pair if row is not None)
        *times, data = msgspec.msgpack.decode(known.key or b"", type=tuple[int | None, int | None, bytes])
        key = _read(self._serdes.key, self._serdes.topic, data)
        windows = {name: at for name, at in zip(_TIMES, times, strict=True) if at is not None}
        return Difference({"key": key, **windows} if windows else key, self._side(pair.old), self._side(pair.new))

    def _side(self, row: ContentRow | None) -> Recorded | None:
        if row is None:
            return None
        timestamp = msgspec.msgpack.decode(row.extra, type=int | None)
        return Recorded(_read(self._serdes.value, self._serdes.topic, row.value), timestamp)

    def _written(self, serde: Serde | None, value: Any) -> bytes | None:
        return None if value is None or serde is None else serde.serialize(self._serdes.topic, value)
