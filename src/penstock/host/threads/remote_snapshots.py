"""Snapshots of the state of tasks on any file system: how they are named, written, read and deleted.

    <penstock.state.remote.dir>/<application.id>/<task>/<position>-<kind>-<id>/
      <segment>     entries, named by the digest of their content (`state.segments`)
      snapshot      what they are, sealed; written when all of them are durable

- The position is the sum of the next offsets of the changelogs: of two snapshots of one kind, the larger one is newer,
  whoever has written it and whenever.
- The kind is a digest of what a snapshot is of (`SnapshotOrigin`): another application, other stores or layouts,
  changelogs that were deleted and made again, or another format give another kind, and are never compared.
- The id is drawn at random: two instances never write the same file. What an instance has left that died while it
  wrote has no file `snapshot`, and is deleted with what is old.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, NamedTuple

import msgspec

from penstock.errors import StreamsError
from penstock.host.crashpoints import crash_point
from penstock.host.storage.files import Files, without_secrets
from penstock.host.storage.sealed_files import digest_of, sealed, unsealed
from penstock.plan.subtopology import TaskId
from penstock.state.api import Changes
from penstock.state.restoring import changes_of
from penstock.state.segments import EncodedSegment, SegmentInfo, SegmentKind

FORMAT: Final = 1

KEPT: Final = 2
"""Whole snapshots of a task that are kept: an instance may be reading the older one."""

_MANIFEST: Final = "snapshot"
_KIND_DIGITS: Final = 16
_POSITION_DIGITS: Final = 20


class UnusableSnapshotError(StreamsError):
    """A snapshot is not whole, or cannot be read at the moment."""


class Changelog(NamedTuple):
    """The changelog partition of a store. topic_id: empty where brokers give none."""

    topic: str
    partition: int
    topic_id: str


@dataclass(frozen=True)
class SnapshotOrigin:
    """What a snapshot is of. layouts: how the stores lay out their entries, by name. changelogs: of the same stores."""

    application_id: str
    task: str
    layouts: Mapping[str, str]
    changelogs: Mapping[str, Changelog]

    @cached_property
    def kind(self) -> str:
        """A digest of all of it and of the format."""
        content = [FORMAT, self.application_id, self.task, self.layouts, self.changelogs]
        return digest_of(msgspec.json.encode(content, order="deterministic"))[:_KIND_DIGITS]


class SnapshotName(NamedTuple):
    """The name of the directory of a snapshot; names sort by position."""

    position: int
    kind: str
    id: str

    def __str__(self) -> str:
        return f"{self.position:0{_POSITION_DIGITS}}-{self.kind}-{self.id}"

    @staticmethod
    def parse(text: str) -> SnapshotName | None:
        """Return the name that `text` is, None if it is of something else."""
        position, _, rest = text.partition("-")
        kind, _, id = rest.partition("-")
        is_name = len(position) == _POSITION_DIGITS and position.isdecimal() and len(kind) == _KIND_DIGITS and id
        return SnapshotName(int(position), kind, id) if is_name else None


class WrittenSegment(NamedTuple):
    """A segment of a snapshot."""

    id: str
    file_bytes: int
    entries: int


class Snapshot(msgspec.Struct, frozen=True):
    """What the file `snapshot` says.

    offsets: the next offset in the changelog of each store; the entries are what all records before it make.
    processor_metadata: what stores and processors remember besides entries. current_ms: a time of the machine at which
    no changelog had a record at or after these offsets.
    """

    offsets: dict[str, int]
    processor_metadata: dict[str, int]
    current_ms: int
    segments: list[WrittenSegment]

    @property
    def position(self) -> int:
        """How new the snapshot is."""
        return sum(self.offsets.values())


class RemoteSnapshots:
    """The snapshots of one application; any number of processes may use them."""

    def __init__(self, uri: str, application_id: str) -> None:
        """Use the directory `uri`; raises ConfigError for a file system that nobody knows."""
        self._files = Files(uri).below(application_id)
        self.uri = self._files.uri
        """The directory of the application."""

    def names(self, task: TaskId) -> list[SnapshotName]:
        """Return what there is of `task`, whole or not, the newest first; raises UnusableSnapshotError if that cannot
        be found out."""
        try:
            found = [SnapshotName.parse(each.name) for each in self._files.find(str(task)) if each.is_directory]
        except Exception as error:  # whatever a file system raises
            raise _unreadable(f"{without_secrets(self.uri)}/{task}", error) from error
        return sorted((name for name in found if name is not None), reverse=True)

    def read(self, task: TaskId, name: SnapshotName) -> Snapshot | None:
        """Return a snapshot, None if it is not whole: it is being written, or its writer has died. Raises
        UnusableSnapshotError if it is damaged or cannot be read."""
        data = self._read(f"{task}/{name}/{_MANIFEST}")
        if data is None:
            return None
        content = unsealed(data)
        try:
            if content is None:
                raise UnusableSnapshotError(f"The file {_MANIFEST} is torn or was changed.")
            return msgspec.json.decode(content, type=Snapshot)
        except msgspec.MsgspecError as error:
            raise UnusableSnapshotError(f"The file {_MANIFEST} is not what it should be: {error}") from error

    def newest(self, task: TaskId, kind: str) -> Snapshot | None:
        """Return the newest whole snapshot of a kind, None if there is none. Raises UnusableSnapshotError if that
        cannot be found out."""
        for name in self.names(task):
            if name.kind == kind and (snapshot := self.read(task, name)) is not None:
                return snapshot
        return None

    def changes(self, task: TaskId, name: SnapshotName, snapshot: Snapshot) -> Iterator[Changes]:
        """Yield the entries of a snapshot in parts, some read ahead. Raises UnusableSnapshotError if a part is missing
        or cannot be read, CorruptedSegmentError or IncompatibleCheckpointError if it is damaged."""
        infos = [
            SegmentInfo(bytes.fromhex(each.id), SegmentKind.SNAPSHOT, None, b"", each.file_bytes, 0, each.entries, 0)
            for each in snapshot.segments
        ]
        return changes_of(infos, partial(self._segment, f"{task}/{name}"))

    def write(self, task: TaskId, kind: str, snapshot: Snapshot, segments: Iterable[EncodedSegment]) -> SnapshotName:
        """Write a snapshot, and name it when all of it is durable; return the name. snapshot: without segments. What
        `segments` raises ends it; so does an error of the file system. Raises UnusableSnapshotError if another instance
        has deleted a part meanwhile."""
        name = SnapshotName(snapshot.position, kind, uuid.uuid4().hex)
        directory = f"{task}/{name}"
        written: list[WrittenSegment] = []
        try:
            for info, data in segments:
                self._files.write(f"{directory}/{info.id.hex()}", data)
                written.append(WrittenSegment(info.id.hex(), info.file_bytes, info.entries))
                crash_point("snapshot.segment", 0)
            self._check_all_there(directory, written)
            manifest = msgspec.json.encode(msgspec.structs.replace(snapshot, segments=written))
            self._files.write(
                f"{directory}/{_MANIFEST}", sealed(manifest), partial(crash_point, "snapshot.torn_write", 0)
            )
        except Exception:
            with suppress(Exception):  # it is deleted with the next ones
                self._files.delete_directory(directory)
            raise
        crash_point("snapshot.written", 0)
        return name

    def _check_all_there(self, directory: str, written: list[WrittenSegment]) -> None:
        found = {each.name for each in self._files.find(directory)}
        missing = [each.id for each in written if each.id not in found]
        if missing:
            raise UnusableSnapshotError(
                f"{len(missing)} of {len(written)} segments are gone, the first of them {missing[0]}: another instance "
                "took it for the rest of a snapshot whose writer has died, because newer ones were there."
            )

    def delete_old(self, task: TaskId, kind: str) -> int:
        """Delete what the newest snapshots of `task` make superfluous, and those of other kinds; return how many were
        deleted. Where one of this kind is whole, those are what is left by other topologies or topics."""
        whole = unfinished = deleted = 0
        for name in self.names(task):
            is_of_kind = name.kind == kind
            is_whole = is_of_kind and whole < KEPT and self._is_whole(task, name)
            if is_whole:
                whole += 1
            elif is_of_kind and whole < KEPT and unfinished < KEPT:
                unfinished += 1  # another instance may be writing it
            else:
                # first what names it: whoever finds it then knows that it is not whole
                self._files.delete(f"{task}/{name}/{_MANIFEST}")
                self._files.delete_directory(f"{task}/{name}")
                deleted += 1
        return deleted

    def _is_whole(self, task: TaskId, name: SnapshotName) -> bool:
        try:
            return self.read(task, name) is not None
        except UnusableSnapshotError:
            return False

    def _segment(self, directory: str, info: SegmentInfo) -> bytes:
        data = self._read(f"{directory}/{info.id.hex()}")
        if data is None:
            raise UnusableSnapshotError(f"Its segment {info.id.hex()} is missing.")
        return data

    def _read(self, path: str) -> bytes | None:
        try:
            return self._files.read(path)
        except Exception as error:  # whatever a file system raises
            raise _unreadable(path, error) from error


def _unreadable(path: str, error: Exception) -> UnusableSnapshotError:
    return UnusableSnapshotError(f"{path} cannot be read: {type(error).__name__}: {error}")
