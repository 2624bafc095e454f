"""Whether a changed program reads the entries that its stores keep, and which fields their values get or lose.

The newest entries of each store are read with the serdes of the new program. Fields are compared with those of the
program that the checkpoint stores, where both serdes have them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.config import StreamsConfig
from penstock.errors import SerializationError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest, Metadata
from penstock.host.spark.checkpoints.entry_map import EntryReader, has_mappable_entries
from penstock.host.spark.checkpoints.evolution import Evolution
from penstock.host.spark.checkpoints.stored_description import load_from_checkpoint
from penstock.host.spark.checkpoints.task_segments import read_segment
from penstock.plan.subtopology import BuiltTopology, SubtopologySpec, TaskId
from penstock.serdes.fields import SchemaField, fields_of
from penstock.state.api import StoreBuilder
from penstock.state.build import store_serde
from penstock.state.segment_log import log_from_json, path

_ENTRIES: Final = 100
"""Most entries of a store that are read."""

_SEGMENTS: Final = 10
"""Most segments of a sub-topology that are read: a start must not wait for a large state."""


_OF_DATA: Final = (
    SerializationError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    EOFError,
    struct.error,
)
"""Errors for bytes that a serde cannot read. Others may pass, such as that of a registry that does not answer."""


@dataclass(frozen=True)
class ValueChanges:
    """The changes of the values of kept stores.

    Args:
        refused: for each store with unreadable entries, the reason and the remedy.
        differences: a line for each store whose values have other fields, are unreadable or were not checked.
    """

    refused: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


def value_changes(
    checkpoint: Checkpoint,
    metadata: Metadata,
    last: Manifest,
    evolution: Evolution,
    topology: BuiltTopology,
    config: StreamsConfig,
) -> ValueChanges:
    """Return the changes of the values of the stores that a program of `topology` continues.

    Args:
        checkpoint: has the entries.
        metadata: of the checkpoint.
        last: its last manifest.
        evolution: the transfer of the stores; one that refuses the program has no changes.
        topology: of the program.
        config: of the program.
    """
    if evolution.refused:
        return ValueChanges()
    refused: dict[str, str] = {}
    unread: dict[str, str] = {}
    for spec in topology.subtopologies:
        stores = {name: builder for name, builder in spec.stores.items() if _is_checked(builder)}
        for name, reason, error in _unreadable(checkpoint, last, evolution, spec, stores, config):
            if isinstance(error, _OF_DATA):
                refused[name], unread[name] = reason, f"store {name}: the program cannot read its values"
            else:
                unread[name] = f"store {name}: its values were not checked, {type(error).__name__}: {error}"
    continued = {*evolution.kept, *evolution.moved, *evolution.restored}
    stores = {name: each for spec in topology.subtopologies for name, each in spec.stores.items() if name in continued}
    changes = dict(_changed_fields(_fields_before(checkpoint, metadata), stores, config))
    return ValueChanges(tuple(refused.values()), tuple({**unread, **changes}.values()))


def _is_checked(builder: StoreBuilder) -> bool:
    return has_mappable_entries(builder) and builder.source is None


def _unreadable(
    checkpoint: Checkpoint,
    last: Manifest,
    evolution: Evolution,
    spec: SubtopologySpec,
    stores: Mapping[str, StoreBuilder],
    config: StreamsConfig,
) -> Iterator[tuple[str, str, Exception]]:
    """Yield the stores of a sub-topology with an unread entry, each with reason and remedy, and the error."""
    readers = {
        name: EntryReader(builder, config, not evolution.headers[name] if name in evolution.headers else None)
        for name, builder in stores.items()
    }
    left = dict.fromkeys(stores, _ENTRIES)
    for holder, name, key, value in _newest_entries(checkpoint, last, _holders(evolution, spec, stores), left):
        left[name] -= 1
        try:
            readers[name].read(key, value)
        except Exception as error:  # a user's serde may raise anything
            left[name] = 0
            yield name, _reason(name, holder, readers[name].key_text(key), error), error


def _reason(store: str, holder: str, key: str, error: Exception) -> str:
    return (
        f"store {store} has an entry in {holder}, key {key}, that the program cannot read: {type(error).__name__}: "
        f"{error}. Rewrite its entries by a function: penstock savepoint take, then penstock savepoint restore "
        f"SAVEPOINT FILE --map {store}=MODULE:FUNCTION. Or give the new store another name"
    )


def _holders(evolution: Evolution, spec: SubtopologySpec, stores: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each holder of state of a sub-topology, with the names of its stores."""
    for task, origin in evolution.origins.items():
        if TaskId.parse(task).subtopology == spec.id:
            places = dict.fromkeys(stores, origin.whole) if origin.whole is not None else origin.stores
            for holder in dict.fromkeys(places.values()):
                if holder is not None:
                    yield holder, [name for name in stores if places.get(name) == holder]


def _newest_entries(
    checkpoint: Checkpoint, last: Manifest, holders: Iterable[tuple[str, list[str]]], left: Mapping[str, int]
) -> Iterator[tuple[str, str, bytes, bytes]]:
    """Yield entries with their holders and stores, the newest first, while `left` of the store is not 0."""
    unread = _SEGMENTS
    for holder, names in holders:
        later: set[tuple[str, bytes]] = set()
        for info in reversed(path(log_from_json(dict(last.entry(holder).segments)), None).segments):
            wanted = [name for name in names if left[name]]
            if not wanted or not unread:
                break
            unread -= 1
            changes = read_segment(checkpoint, holder, info, wanted).changes
            for name, changed in changes.items():
                for key, value in changed.items():
                    if not left[name]:
                        break
                    if value is not None and (name, key) not in later:  # a later change may be of another class
                        yield holder, name, key, value
            later.update((name, key) for name, changed in changes.items() for key in changed)


def _changed_fields(
    before: Mapping[str, tuple[SchemaField, ...]], stores: Mapping[str, StoreBuilder], config: StreamsConfig
) -> Iterator[tuple[str, str]]:
    """Yield the stores with other fields, each with a line; a store without fields is left out."""
    for name, builder in stores.items():
        old, new = dict(before.get(name, ())), dict(_fields(builder, config))
        if old and new and old != new:
            parts = [
                *(f"get {field}: {type}" for field, type in new.items() if field not in old),
                *(f"lose {field}: {type}" for field, type in old.items() if field not in new),
                *(
                    f"have {field}: {new[field]} in place of {old[field]}"
                    for field in new
                    if new[field] != old.get(field, new[field])
                ),
            ]
            yield name, f"store {name}: its values {', '.join(parts) or 'have their fields in another order'}"


def _fields_before(checkpoint: Checkpoint, metadata: Metadata) -> dict[str, tuple[SchemaField, ...]]:
    """Return the fields of the values of each store in the program that the checkpoint stores."""
    data = checkpoint.read_description(metadata)
    try:
        stored = None if data is None else load_from_checkpoint(data)
    except Exception:  # any error raised by an object's own unpickling: then only entries are checked
        stored = None
    if stored is None:
        return {}
    return {
        name: _fields(builder, stored.config)
        for spec in stored.topology.subtopologies
        for name, builder in spec.stores.items()
    }


def _fields(builder: StoreBuilder, config: StreamsConfig) -> tuple[SchemaField, ...]:
    return fields_of(store_serde(builder, "value", config)) if _is_checked(builder) else ()
