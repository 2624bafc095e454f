"""The log of a task: its live segments, the way of a base to the head, and segment maintenance.

Pure functions and values; a host reads and writes the segments and keeps one log per task in its manifest. Rules:
- The log consists of the deltas since the oldest snapshot, in the order of the chain (merged ones replace their parts),
  and snapshots of key ranges.
- A base at a position of the log applies the following segments. It may apply a merged segment from any position
  inside, since that has the last change of every key. Any other base is rebuilt: all snapshots in the order of writing,
  then all deltas.
- Small neighbouring deltas are merged in tiers. Instead of merging all deltas into older data, the task writes a key
  range of its base with each commit: a round of snapshots. A delta older than all snapshots of a whole round is
  dropped. So no commit pays for everything, and the log stays below twice the size of the state. No round begins while
  little of the log can be outdated: all-new data is written once.
- Deltas of the newest commit are neither merged nor dropped: they include the task's checkpoint.
- A commit merges and snapshots at most twice the bytes that it wrote, or 4 MiB if that is more. Sizes are those of the
  content before compression.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple

from penstock.state.api import Entries
from penstock.state.segments import EncodedSegment, SegmentInfo, SegmentKind, StoreKey, encode_snapshot

_MOST_WITHIN = 64
_KIB = 1024


@dataclass(frozen=True)
class MaintenancePolicy:
    """The limits of merges and snapshots; all sizes are bytes of content.

    Args:
        least_budget: the budget of every commit, however small.
        fan_in: number of neighbours of one tier in a merge.
        tiers: upper bounds of the tiers; larger deltas are not merged.
        least_log: no snapshots while the deltas are smaller.
        most_snapshots: a step is at least this fraction of all snapshots, which keeps their number near this value.
        most_deltas: with more deltas, a round of snapshots begins, whatever their size.
    """

    least_budget: int = 4 * _KIB * _KIB
    fan_in: int = 8
    tiers: tuple[int, ...] = (16 * _KIB, 128 * _KIB, 512 * _KIB)
    least_log: int = 256 * _KIB
    most_snapshots: int = 256
    most_deltas: int = 256

    def budget(self, bytes_written: int) -> int:
        """Return the number of bytes that a commit of `bytes_written` bytes may merge and snapshot."""
        return max(2 * bytes_written, self.least_budget)


DEFAULT_POLICY = MaintenancePolicy()


class SnapshotStep(NamedTuple):
    """A snapshot due with a commit, for `encode_snapshot`.

    It has the position of the base, the round, the first key and the size.
    """

    position: bytes
    cycle: int
    start: StoreKey | None
    content_bytes: int


class Maintenance(NamedTuple):
    """The extra work of a commit: groups of neighbours to merge, and a snapshot step."""

    merges: tuple[tuple[SegmentInfo, ...], ...]
    snapshot: SnapshotStep | None


class Path(NamedTuple):
    """The way of a base to the head.

    Either `Base.rebuild` with all `segments` in order, or `Base.apply` for each in order. Each application may be
    stamped with `last` of its segment, a rebuild with the head.
    """

    rebuild: bool
    segments: tuple[SegmentInfo, ...]


@dataclass(frozen=True)
class SegmentLog:
    """The live segments of one task.

    Args:
        deltas: in the order of the chain.
        snapshots: in the order of writing.
    """

    deltas: tuple[SegmentInfo, ...] = ()
    snapshots: tuple[SegmentInfo, ...] = ()

    @property
    def head(self) -> bytes | None:
        """The position after the last commit, or None before the first."""
        return self.deltas[-1].last if self.deltas else None

    def last_commit(self) -> tuple[SegmentInfo, ...]:
        """Return the deltas of the newest commit.

        Together they contain its carried records; the last one contains the checkpoint.
        """
        start = len(self.deltas) - 1
        while start > 0 and not self.deltas[start - 1].final:
            start -= 1
        return self.deltas[max(start, 0) :]

    def ids(self) -> set[bytes]:
        """Return the ids of all live segments."""
        return {info.id for info in (*self.deltas, *self.snapshots)}

    def content_bytes(self) -> int:
        """Return the total size in bytes of all live segments before compression."""
        return sum(info.content_bytes for info in (*self.deltas, *self.snapshots))

    def file_bytes(self) -> int:
        """Return the total size in bytes of the files of all live segments."""
        return sum(info.file_bytes for info in (*self.deltas, *self.snapshots))

    def append(self, commit: Sequence[SegmentInfo]) -> SegmentLog:
        """Return the log after a commit; raises ValueError if it does not follow the head."""
        head, sequence = self.head, self.deltas[-1].sequence if self.deltas else 0
        appended = list(self.deltas)
        for info in commit:
            if info.parent != head:
                raise ValueError(
                    f"The segment {info.id.hex()} does not follow the head of the log: its task had another base."
                )
            sequence += 1
            appended.append(info._replace(sequence=sequence))
            head = info.last
        return replace(self, deltas=tuple(appended))

    def with_merged(self, group: Sequence[SegmentInfo], merged: SegmentInfo) -> SegmentLog:
        """Return the log with `merged` in place of `group`; raises ValueError if not neighbours."""
        place = self.deltas.index(group[0])
        stop = place + len(group)
        if self.deltas[place:stop] != tuple(group) or (merged.parent, merged.last) != (group[0].parent, group[-1].last):
            raise ValueError(f"The segment {merged.id.hex()} was not merged from these neighbours of the log.")
        within = [position for info in group for position in (*info.within, info.last)][:-1]
        merged = merged._replace(within=tuple(within[-_MOST_WITHIN:]), sequence=group[-1].sequence)
        return replace(self, deltas=(*self.deltas[:place], merged, *self.deltas[stop:]))

    def with_snapshots(self, written: Sequence[SegmentInfo]) -> SegmentLog:
        """Return the log after the snapshot step of its last commit, without superseded segments.

        Raises ValueError if the snapshots are not of the position before that commit.
        """
        first = self.last_commit()[0]
        if written[0].last != first.parent:
            raise ValueError(f"The snapshot {written[0].id.hex()} does not show the position before the last commit.")
        cycle, reached = written[-1].cycle, written[-1].end
        kept = [info for info in self.snapshots if info.cycle == cycle or _reaches_beyond(info, reached)]
        snapshots = (*kept, *(info._replace(sequence=first.sequence - 1) for info in written))
        deltas = self.deltas
        if any(info.end is None for info in snapshots):  # a whole round contains everything older than itself
            deltas = tuple(info for info in deltas if info.sequence > snapshots[0].sequence)
        return SegmentLog(deltas, snapshots)


def path(log: SegmentLog, from_position: bytes | None) -> Path:
    """Return the way of a base at `from_position` (None: empty) to the head of `log`.

    The base is rebuilt if `from_position` is not in the log: it is too old, or of another history.
    """
    if from_position is not None:
        if log.deltas and log.deltas[0].parent == from_position:
            return Path(False, log.deltas)
        for place, info in enumerate(log.deltas):
            if from_position == info.last:
                return Path(False, log.deltas[place + 1 :])
            if from_position in info.within:
                return Path(False, log.deltas[place:])
    return Path(True, log.snapshots + log.deltas)


def maintenance_due(log: SegmentLog, live: int, policy: MaintenancePolicy = DEFAULT_POLICY) -> Maintenance:
    """Return the extra work of the commit that has just been appended to `log`.

    The snapshots must be taken from the base under the task's uncommitted writes, at the position before the commit.

    live: the number of its entries.
    """
    commit = log.last_commit()
    if not commit:
        return Maintenance((), None)
    allowed = policy.budget(sum(info.content_bytes for info in commit))
    merges = _merges_due(log.deltas[: len(log.deltas) - len(commit)], allowed, policy)
    allowed -= sum(info.content_bytes for group in merges for info in group)
    return Maintenance(merges, _snapshot_due(log, commit, live, allowed, policy))


def garbage(on_disk: Iterable[bytes], retained: Iterable[SegmentLog]) -> set[bytes]:
    """Return the segments `on_disk` (ids) that are in no retained log."""
    live: set[bytes] = set()
    for log in retained:
        live |= log.ids()
    return set(on_disk) - live


def entries_from(
    base: Entries, store_names: Iterable[str], start: StoreKey | None
) -> Iterator[tuple[str, Iterator[tuple[bytes, bytes]]]]:
    """Yield name and entries of each store of `base` from `start` on, for `encode_snapshot`."""
    for name in sorted(store_names):
        if start is None or name >= start.store:
            from_key = start.key if start is not None and name == start.store else None
            yield name, base.view(name).range(from_key, None, False)


def whole_snapshot(
    base: Entries, stores: Mapping[str, str], position: bytes, cycle: int, step_bytes: int, max_bytes: int
) -> Iterator[list[EncodedSegment]]:
    """Yield the snapshots of all entries of `base`, in steps of `step_bytes`.

    stores: the stores, each with its kind. The other arguments are those of `encode_snapshot`.
    """
    start: StoreKey | None = None
    while True:
        entries = entries_from(base, stores, start)
        step = encode_snapshot(position, cycle, start, tuple(sorted(stores.items())), entries, step_bytes, max_bytes)
        yield step
        start = step[-1].info.end
        if start is None:
            return


def log_to_json(log: SegmentLog) -> dict[str, Any]:
    """Return `log` as JSON values."""
    return {
        "deltas": [_info_to_json(info) for info in log.deltas],
        "snapshots": [_info_to_json(info) for info in log.snapshots],
    }


def log_from_json(fields: dict[str, Any]) -> SegmentLog:
    """Return the log from the output of `log_to_json`."""
    return SegmentLog(tuple(map(_info_from_json, fields["deltas"])), tuple(map(_info_from_json, fields["snapshots"])))


# ---------- planning


def _merges_due(
    deltas: Sequence[SegmentInfo], allowed: int, policy: MaintenancePolicy
) -> tuple[tuple[SegmentInfo, ...], ...]:
    """Return runs of enough neighbours of one tier, newest first, within `allowed` bytes."""
    groups: list[tuple[SegmentInfo, ...]] = []
    tiers = [bisect_right(policy.tiers, info.content_bytes) for info in deltas]
    stop = len(deltas)
    while stop > 0:
        start = stop - 1
        while start > 0 and tiers[start - 1] == tiers[stop - 1]:
            start -= 1
        if tiers[start] < len(policy.tiers):
            sizes = list(accumulate(info.content_bytes for info in deltas[start:stop]))
            group = deltas[start : start + bisect_right(sizes, allowed)]
            if len(group) >= policy.fan_in:
                groups.append(tuple(group))
                allowed -= sizes[len(group) - 1]
        stop = start
    return tuple(groups)


def _snapshot_due(
    log: SegmentLog, commit: Sequence[SegmentInfo], live: int, allowed: int, policy: MaintenancePolicy
) -> SnapshotStep | None:
    """Return the next step of the current round, or the first of a new one.

    A new round begins if the deltas exceed a quarter of the snapshots, but not while at most a quarter of the data
    written before the commit is outdated.
    """
    shown = sum(info.content_bytes for info in log.snapshots)
    entries = sum(info.entries for info in log.snapshots)
    mean = shown // entries if entries else 0

    def weight(infos: Iterable[SegmentInfo]) -> int:  # a delete also supersedes the deleted entry
        return sum(info.content_bytes + 2 * info.deletes * mean for info in infos)

    position = commit[0].parent
    size = min(allowed, max(2 * weight(commit), shown // policy.most_snapshots, policy.least_log))
    if position is None or size <= 0 or weight(log.deltas) < max(shown // 4, policy.least_log):
        return None
    newest = log.snapshots[-1] if log.snapshots else None
    if newest is None or newest.end is None:
        before = log.deltas[: len(log.deltas) - len(commit)]
        if len(before) <= policy.most_deltas and _outdated_at_most((*log.snapshots, *before), live) <= 0.25:
            return None
        return SnapshotStep(position, 1 if newest is None else newest.cycle + 1, None, size)
    return SnapshotStep(position, newest.cycle, newest.end, size)


def _outdated_at_most(written: Sequence[SegmentInfo], live: int) -> float:
    """Return the largest fraction of `written` that may be outdated.

    live: the number of entries of a base with all of it. Assumes that every missing entry was as large as the largest.
    """
    outdated = sum(info.entries for info in written) - live
    largest = max((info.largest for info in written), default=0)
    return outdated * largest / max(sum(info.content_bytes for info in written), 1)


def _reaches_beyond(info: SegmentInfo, reached: StoreKey | None) -> bool:
    """Return whether a previous round's snapshot has keys not yet reached by this round."""
    return reached is not None and (info.end is None or info.end > reached)


