"""Redistributes the keys of stores to another number of partitions (tasks).

This happens when a savepoint is restored. An entry goes to the partition of its record key, by Kafka's default
partitioner: repartition topics use it, and so do producers that choose no partition themselves. Clocks become the
largest of all former tasks, bounds on waiting records the least. Records that were carried to the next epoch are
redistributed in the same way. Of a store that is filled by broadcasts, each task gets a whole copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from penstock.errors import StreamsError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest
from penstock.host.spark.checkpoints.copied_stores import copied_stores
from penstock.host.spark.checkpoints.entry_writer import EntryWriter
from penstock.host.spark.checkpoints.task_segments import merged, read_states, write_state
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.host.storage.task_state import TaskState, already_open
from penstock.host.storage.temporary_base import temporary_base
from penstock.plan.broadcast import every_partition
from penstock.plan.partitioning import WindowedStreamPartitioner, partition_for
from penstock.plan.subtopology import SinkSpec, SubtopologySpec
from penstock.processor.foreign_key_join import partition_of_response
from penstock.serdes.sequenced_key import SequencedKeySerde, renumbered_key
from penstock.serdes.subscription import SubscriptionWrapperSerde
from penstock.state.api import Entries, StoreBuilder
from penstock.state.lmdb import LmdbBase
from penstock.state.record_keys import primary_key_of, record_key_reader
from penstock.state.suppliers import TimeOrderedBufferBytesStoreSupplier
from penstock.state.time_ordered_buffer import INDEX_PREFIX, size_of_entry
from penstock.task.task_checkpoint import TaskCheckpoint

_PARTITION_SIZE = 4


def wanted_counts(shape: Mapping[str, Any], partitions: int | Mapping[str, int]) -> dict[str, int]:
    """Return the new number of tasks of each sub-topology whose number changes.

    Raises StreamsError if a store is missing, or if two stores of one sub-topology request different numbers.
    """
    subtopology_of = {name: sub for sub, layouts in shape["stores"].items() for name in layouts}
    by_store = dict.fromkeys(subtopology_of, partitions) if isinstance(partitions, int) else dict(partitions)
    unknown = sorted(set(by_store) - set(subtopology_of))
    if unknown:
        raise StreamsError(
            f"The savepoint has no store {', '.join(unknown)} in its program; it has {', '.join(subtopology_of)}."
        )
    counts: dict[str, int] = {}
    for name, count in by_store.items():
        if count < 1:
            raise StreamsError(f"Store {name} cannot have {count} partitions; expected 1 or more.")
        if counts.setdefault(subtopology_of[name], count) != count:
            raise StreamsError(
                f"Store {name} is in one sub-topology with others that get {counts[subtopology_of[name]]} partitions; "
                f"it cannot have {count}."
            )
    return {sub: count for sub, count in counts.items() if count != len(tasks_of(shape, sub))}


def tasks_of(shape: Mapping[str, Any], subtopology: str) -> list[str]:
    """Return the tasks of a sub-topology."""
    return [task for level in shape["tasks of each level"] for task in level if task.partition("_")[0] == subtopology]


def rescaled_shape(shape: Mapping[str, Any], counts: Mapping[str, int]) -> dict[str, Any]:
    """Return `shape` with other numbers of tasks and of input partitions."""
    levels = []
    for level in shape["tasks of each level"]:
        subtopologies = dict.fromkeys(task.partition("_")[0] for task in level)
        levels.append(
            [
                task
                for sub in subtopologies
                for task in ([f"{sub}_{n}" for n in range(counts[sub])] if sub in counts else tasks_of(shape, sub))
            ]
        )
    topics = dict(shape["partitions of source topics"])
    for sub, count in counts.items():
        topics.update(dict.fromkeys(shape["topics"][sub], count))
    return {**shape, "tasks of each level": levels, "partitions of source topics": topics}


class Rescaling:
    """Redistributes the state of the sub-topologies of one savepoint.

    Args:
        source: the savepoint.
        target: the new checkpoint.
        manifest: of the state to redistribute.
        shape: of the topology afterwards.
        description: of the program, with its stores.
    """

    def __init__(
        self,
        source: Checkpoint,
        target: Checkpoint,
        manifest: Manifest,
        shape: Mapping[str, Any],
        description: ApplicationDescription,
    ) -> None:
        self._source = source
        self._target = target
        self._manifest = manifest
        self._shape = shape
        self._description = description

    def tasks(self, subtopology: str, before: list[str], count: int) -> dict[str, TaskEntry]:
        """Write the state of the tasks `before` for `count` tasks; return their entries.

        All these tasks are of one sub-topology. Raises StreamsError if the partition of a key is not known.
        """
        spec = self._description.subtopologies[int(subtopology)]
        check_partitions_known(self._shape, self._description, spec)
        copied = copied_stores(spec)
        states = read_states(self._source, self._manifest, before)
        if not states:
            return {}
        with ExitStack() as opened:
            targets = [opened.enter_context(temporary_base()) for _ in range(count)]
            sizes = [_BufferCounts() for _ in targets]
            for place, state in enumerate(states.values()):
                with state.entries() as content:
                    for builder in spec.stores.values():
                        tasks_of_key: Callable[[bytes], Iterable[int]] = (
                            partial(_same, range(place, count, len(states)))
                            if builder.name in copied
                            else self._dividing(builder, count)
                        )
                        rekeyed = _rekeying(builder, place, len(states))
                        self._write(content, builder, targets, sizes, spec, tasks_of_key, rekeyed)
            clocks = merged_tasks([state.clocks for state in states.values()])
            heads = sorted(state.identity.decode() for state in states.values())
            tasks: dict[str, TaskEntry] = {}
            for number, base in enumerate(targets):
                task = f"{subtopology}_{number}"
                identity = orjson.dumps([task, count, heads])
                state = TaskState(sizes[number].counted(clocks, spec), already_open(base), identity)
                tasks[task] = replace(write_state(self._target, task, spec.store_kinds, state), due_ms=0)
            return tasks

    def answering_elsewhere(self, before: Mapping[str, Any]) -> list[str]:
        """Return the sub-topologies whose foreign-key subscriptions need answers to another number of partitions.

        The comparison is with the shape `before`. Each subscription contains the number of the requesting partition, so
        the state of these sub-topologies must be rewritten although they keep their tasks.
        """
        partitions = "partitions of source topics"
        return [
            str(spec.id)
            for spec in self._description.topology.subtopologies
            if any(isinstance(builder.value_serde, SubscriptionWrapperSerde) for builder in spec.stores.values())
            and any(before[partitions][topic] != self._shape[partitions][topic] for topic in _answers(spec))
        ]

    def _dividing(self, builder: StoreBuilder, count: int) -> Callable[[bytes], Iterable[int]]:
        """Return a function from the key of a store's entry to its single task among `count`."""
        key_of = record_key_reader(builder, self._description.config["default.key.serde"])
        return lambda key: (partition_for(key_of(key), count),)

    def _write(
        self,
        content: Entries,
        builder: StoreBuilder,
        targets: list[LmdbBase],
        sizes: list[_BufferCounts],
        spec: SubtopologySpec,
        tasks_of_key: Callable[[bytes], Iterable[int]],
        rekeyed: Callable[[bytes], bytes],
    ) -> None:
        """Write each entry of a store to the bases of its tasks, with its new key."""
        rewritten = self._rewriting(builder, spec)
        waits = isinstance(builder.supplier, TimeOrderedBufferBytesStoreSupplier)
        writer = EntryWriter(targets, builder.name)
        for key, value in content.view(builder.name).range(None, None, False):
            for number in tasks_of_key(key):
                writer.put(number, rekeyed(key), rewritten(key, value))
                if waits and key[:1] != INDEX_PREFIX:
                    sizes[number].add(builder.name, key, value)
        writer.flush()

    def _rewriting(self, builder: StoreBuilder, spec: SubtopologySpec) -> Callable[[bytes, bytes], bytes]:
        """Return the function for an entry's new value: a subscription contains the requesting row's partition."""
        if not isinstance(builder.value_serde, SubscriptionWrapperSerde):
            return lambda key, value: value
        counts = {self._shape["partitions of source topics"][topic] for topic in _answers(spec)}
        if len(counts) != 1:
            raise StreamsError(
                f"Store {builder.name}: the foreign-key joins of its sub-topology would answer to {sorted(counts)} "
                "partitions; their subscriptions can only be re-partitioned if that is one number."
            )
        (count,) = counts

        def rewritten(key: bytes, value: bytes) -> bytes:
            partition = partition_for(primary_key_of(key), count)
            return value[:-_PARTITION_SIZE] + partition.to_bytes(_PARTITION_SIZE, "big")

        return rewritten


