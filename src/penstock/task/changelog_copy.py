"""A copy of a task's stores, updated from the records of their changelog topics.

Kafka classes: StoreChangelogReader, ProcessorStateManager.

Free of I/O: the caller reads the records. The base is a copy as well: the topics are the source of truth. Its stamp has
the base's stores and the next offset of each changelog partition, so it changes atomically with the entries.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import orjson

from penstock.config import StreamsConfig
from penstock.errors import ProcessorStateError
from penstock.record import RecordBatch, TopicPartition
from penstock.state.api import Base, Changes, StoreBuilder
from penstock.state.build import restore_store
from penstock.state.kept_headers import store_layout

NO_COMMIT: Final = 0
"""The number of a commit that is unknown."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChangelogStamp:
    """The content of a base.

    Args:
        layouts: the layouts of the stores by name.
        offsets: the next offset to be applied of each changelog partition.
        processor_metadata: persistent values of stores and processors besides entries.
        topic_ids: the ids of the topics of the offsets, if brokers provide ids.
        inputs: the offsets of the task's input partitions at the commit of this state; empty if unknown.
        commit: the number of the last commit that changed stores. A punctuation changes them without new input, so the
            offsets alone do not identify a state.
    """

    layouts: Mapping[str, str] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    processor_metadata: Mapping[str, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[TopicPartition, int] = field(default_factory=dict)
    commit: int = NO_COMMIT

    def next_commit(self, now_ms: int) -> int:
        """Return the number of the next commit that changes stores.

        Numbers grow. They begin with the time, so a task that was reset does not use a number again.
        """
        return max(now_ms, self.commit + 1)

    def encode(self) -> bytes:
        """Serialise the stamp; equal content gives equal bytes."""
        offsets, inputs = _rows(self.offsets), _rows(self.inputs)
        content = [self.layouts, offsets, self.processor_metadata, self.topic_ids, inputs, self.commit]
        return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)

    @staticmethod
    def decode(data: bytes) -> ChangelogStamp:
        """Deserialise a stamp."""
        content: list[Any] = orjson.loads(data)
        content += [{}, {}, NO_COMMIT][len(content) - 3 :]  # the oldest versions had no ids, later ones no inputs
        layouts, offsets, metadata, ids, inputs, commit = content[:6]
        return ChangelogStamp(layouts, _by_partition(offsets), metadata, ids, _by_partition(inputs), commit)


def _rows(offsets: Mapping[TopicPartition, int]) -> list[list[str | int]]:
    return sorted([*partition, offset] for partition, offset in offsets.items())


def _by_partition(rows: Iterable[tuple[str, int, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for topic, partition, offset in rows}


_PARTIAL = ChangelogStamp().encode()
"""The stamp of a base without stores; no task with state accepts it."""


def layouts_of(stores: Mapping[str, StoreBuilder], config: StreamsConfig) -> dict[str, str]:
    """Return the layouts of the stores' entries, for a stamp."""
    return {name: store_layout(store, config) for name, store in stores.items()}


class ChangelogCopy:
    """Applies the records of changelog partitions to the base of one task.

    Args:
        stores: the stores by name.
        changelogs: the partition of each store with a changelog.
        config: the configuration.
        base: the base to continue with; emptied if it has other stores.
    """

    def __init__(
        self,
        stores: Mapping[str, StoreBuilder],
        changelogs: Mapping[str, TopicPartition],
        config: StreamsConfig,
        base: Base,
    ) -> None:
        self._stores = stores
        self._changelogs = changelogs
        self._config = config
        self.base = base
        stamp = base.stamp()
        found = None if stamp is None else ChangelogStamp.decode(stamp)
        self._layouts = layouts_of(stores, config)
        if found is None or found.layouts != self._layouts:
            if found is not None:
                base.clear()
            found = ChangelogStamp(self._layouts)
        self._offsets = dict(found.offsets)
        self._metadata = dict(found.processor_metadata)
        self._before = found.processor_metadata
        self._topic_ids = dict(found.topic_ids)
        self._inputs, self._commit = dict(found.inputs), found.commit

    @property
    def stamp(self) -> ChangelogStamp:
        """The current content of the base."""
        offsets, metadata = dict(self._offsets), dict(self._metadata)
        ids, inputs = dict(self._topic_ids), dict(self._inputs)
        return ChangelogStamp(self._layouts, offsets, metadata, ids, inputs, self._commit)

    @property
    def restored_metadata(self) -> dict[str, int]:
        """The persistent values of the stores that changed during the restore."""
        return {name: value for name, value in self._metadata.items() if self._before.get(name) != value}

    def position(self, store: str) -> int:
        """Return the next changelog offset of `store` to be applied, 0 at the start."""
        return self._offsets.get(self._changelogs[store], 0)

    def reached(self, store: str, next_offset: int) -> None:
        """Set `next_offset` as the next one for `store`, without a record before it.

        The base stores it together with the next applied records.
        """
        self._offsets[self._changelogs[store]] = next_offset

    @property
    def is_empty(self) -> bool:
        """Whether no record has been applied yet."""
        return not self._offsets

    def fill(self, changes: Changes) -> None:
        """Apply a part of a state that does not come from the changelogs.

        Until `filled` is called, the base is emptied when it is opened.
        """
        self.base.apply(changes, _PARTIAL)

    def filled(self, offsets: Mapping[TopicPartition, int], processor_metadata: Mapping[str, int]) -> None:
        """Mark the filled state as the result of all records before `offsets`."""
        self._offsets.update(offsets)
        self._metadata.update(processor_metadata)
        self._before = dict(processor_metadata)
        self._leave_commit()
        self.base.apply({}, self.stamp.encode())

    def clear(self) -> None:
        """Drop all entries and restart at the beginning of the changelogs.

        Required when these no longer contain the records of the base.
        """
        self.base.clear()
        self._offsets.clear()
        self._metadata.clear()
        self._leave_commit()
        self._before = {}

    def restored_to(self, inputs: Mapping[TopicPartition, int], commit: int) -> None:
        """Set the task's commit of the input offsets `inputs`, with the number `commit`, as that of the base."""
        if (self._inputs, self._commit) != (inputs, commit):
            self._inputs, self._commit = dict(inputs), commit
            self.base.apply({}, self.stamp.encode())

    def _leave_commit(self) -> None:
        """Note that the state of the base is not that of a known commit."""
        self._inputs, self._commit = {}, NO_COMMIT

    def continue_with(self, topic_ids: Mapping[str, str]) -> None:
        """Continue with the topics that have these ids now.

        The copy is emptied if one of its topics was deleted and created again: the records after its offset do not
        belong to it, however many they are.
        """
        if any(topic_ids.get(topic, known) != known for topic, known in self._topic_ids.items()):
            stores = ", ".join(self._layouts)
            _log.warning("The copy of %s is emptied and restored again: its topics were created again.", stores)
            self.clear()
        self._topic_ids.update(topic_ids)

    def apply(self, store: str, batch: RecordBatch, next_offset: int) -> None:
        """Apply records of the changelog of `store`; `next_offset` follows them.

        Raises ProcessorStateError for a record that does not belong to such a store.
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
        self._leave_commit()
        self.base.apply({store: changes}, self.stamp.encode())
