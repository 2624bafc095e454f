"""The effects of a changed program on the state of a checkpoint.

Stores continue, start empty, are removed, return, or conflict. Pure functions over shapes (`placement.shape`), and the
shape of a topology that does not run yet.

State belongs to a store and a partition, never to the number of a sub-topology. So a task of the new program gets the
state of its stores from whichever tasks had them. If those are all the stores of one old task, its log of segments
continues unchanged; otherwise the segments are rewritten (`topology_versions`). Positions in topics, times and
schedules are taken over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.config import StreamsConfig
from penstock.host.deployment.topics import resolve_patterns
from penstock.host.spark.checkpoints.checkpoint import RemovedStore, removed_holder
from penstock.host.spark.protocol.placement import Placement, differences, place, shape
from penstock.plan.partition_grouper import configured_grouper
from penstock.plan.subtopology import BuiltTopology, TaskId
from penstock.state.kept_headers import has_headers, layout_with_headers

Shape = Mapping[str, Any]


@dataclass(frozen=True)
class StateOrigin:
    """The origin of the state of a task, or of a removed store's partition.

    A holder is an old task, or a partition of a removed store by `removed_holder`.

    Args:
        whole: the holder whose log continues unchanged, if any.
        stores: otherwise, the holder of the entries of each store.
        clocks: the holders whose times and schedules continue.
        headers: the stores whose values get headers (True) or lose them (False).
    """

    whole: str | None = None
    stores: Mapping[str, str] = field(default_factory=dict)
    clocks: tuple[str, ...] = ()
    headers: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Evolution:
    """The effects of a changed program on a checkpoint; see `evolve`.

    Args:
        kept: names of stores that continue in place.
        moved: names of stores that continue in another task.
        new: names of stores that start empty.
        removed: names of stores that leave the program; their state is kept.
        restored: names of stores that return.
        still_removed: names of stores that were removed before; their state is still kept.
        headers: of those that continue or return, the stores whose values get headers (True) or lose them (False).
        refused: the reasons why the program cannot use the state, each with a remedy.
        differences: of the shapes, one line each.
        origins: of the new tasks that have a state, by task.
        removals: of stores that the program no longer has, by holder.
        removed_stores: the removed stores whose state is kept afterwards.
    """

    kept: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    still_removed: tuple[str, ...] = ()
    headers: Mapping[str, bool] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    origins: Mapping[str, StateOrigin] = field(default_factory=dict)
    removals: Mapping[str, StateOrigin] = field(default_factory=dict)
    removed_stores: Mapping[str, RemovedStore] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return a readable summary: a line per affected store, then other differences; or the refusals."""
        if self.refused:
            return [f"REFUSED: {reason}" for reason in self.refused]
        said = {
            "keeps its state": self.kept,
            "keeps its state, which moves to another task": self.moved,
            "is back and continues with its kept state": self.restored,
            "is new and starts empty": self.new,
            "is no longer in the program; its state is kept until you drop it by name": self.removed,
            "was removed before; its state is still kept": self.still_removed,
        }
        lines = [f"store {name} {what}" for what, names in said.items() for name in names]
        lines += [
            f"store {name}: its values are rewritten {'with a place for' if given else 'without'} headers"
            for name, given in self.headers.items()
        ]
        return lines + [line for line in self.differences if not line.startswith(("stores / ", "formats / "))]


class _Store(NamedTuple):
    """A store of a program: its sub-topology, its layout and its partitions."""

    subtopology: str
    layout: str
    partitions: tuple[int, ...]

    def holder(self, partition: int) -> str:
        return f"{self.subtopology}_{partition}"


