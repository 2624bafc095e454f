"""Snapshots of task state on any file system: naming, writing, reading and deletion.

    <penstock.state.remote.dir>/<application.id>/<task>/<position>-<kind>-<id>/
      <segment>     entries, named by the digest of their content (`state.segments`)
      snapshot      the sealed manifest; written when all segments are durable

- The position is the sum of the next offsets of the changelogs: of two snapshots of one kind, the larger one is newer,
  regardless of writer and time.
- The kind is a digest of the origin of a snapshot (`SnapshotOrigin`): another application, other stores or layouts,
  recreated changelogs, or another format give another kind. Snapshots of different kinds are never compared.
- The id is random: two instances never write the same file. A directory left by a crashed writer has no file
  `snapshot`, and is deleted with the old snapshots.
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
"""Number of whole snapshots kept for a task: an instance may read the older one."""

_MANIFEST: Final = "snapshot"
_KIND_DIGITS: Final = 16
_POSITION_DIGITS: Final = 20


class UnusableSnapshotError(StreamsError):
    """A snapshot is not whole, or cannot be read at the moment."""


class Changelog(NamedTuple):
    """The changelog partition of a store. topic_id: empty if the brokers have no topic ids."""

    topic: str
    partition: int
    topic_id: str


@dataclass(frozen=True)
class SnapshotOrigin:
    """The origin of a snapshot.

    Args:
        application_id: the application.
        task: the task.
        layouts: the layout of the entries of each store, by name of the store.
        changelogs: the changelogs of the same stores.
    """

    application_id: str
    task: str
    layouts: Mapping[str, str]
    changelogs: Mapping[str, Changelog]

    @cached_property
    def kind(self) -> str:
        """A digest of all fields and of the format."""
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
        """Return the parsed name, or None if `text` is not the name of a snapshot."""
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
    """The content of the file `snapshot`.

    Args:
        offsets: the next changelog offset of each store; the entries result from all records before it.
        processor_metadata: the metadata of stores and processors.
        current_ms: a time of the machine's clock at which no changelog had a record at or after these offsets.
        segments: the segments with the entries.
    """

    offsets: dict[str, int]
    processor_metadata: dict[str, int]
    current_ms: int
    segments: list[WrittenSegment]

    @property
    def position(self) -> int:
        """The position of the snapshot; higher is newer."""
        return sum(self.offsets.values())


class RemoteSnapshots:
    """The snapshots of one application; any number of processes may use them.

    Raises ConfigError for an unknown file system.

    Args:
        uri: the directory of `penstock.state.remote.dir`.
        application_id: names the subdirectory of the application.
    """

    def __init__(self, uri: str, application_id: str) -> None:
        self._files = Files(uri).below(application_id)
        self.uri = self._files.uri
        """The directory of the application."""

    def names(self, task: TaskId) -> list[SnapshotName]:
        """Return the snapshots of `task`, whole or not, the newest first.

        Raises UnusableSnapshotError if the directory cannot be listed.
        """
        try:
            found = [SnapshotName.parse(each.name) for each in self._files.find(str(task)) if each.is_directory]
        except Exception as error:  # file systems may raise anything
            raise _unreadable(f"{without_secrets(self.uri)}/{task}", error) from error
        return sorted((name for name in found if name is not None), reverse=True)

    def read(self, task: TaskId, name: SnapshotName) -> Snapshot | None:
        """Return a snapshot, or None if it is not whole.

        A snapshot is not whole while it is being written, and after a crash of its writer.

        Raises UnusableSnapshotError if it is damaged or cannot be read.
        """
        data = self._read(f"{task}/{name}/{_MANIFEST}")
        if data is None:
            return None
        content = unsealed(data)
        try:
            if content is None:
                raise UnusableSnapshotError(f"The file {_MANIFEST} is torn or was changed.")
            return msgspec.json.decode(content, type=Snapshot)
        except msgspec.MsgspecError as error:
            raise UnusableSnapshotError(f"The file {_MANIFEST} has an unexpected content: {error}") from error

    def newest(self, task: TaskId, kind: str) -> Snapshot | None:
        """Return the newest whole snapshot of a kind, or None if absent.

        Raises UnusableSnapshotError if the snapshots cannot be read.
        """
        for name in self.names(task):
            if name.kind == kind and (snapshot := self.read(task, name)) is not None:
                return snapshot
        return None

    def changes(self, task: TaskId, name: SnapshotName, snapshot: Snapshot) -> Iterator[Changes]:
        """Yield the entries of a snapshot in parts, some of them read ahead.

        Raises UnusableSnapshotError if a part is missing or cannot be read, CorruptedSegmentError or
        IncompatibleCheckpointError if it is damaged.
        """
        infos = [
            SegmentInfo(bytes.fromhex(each.id), SegmentKind.SNAPSHOT, None, b"", each.file_bytes, 0, each.entries, 0)
            for each in snapshot.segments
        ]
        return changes_of(infos, partial(self._segment, f"{task}/{name}"))

    def write(self, task: TaskId, kind: str, snapshot: Snapshot, segments: Iterable[EncodedSegment]) -> SnapshotName:
        """Write a snapshot, and its manifest when all segments are durable; return its name.

        Errors of `segments` and of the file system end it. Raises UnusableSnapshotError if another instance has deleted
        a segment meanwhile.

        Args:
            task: the task.
            kind: of its origin.
            snapshot: the content of the manifest, without segments.
            segments: the entries.
        """
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
            with suppress(Exception):  # it is deleted with later ones
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
        """Delete obsolete snapshots of `task` and those of other kinds; return the number deleted.

        If a snapshot of this kind is whole, those of other kinds are leftovers of other topologies or topics.
        """
        whole = unfinished = deleted = 0
        for name in self.names(task):
            is_of_kind = name.kind == kind
            is_whole = is_of_kind and whole < KEPT and self._is_whole(task, name)
            if is_whole:
                whole += 1
            elif is_of_kind and whole < KEPT and unfinished < KEPT:
                unfinished += 1  # another instance may be writing it
            else:
                # the manifest first: readers then see that the snapshot is not whole
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
        except Exception as error:  # file systems may raise anything
            raise _unreadable(path, error) from error


def _unreadable(path: str, error: Exception) -> UnusableSnapshotError:
    return UnusableSnapshotError(f"{path} cannot be read: {type(error).__name__}: {error}")
