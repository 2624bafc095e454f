"""Rewrites the stores of a savepoint by functions of the user, when it is restored.

An entry with another key goes to the task of that key, by Kafka's default partitioner. All others stay in their tasks.
The entries pass through bases on disk, so memory does not depend on their number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from typing import Any, Final

import orjson

from penstock.config import StreamsConfig
from penstock.errors import StreamsError, counted
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest
from penstock.host.spark.checkpoints.copied_stores import copied_stores
from penstock.host.spark.checkpoints.entry_map import EntryMap, MapFunction, MappedStore, StoreSerdes
from penstock.host.spark.checkpoints.entry_writer import EntryWriter
from penstock.host.spark.checkpoints.rescaling import check_partitions_known, tasks_of
from penstock.host.spark.checkpoints.task_segments import read_states, write_state
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.host.storage.task_state import TaskState, already_open
from penstock.host.storage.temporary_base import temporary_base
from penstock.plan.partitioning import partition_for
from penstock.plan.subtopology import BuiltTopology, SubtopologySpec, TaskId
from penstock.state.api import Base, StoreBuilder
from penstock.state.record_keys import record_key_reader

_SIZES: Final = struct.Struct(">III")


@dataclass(frozen=True)
class StoreMaps:
    """The functions that rewrite stores, and the program that continues.

    Args:
        functions: by the name of the store.
        program: the topology and the configuration whose serdes write the entries; None for those of the savepoint.
    """

    functions: Mapping[str, MapFunction]
    program: tuple[BuiltTopology, StreamsConfig] | None = None


class StoreMapping:
    """Rewrites stores of one savepoint.

    Args:
        source: has the state of the tasks.
        manifest: of that state.
        shape: of the topology.
        description: of the program of the savepoint.
        maps: the functions.

    Raises:
        StreamsError: a store is missing, or its entries cannot be rewritten.
    """

    def __init__(
        self,
        source: Checkpoint,
        manifest: Manifest,
        shape: Mapping[str, Any],
        description: ApplicationDescription,
        maps: StoreMaps,
    ) -> None:
        self._source = source
        self._manifest = manifest
        self._shape = shape
        self._description = description
        self._maps = _entry_maps(description, maps)

    @property
    def results(self) -> tuple[MappedStore, ...]:
        """The results so far."""
        return tuple(each.result for each in self._maps.values())

    def try_all(self) -> None:
        """Apply the functions to all entries, and write nothing."""
        for spec in self._subtopologies():
            with self._rewritten(spec):
                pass

    def tasks(self, target: Checkpoint) -> dict[str, TaskEntry]:
        """Write the state of the tasks with these stores to `target`; return their entries.

        Raises StreamsError if an entry cannot be rewritten.
        """
        tasks: dict[str, TaskEntry] = {}
        for spec in self._subtopologies():
            with self._rewritten(spec) as states:
                self._check_results()
                for task, state in states.items():
                    entry = write_state(target, task, spec.store_kinds, state)
                    tasks[task] = replace(entry, due_ms=0, carried=self._manifest.entry(task).carried)
        return tasks

    def shape(self) -> dict[str, Any]:
        """Return the shape of the topology with the formats of the rewritten entries."""
        formats = {name: each.written.formats for name, each in self._maps.items()}
        return {**self._shape, "formats": {**self._shape.get("formats", {}), **formats}}

    def description(self) -> ApplicationDescription:
        """Return the description of the program with the serdes that have written the entries."""
        topology = self._description.topology
        subtopologies = tuple(
            replace(spec, stores={name: self._as_written(builder) for name, builder in spec.stores.items()})
            for spec in topology.subtopologies
        )
        return replace(self._description, topology=replace(topology, subtopologies=subtopologies))

    def _as_written(self, builder: StoreBuilder) -> StoreBuilder:
        if builder.name not in self._maps:
            return builder
        written = self._maps[builder.name].written
        return replace(builder, key_serde=written.key, value_serde=written.value)

    def _check_results(self) -> None:
        failed = [each for each in self.results if each.failed]
        if failed:
            lines = [
                f"  - store {each.name}, task {failure.task}, key {failure.key}: {failure.reason}"
                for each in failed
                for failure in each.failures
            ]
            count = ", ".join(f"{counted(each.failed, 'key')} of store {each.name}" for each in failed)
            raise StreamsError(
                f"The functions cannot rewrite {count}, and nothing was restored. Correct them, try them with "
                "--dry-run, and restore again. The first failures:\n" + "\n".join(lines)
            )

    def _subtopologies(self) -> list[SubtopologySpec]:
        topology = self._description.topology
        return [spec for spec in topology.subtopologies if not self._maps.keys().isdisjoint(spec.stores)]

    @contextmanager
    def _rewritten(self, spec: SubtopologySpec) -> Iterator[dict[str, TaskState]]:
        """Open the state of the tasks of a sub-topology with rewritten entries."""
        tasks = [str(task) for task in sorted(map(TaskId.parse, tasks_of(self._shape, str(spec.id))))]
        states = read_states(self._source, self._manifest, tasks)
        if not states:
            yield {}
            return
        with ExitStack() as opened:
            bases = [opened.enter_context(temporary_base()) for _ in tasks]
            stores = [self._rewriting(spec, builder, tasks, bases) for builder in spec.stores.values()]
            for number, task in enumerate(tasks):
                if task in states:
                    with states[task].entries() as content:
                        for store in stores:
                            store.take(number, content.view(store.name).range(None, None, False))
            identity = orjson.dumps([tasks, [(store.name, store.finish()) for store in stores]])
            yield {
                task: TaskState(states.get(task, TaskState()).clocks, already_open(base), task.encode() + identity)
                for task, base in zip(tasks, bases, strict=True)
            }

    def _rewriting(
        self, spec: SubtopologySpec, builder: StoreBuilder, tasks: Sequence[str], bases: Sequence[Base]
    ) -> _Rewriting:
        each = self._maps.get(builder.name)
        written = self._as_written(builder)

        @cache
        def key_of() -> Callable[[bytes], bytes]:  # only for new keys: it refuses keys with unknown partitions
            check_partitions_known(self._shape, self._description, spec)
            return record_key_reader(written, None)

        @cache
        def is_copied() -> bool:
            return builder.name in copied_stores(spec)

        def place(number: int, key: bytes) -> int:
            return number if is_copied() else partition_for(key_of()(key), len(tasks))

        return _Rewriting(builder.name, each, tasks, bases, place)


class _Rewriting:
    """Writes the entries of one store to the bases of its tasks.

    Args:
        name: of the store.
        each: rewrites an entry; None leaves all as they are.
        tasks: of the sub-topology, by number.
        bases: of these tasks.
        place: returns the number of the task of a new key, given the number of its entry's task.
    """

    def __init__(
        self,
        name: str,
        each: EntryMap | None,
        tasks: Sequence[str],
        bases: Sequence[Base],
        place: Callable[[int, bytes], int],
    ) -> None:
        self.name = name
        self._map = each
        self._tasks = tasks
        self._place = place
        self._writer = EntryWriter(bases, name)
        self._digest = blake2b(digest_size=16)

    def take(self, number: int, entries: Iterator[tuple[bytes, bytes]]) -> None:
        """Write the entries of the task `number`."""
        if self._map is None:
            for key, value in entries:
                self._put(number, key, value)
            return
        for key, value in entries:
            try:
                new = self._map.apply(key, value)
                place = number if new is None else self._place_of(self._map, number, key, new[0])
            except Exception as error:  # a user's function or serde may raise anything
                self._map.count_failure(self._tasks[number], key, error)
                continue
            self._map.count((key, value), new, place != number)
            if new is not None:
                self._put(place, *new)

    def finish(self) -> str:
        """Write the last entries; return a digest of all."""
        self._writer.flush()
        return self._digest.hexdigest()

    def _place_of(self, each: EntryMap, number: int, key: bytes, new_key: bytes) -> int:
        """Return the number of the task of an entry with a new key; raises StreamsError if another one has it."""
        place = number
        if new_key != key:
            each.has_new_keys = True
            place = self._place(number, new_key)
        if each.has_new_keys and self._writer.holds(place, new_key):
            raise StreamsError(f"another entry has the key {new_key!r:.200} afterwards")
        return place

    def _put(self, number: int, key: bytes, value: bytes) -> None:
        self._digest.update(_SIZES.pack(number, len(key), len(value)) + key + value)
        self._writer.put(number, key, value)


def _entry_maps(description: ApplicationDescription, maps: StoreMaps) -> dict[str, EntryMap]:
    """Return the maps by store; raises StreamsError for a missing store, and one that cannot be rewritten."""
    stores = _stores(description.topology)
    unknown = sorted(maps.functions.keys() - stores)
    if unknown:
        raise StreamsError(
            f"The program of the savepoint has no store {', '.join(unknown)}; it has {', '.join(sorted(stores))}."
        )
    topology, config = maps.program or (description.topology, description.config)
    now = _stores(topology)
    return {
        name: EntryMap(
            function,
            stores[name],
            description.config,
            StoreSerdes(now[name], config) if name in now else StoreSerdes(stores[name], description.config),
        )
        for name, function in maps.functions.items()
    }


def _stores(topology: BuiltTopology) -> dict[str, StoreBuilder]:
    return {name: builder for spec in topology.subtopologies for name, builder in spec.stores.items()}