def check_partitions_known(
    shape: Mapping[str, Any], description: ApplicationDescription, spec: SubtopologySpec
) -> None:
    """Raise StreamsError if a function of the program chooses partitions of the sub-topology's inputs."""
    if "partitions of tasks" in shape:
        raise StreamsError(
            "partition.grouper defines the tasks of this program; keys can only be re-partitioned if task n reads "
            "partition n."
        )
    for feeding in description.topology.subtopologies:
        for node in feeding.nodes:
            known = isinstance(node, SinkSpec) and (
                node.partitioner is None
                or node.partitioner is every_partition
                or node.partitioner is partition_of_response
                or isinstance(node.partitioner, WindowedStreamPartitioner)
            )
            if isinstance(node, SinkSpec) and node.topic in spec.source_topics and not known:
                raise StreamsError(
                    f"Sink {node.name} chooses the partitions of {node.topic} with a function of the program; the "
                    "partition of a key is unknown, so the keys cannot be re-partitioned."
                )


def _same(tasks: range, key: bytes) -> range:
    """Return `tasks`, whatever the key: a copy has all entries."""
    return tasks


def _rekeying(builder: StoreBuilder, place: int, states: int) -> Callable[[bytes], bytes]:
    """Return the function for an entry's new key: the numbers of waiting records are unique within a task.

    The entry is of the state number `place` among `states`.
    """
    if not isinstance(builder.key_serde, SequencedKeySerde):
        return lambda key: key
    return lambda key: renumbered_key(key, place, states)