def evolve(before: Shape, now: Shape, removed: Mapping[str, RemovedStore]) -> Evolution:
    """Return the effects of a program of shape `now` on a checkpoint of shape `before`.

    Args:
        before: shape of the program of the checkpoint.
        now: shape of the new program.
        removed: stores in the checkpoint that its program does not have.
    """
    old, new = _stores(before), _stores(now)
    refused = tuple(_refusals(before, now, removed))
    headers = {} if refused else _changed_headers(old, new, removed)
    origins = {} if refused else _origins(before, now, removed, headers)
    goes_on = [name for name in new if name in old]
    moved = {name for name in goes_on if _is_moved(name, old[name], new[name], origins)}
    gone = {name: RemovedStore(old[name].layout, len(old[name].partitions)) for name in old if name not in new}
    still_removed = {name: store for name, store in removed.items() if name not in new and name not in old}
    return Evolution(
        kept=tuple(name for name in goes_on if name not in moved),
        moved=tuple(name for name in goes_on if name in moved),
        new=tuple(name for name in new if name not in old and name not in removed),
        removed=tuple(gone),
        restored=tuple(name for name in new if name not in old and name in removed),
        still_removed=tuple(still_removed),
        headers=headers,
        refused=refused,
        differences=tuple(differences(before, now)),
        origins=origins,
        removals={
            removed_holder(name, partition): StateOrigin(stores={name: holder}, clocks=(holder,))
            for name in gone
            for partition in old[name].partitions
            for holder in [old[name].holder(partition)]
        },
        removed_stores={**still_removed, **gone},
    )


def _stores(shape: Shape) -> dict[str, _Store]:
    partitions = _partitions(shape)
    return {
        name: _Store(subtopology, layout, partitions.get(subtopology, ()))
        for subtopology, layouts in shape["stores"].items()
        for name, layout in layouts.items()
    }