# ---------- JSON


def _info_to_json(info: SegmentInfo) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": info.id.hex(),
        "kind": info.kind.value,
        "bytes": info.file_bytes,
        "content": info.content_bytes,
        "entries": info.entries,
        "deletes": info.deletes,
        "largest": info.largest,
        "sequence": info.sequence,
    }
    if info.parent is not None:
        fields["parent"] = info.parent.hex()
    if info.last != info.id:
        fields["last"] = info.last.hex()
    if not info.final:
        fields["final"] = False
    if info.within:
        fields["within"] = [position.hex() for position in info.within]
    if info.kind is SegmentKind.SNAPSHOT:
        fields["span"] = [
            info.cycle,
            *(None if place is None else [place.store, place.key.hex()] for place in (info.start, info.end)),
        ]
    return fields


def _info_from_json(fields: dict[str, Any]) -> SegmentInfo:
    identity = bytes.fromhex(fields["id"])
    cycle, start, end = fields.get("span", (0, None, None))
    return SegmentInfo(
        identity,
        SegmentKind(fields["kind"]),
        bytes.fromhex(fields["parent"]) if "parent" in fields else None,
        bytes.fromhex(fields["last"]) if "last" in fields else identity,
        fields["bytes"],
        fields["content"],
        fields["entries"],
        fields["deletes"],
        fields["sequence"],
        fields.get("final", True),
        tuple(map(bytes.fromhex, fields.get("within", ()))),
        cycle,
        None if start is None else StoreKey(start[0], bytes.fromhex(start[1])),
        None if end is None else StoreKey(end[0], bytes.fromhex(end[1])),
        fields.get("largest", fields["content"]),
    )
