"""A copy of the stores of a task, kept up from the records of their changelog topics (Kafka class:
StoreChangelogReader, ProcessorStateManager).

Free of I/O: the caller reads the records. The base is a copy as well: the topics are the truth. Its stamp says which
stores it holds and up to which offset of each changelog partition, so it changes in one step with the entries.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from penstock.config import StreamsConfig
from penstock.errors import ProcessorStateError
from penstock.record import RecordBatch, TopicPartition
from penstock.state.api import Base, Changes, StoreBuilder
from penstock.state.build import restore_store

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChangelogStamp:
    """What a base holds.

    layouts: of its stores by name. offsets: of each changelog partition the next offset to be applied.
    processor_metadata: what stores and processors remember besides entries. topic_ids: of the topics that the offsets
    belong to, where brokers give ids. inputs: the offsets of the partitions that the task reads, of the commit whose
    state it is; empty if that is not known.
    """

    layouts: Mapping[str, str] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    processor_metadata: Mapping[str, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[TopicPartition, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the stamp as bytes, the same for the same content."""
        content = [self.layouts, _rows(self.offsets), self.processor_metadata, self.topic_ids, _rows(self.inputs)]
        return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)

    @staticmethod
    def decode(data: bytes) -> ChangelogStamp:
        """Return the stamp that `data` was made from."""
        content: list[Any] = orjson.loads(data)
        content += {}, {}  # earlier versions had no inputs, and before that no ids
        layouts, offsets, metadata, ids, inputs = content[:5]
        return ChangelogStamp(layouts, _by_partition(offsets), metadata, ids, _by_partition(inputs))


def _rows(offsets: Mapping[TopicPartition, int]) -> list[list[str | int]]:
    return sorted([*partition, offset] for partition, offset in offsets.items())


def _by_partition(rows: Iterable[tuple[str, int, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for topic, partition, offset in rows}


_PARTIAL = ChangelogStamp().encode()
"""Of a base without stores, which no task with state takes for its own."""


def layouts_of(stores: Mapping[str, StoreBuilder]) -> dict[str, str]:
    """Return how the stores lay out their entries, as a stamp has it."""
    return {name: store.layout for name, store in stores.items()}


class ChangelogCopy:
    """Applies the records of changelog partitions to the base of one task."""

    def __init__(
        self,
        stores: Mapping[str, StoreBuilder],
        changelogs: Mapping[str, TopicPartition],
        config: StreamsConfig,
        base: Base,
    ) -> None:
        """Continue with `base`; one that holds other stores is emptied. changelogs: the partition of each store that
        has a changelog."""
        self._stores = stores
        self._changelogs = changelogs
        self._config = config
        self.base = base
        stamp = base.stamp()
        found = None if stamp is None else ChangelogStamp.decode(stamp)
        self._layouts = layouts_of(stores)
        if found is None or found.layouts != self._layouts:
            if found is not None:
                base.clear()
            found = ChangelogStamp(self._layouts)
        self._offsets = dict(found.offsets)
        self._metadata = dict(found.processor_metadata)
        self._before = found.processor_metadata
        self._topic_ids = dict(found.topic_ids)
        self._inputs = dict(found.inputs)

    @property
    def stamp(self) -> ChangelogStamp:
        """What the base holds now."""
        offsets, metadata = dict(self._offsets), dict(self._metadata)
        return ChangelogStamp(self._layouts, offsets, metadata, dict(self._topic_ids), dict(self._inputs))

    @property
    def restored_metadata(self) -> dict[str, int]:
        """What the stores remember otherwise than before their entries were restored."""
        return {name: value for name, value in self._metadata.items() if self._before.get(name) != value}

    def position(self, store: str) -> int:
        """Return the next offset of the changelog of `store` to be applied, 0 if there was none."""
        return self._offsets.get(self._changelogs[store], 0)

    def reached(self, store: str, next_offset: int) -> None:
        """Take that `next_offset` is next for `store`, though no record is before it; the base keeps it with what is
        applied next."""
        self._offsets[self._changelogs[store]] = next_offset

    @property
    def is_empty(self) -> bool:
        """Whether nothing was applied yet."""
        return not self._offsets

    def fill(self, changes: Changes) -> None:
        """Apply a part of a state that does not come from the changelogs. Until `filled` is called, whoever opens the
        base empties it."""
        self.base.apply(changes, _PARTIAL)

    def filled(self, offsets: Mapping[TopicPartition, int], processor_metadata: Mapping[str, int]) -> None:
        """Take what was filled as the state behind all records before `offsets`."""
        self._offsets.update(offsets)
        self._metadata.update(processor_metadata)
        self._before = dict(processor_metadata)
        self._inputs.clear()
        self.base.apply({}, self.stamp.encode())

    def clear(self) -> None:
        """Forget all entries and begin at the beginning of the changelogs: they no longer have what the base was made
        from."""
        self.base.clear()
        self._offsets.clear()
        self._metadata.clear()
        self._inputs.clear()
        self._before = {}

    def restored_to(self, inputs: Mapping[TopicPartition, int]) -> None:
        """Take that the base has the state that belongs to the committed offsets `inputs` of the task."""
        if self._inputs != inputs:
            self._inputs = dict(inputs)
            self.base.apply({}, self.stamp.encode())

    def continue_with(self, topic_ids: Mapping[str, str]) -> None:
        """Go on with the topics that have these ids now. A copy is emptied if one of its topics was deleted and created
        again: the records at the offsets behind it do not belong to it, however many there are."""
        if any(topic_ids.get(topic, known) != known for topic, known in self._topic_ids.items()):
            stores = ", ".join(self._layouts)
            _log.warning("The copy of %s is emptied and restored again: its topics were created again.", stores)
            self.clear()
        self._topic_ids.update(topic_ids)

    def apply(self, store: str, batch: RecordBatch, next_offset: int) -> None:
        """Apply records of the changelog of `store`, after which `next_offset` is next.

        Raises ProcessorStateError for a record that is not of such a store.
        """
        if None in batch.keys:
            batch = batch.take(np.array([row for row, key in enumerate(batch.keys) if key is not None], np.int64))
        try:
            changes = restore_store(self._stores[store], self._config, self.base.view(store), self._metadata, batch)
        except ProcessorStateError as error:
            changelog = self._changelogs[store]
            error.add_note(
                f"Store {store} is restored from topic {changelog.topic}, partition {changelog.partition}, before "
                f"offset {next_offset}. If the program has changed the kind of the store, give it another name, or "
                "start over with penstock reset FILE."
            )
            raise
        self._offsets[self._changelogs[store]] = next_offset
        self._inputs.clear()
        self.base.apply({store: changes}, self.stamp.encode())