def _answers(spec: SubtopologySpec) -> list[str]:
    """Return the topics to which the foreign-key joins of a sub-topology answer."""
    return [
        node.topic
        for node in spec.nodes
        if isinstance(node, SinkSpec) and node.partitioner is partition_of_response and node.topic is not None
    ]


class _BufferCounts:
    """The number and bytes of the updates that wait in the buffers of a task."""

    def __init__(self) -> None:
        self._records: dict[str, int] = {}
        self._bytes: dict[str, int] = {}

    def add(self, store: str, key: bytes, value: bytes) -> None:
        """Count an entry."""
        self._records[store] = self._records.get(store, 0) + 1
        self._bytes[store] = self._bytes.get(store, 0) + size_of_entry(key, value)

    def counted(self, clocks: TaskCheckpoint, spec: SubtopologySpec) -> TaskCheckpoint:
        """Return `clocks` with the counts of the task."""
        metadata = dict(clocks.processor_metadata)
        for name, builder in spec.stores.items():
            if isinstance(builder.supplier, TimeOrderedBufferBytesStoreSupplier):
                metadata[f"{name}/records"] = self._records.get(name, 0)
                metadata[f"{name}/bytes"] = self._bytes.get(name, 0)
        return replace(clocks, processor_metadata=metadata)


def merged_tasks(clocks: list[TaskCheckpoint]) -> TaskCheckpoint:
    """Return the clocks of a task with keys of several tasks of one sub-topology.

    They have the largest time, and the least time for which something waits.
    """
    result = merged(clocks)
    least = {
        name: min(each.processor_metadata[name] for each in clocks if name in each.processor_metadata)
        for name in result.processor_metadata
        if name.endswith("/min_time")
    }
    return replace(result, processor_metadata={**result.processor_metadata, **least})