def _partitions(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Return the partitions (numbers of tasks) of each sub-topology."""
    found: dict[str, list[int]] = {}
    for task in (TaskId.parse(name) for level in shape["tasks of each level"] for name in level):
        found.setdefault(str(task.subtopology), []).append(task.partition)
    return {subtopology: tuple(sorted(numbers)) for subtopology, numbers in found.items()}


def _refusals(before: Shape, now: Shape, removed: Mapping[str, RemovedStore]) -> Iterator[str]:
    old, new = _stores(before), _stores(now)
    yield from _other_formats(before, now)
    own_groups = before.get("partitions of tasks", {}), now.get("partitions of tasks", {})
    for name, store in new.items():
        if name in old:
            layout, count = old[name].layout, len(old[name].partitions)
        elif name in removed:
            layout, count = removed[name].layout, removed[name].partitions
        else:
            continue
        if layout_with_headers(layout, has_headers(store.layout)) != store.layout:
            yield (
                f"store {name} has the layout {layout!r} and would now have {store.layout!r}: give the new one another "
                f"name, or run a program without it and drop it: penstock savepoint drop FILE {name}"
            )
        elif count != len(store.partitions) and name not in old:
            yield (
                f"store {name} was kept with its keys in {count} partitions (tasks) when it was removed, and would "
                f"have {len(store.partitions)} now; the kept state cannot be re-partitioned: give the new store "
                f"another name, or drop the kept state: penstock savepoint drop FILE {name}"
            )
        elif count != len(store.partitions):
            yield (
                f"store {name} has its keys in {count} partitions (tasks) and would have {len(store.partitions)} now: "
                "take a savepoint, and restore it with its keys re-partitioned: penstock savepoint restore --rescale"
            )
        elif name in old:
            for partition in store.partitions:
                groups = (
                    own_groups[0].get(old[name].holder(partition)),
                    own_groups[1].get(store.holder(partition)),
                )
                if groups[0] != groups[1]:
                    yield (
                        f"store {name}: its task {partition} reads {groups[1] or 'one partition of each topic'} now, "
                        f"and read {groups[0] or 'one partition of each topic'}: partition.grouper must not change "
                        "under a store"
                    )
                    break


def _other_formats(before: Shape, now: Shape) -> Iterator[str]:
    """Yield a reason for each store with changed serdes, if both formats are known."""
    known = before.get("formats", {})
    for name, formats in now.get("formats", {}).items():
        for what, old, new in zip(("keys", "values"), known.get(name, (None, None)), formats, strict=True):
            if old is not None and new is not None and old != new:
                yield (
                    f"store {name} has {what} as {old}, and the program reads them as {new} now: give the new one "
                    f"another name, or run a program without it and drop it: penstock savepoint drop FILE {name}"
                )


def _changed_headers(
    old: Mapping[str, _Store], new: Mapping[str, _Store], removed: Mapping[str, RemovedStore]
) -> dict[str, bool]:
    """Return the stores with state whose values get headers or lose them."""
    layouts = {name: kept.layout for name, kept in removed.items()}
    layouts |= {name: store.layout for name, store in old.items()}
    now = {name: has_headers(store.layout) for name, store in new.items() if name in layouts}
    return {name: given for name, given in now.items() if has_headers(layouts[name]) != given}


def _origins(
    before: Shape, now: Shape, removed: Mapping[str, RemovedStore], headers: Mapping[str, bool]
) -> dict[str, StateOrigin]:
    """Return the origin of the state of each new task; tasks without state are omitted.

    headers: the stores whose values change, as in `Evolution`.
    """
    old = _stores(before)
    old_partitions, old_topics = _partitions(before), {_topics(before, s): s for s in before["topics"]}
    origins: dict[str, StateOrigin] = {}
    for subtopology, partitions in _partitions(now).items():
        names = list(now["stores"].get(subtopology, {}))
        same_topics = old_topics.get(_topics(now, subtopology))
        for partition in partitions:
            stores = {name: old[name].holder(partition) for name in names if name in old}
            stores |= {name: removed_holder(name, partition) for name in names if name not in old and name in removed}
            clocks = tuple(dict.fromkeys(stores.values()))
            if not stores and same_topics is not None and partition in old_partitions.get(same_topics, ()):
                clocks = (f"{same_topics}_{partition}",)
            if clocks:
                changed = {name: given for name, given in headers.items() if name in stores}
                origins[f"{subtopology}_{partition}"] = _origin(before, stores, clocks, changed)
    return origins


def _origin(
    before: Shape, stores: Mapping[str, str], clocks: tuple[str, ...], headers: Mapping[str, bool]
) -> StateOrigin:
    holder = clocks[0]
    had = before["stores"].get(holder.partition("_")[0])
    if len(clocks) == 1 and not headers and had is not None and set(had) == set(stores):
        return StateOrigin(whole=holder, clocks=clocks)
    return StateOrigin(stores=stores, clocks=clocks, headers=headers)


def _topics(shape: Shape, subtopology: str) -> frozenset[str]:
    return frozenset(shape["topics"][subtopology])


def _is_moved(name: str, old: _Store, new: _Store, origins: Mapping[str, StateOrigin]) -> bool:
    return any(
        origin is not None
        and origin.whole != new.holder(partition)
        and not (origin.headers and origin.stores[name] == new.holder(partition))
        for partition in new.partitions
        for origin in [origins.get(new.holder(partition))]
    )


def topology_shape(built: BuiltTopology, config: StreamsConfig, topics: Mapping[str, int]) -> dict[str, Any]:
    """Return the shape of a topology on brokers with `topics` (partitions by name).

    Source topics missing from them count as one partition.
    """
    topology, placement = _placed(built, config, topics)
    return shape(topology, placement, config.overridden(built.config_overrides))


def store_partitions(built: BuiltTopology, config: StreamsConfig, topics: Mapping[str, int]) -> dict[str, int]:
    """Return the partitions (tasks) of each store of a topology on brokers with `topics`."""
    topology, placement = _placed(built, config, topics)
    return {
        name: sum(task.subtopology == spec.id for task in placement.tasks)
        for spec in topology.subtopologies
        for name in spec.stores
    }


def _placed(built: BuiltTopology, config: StreamsConfig, topics: Mapping[str, int]) -> tuple[BuiltTopology, Placement]:
    internal = frozenset(built.repartition_topics)
    topology = resolve_patterns(built, topics, internal, config)
    read = {topic for spec in topology.subtopologies for topic in spec.source_topics if topic not in internal}
    counts = {**dict.fromkeys(sorted(read), 1), **topics}
    return topology, place(topology, counts, 1, configured_grouper(config))
