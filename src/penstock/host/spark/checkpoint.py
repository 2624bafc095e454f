"""The checkpoint of an application: Penstock's own files beside Spark's, on any file system that pyarrow knows.

    <penstock.checkpoint.dir>/
      spark/                Spark's checkpoint of the query; not touched here
      metadata              what was fixed when the checkpoint was made (`Metadata`)
      generation            the number of the newest driver; who has a smaller one is a zombie
      lock                  held by the running driver (local file systems only)
      manifests/<epoch>     one an epoch: the head and the live segments of each task (`Manifest`); epoch 0 is empty and
                            has none
      state/<task>/<id>     segments, and files of rows carried to the next epoch: immutable, named by a digest
      restoring/<task>      how far a task is in rebuilding its base, while that takes long; news, not state

Every file appears whole or not at all: it is written under a temporary name and renamed, on object stores put in one
request. A segment in no retained manifest is garbage. Nothing here knows what is in a segment, or of Spark.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
from pyarrow import fs

from penstock.errors import IncompatibleCheckpointError, StreamsError, TaskMigratedError

FORMAT = 1


@dataclass(frozen=True)
class TaskEntry:
    """What a manifest knows of one task.

    head: the position (hex) after its last commit, empty before the first. segments: its log of live segments as
    `log_to_json` gives it; decoded only where a task needs it. due_ms: when its next wall-clock punctuation is due,
    None for never. carried: its file of rows for the next epoch as `encode_carried` tells of it, None for no rows.
    """

    head: str = ""
    segments: Mapping[str, Any] = field(default_factory=lambda: {"deltas": [], "snapshots": []})
    due_ms: int | None = None
    carried: Mapping[str, Any] | None = None

    def ids(self) -> set[str]:
        """Return the ids (hex) of all live segments and of the file of carried rows."""
        files = {info["id"] for kind in ("deltas", "snapshots") for info in self.segments[kind]}
        return files if self.carried is None else {*files, self.carried["id"]}


@dataclass(frozen=True)
class TopicFigures:
    """Records and bytes taken from one topic in one epoch."""

    records: int
    bytes: int


@dataclass(frozen=True)
class Manifest:
    """The commit of one epoch: what each task has, and figures of the epoch.

    tasks: by task id as text. planned_ms, committed_ms: when the epoch was planned and committed. offsets: position
    reached in each topic.
    input: by topic. records_out: records written to topics. printed: what user functions printed.
    """

    query_id: str
    epoch: int
    generation: int
    planned_ms: int
    committed_ms: int
    tasks: Mapping[str, TaskEntry]
    offsets: Mapping[str, list[int]] = field(default_factory=dict)
    input: Mapping[str, TopicFigures] = field(default_factory=dict)
    records_out: int = 0
    printed: str = ""

    def entry(self, task: str) -> TaskEntry:
        """Return what is known of `task`; before its first commit that is an empty entry."""
        return self.tasks.get(task, TaskEntry())

    def segments(self) -> set[tuple[str, str]]:
        """Return all segments and files of carried rows that this manifest names, as (task, id)."""
        return {(task, segment) for task, entry in self.tasks.items() for segment in entry.ids()}

    def due_ms(self) -> int | None:
        """Return when the earliest wall-clock punctuation of all tasks is due, None for never."""
        return min((entry.due_ms for entry in self.tasks.values() if entry.due_ms is not None), default=None)


@dataclass(frozen=True)
class Metadata:
    """What is fixed when a checkpoint is made, and with what a program must agree that goes on with it.

    query_id: the identity of this life of the application, drawn at random. begin: where each source topic was begun,
    an offset a partition.
    partitions: Spark partitions of each level. sink_partitions: those of the sink, and of the commits topic. shape: the
        tasks, nodes and stores,
    as `recipe.shape` describes them.
    """

    query_id: str
    application_id: str
    begin: Mapping[str, list[int]]
    partitions: tuple[int, ...]
    sink_partitions: int
    shape: Mapping[str, Any]
    format: int = FORMAT


class Checkpoint:
    """Reads and writes the files of one checkpoint; any number of processes may have one open."""

    def __init__(self, uri: str) -> None:
        """Open the checkpoint at `uri`: a path, or a URI of a file system that pyarrow knows (file, hdfs, s3, gs
        ...)."""
        if "://" in uri:
            self._files, self._root = fs.FileSystem.from_uri(uri)
        else:
            self._files, self._root = fs.LocalFileSystem(), os.path.abspath(uri)
        self._renames = isinstance(self._files, (fs.LocalFileSystem, fs.HadoopFileSystem))
        self._made: set[str] = set()
        self.uri = uri

    @property
    def local_path(self) -> str | None:
        """The directory where it is on a local file system, None elsewhere."""
        return self._root if isinstance(self._files, fs.LocalFileSystem) else None

    def spark_location(self) -> str:
        """Return where Spark keeps its own checkpoint."""
        return f"{self.uri.rstrip('/') if '://' in self.uri else self._root}/spark"

    def has_spark_offsets(self) -> bool:
        """Return whether Spark has planned an epoch on this checkpoint."""
        return bool(self._files.get_file_info(f"{self._root}/spark/offsets").type == fs.FileType.Directory)

    def forget_unfinished_start(self) -> None:
        """Delete Spark's checkpoint if it planned no epoch: what a kill leaves of the first offset's file, Spark takes
        for a foreign checkpoint and refuses."""
        spark = f"{self._root}/spark"
        found = self._files.get_file_info(fs.FileSelector(f"{spark}/offsets", allow_not_found=True))
        if found and not any(each.base_name.isdigit() for each in found):
            self._files.delete_dir(spark)

    # ---------------------------------------- metadata and generation

    def read_metadata(self) -> Metadata | None:
        """Return the metadata, None where there is no checkpoint yet; raises IncompatibleCheckpointError for another
        format."""
        data = self._read("metadata")
        if data is None:
            return None
        fields = orjson.loads(data)
        if fields.get("format") != FORMAT:
            raise IncompatibleCheckpointError(
                f"The checkpoint {self.uri} has format {fields.get('format')}, this version of Penstock reads format "
                f"{FORMAT}: run the version "
                "that made it, or start anew with another penstock.checkpoint.dir."
            )
        return Metadata(**{**fields, "partitions": tuple(fields["partitions"])})

    def write_metadata(self, metadata: Metadata) -> None:
        """Make the checkpoint."""
        self._write("metadata", orjson.dumps(asdict(metadata), option=orjson.OPT_INDENT_2))

    def read_generation(self) -> int:
        """Return the number of the newest driver, 0 before the first."""
        data = self._read("generation")
        return 0 if data is None else int(data)

    def take_generation(self) -> int:
        """Become the newest driver: return a number larger than every one before."""
        generation = self.read_generation() + 1
        self._write("generation", str(generation).encode())
        return generation

    def check_generation(self, generation: int) -> None:
        """Raise TaskMigratedError if a newer driver than `generation` has taken over."""
        newest = self.read_generation()
        if newest > generation:
            raise TaskMigratedError(
                f"Another program has taken over the checkpoint {self.uri} (generation {newest}, this one is "
                f"{generation}); what this one did since "
                "is void. Run only one program with this application.id."
            )

    # ------------------------------------------------------------------------------------------------ manifests

    def read_manifest(self, epoch: int, query_id: str) -> Manifest | None:
        """Return the manifest of `epoch`, None if it is not there; that of epoch 0 is empty and always there."""
        if epoch == 0:
            return Manifest(query_id, 0, 0, 0, 0, {})
        data = self._read(_manifest_path(epoch))
        return None if data is None else decode_manifest(data)

    def write_manifest(self, manifest: Manifest, before_rename: Callable[[], None]) -> None:
        """Commit an epoch; `before_rename` is called when the temporary file is written."""
        self._write(_manifest_path(manifest.epoch), encode_manifest(manifest), before_rename)

    def delete_manifest(self, epoch: int) -> None:
        """Delete the manifest of `epoch` if it is there."""
        self._delete(_manifest_path(epoch))

    def first_epoch(self) -> int:
        """Return the epoch of the oldest manifest, 0 if there is none; lists a directory."""
        return min(self._epochs(), default=0)

    def last_epoch(self) -> int:
        """Return the epoch of the newest manifest, 0 if there is none; lists a directory."""
        return max(self._epochs(), default=0)

    def _epochs(self) -> list[int]:
        infos = self._files.get_file_info(fs.FileSelector(f"{self._root}/manifests", allow_not_found=True))
        return [int(info.base_name) for info in infos if info.base_name.isdigit()]

    # ------------------------------------------------------------------------------------------------ segments

    def read_segment(self, task: str, segment: str) -> bytes | None:
        """Return the bytes of a segment, None if it is not there."""
        return self._read(_segment_path(task, segment))

    def read_segment_range(self, task: str, segment: str, offset: int, length: int) -> bytes | None:
        """Return `length` bytes of a segment from `offset` on, None if it is not there."""
        try:
            with self._files.open_input_file(f"{self._root}/{_segment_path(task, segment)}") as file:
                return bytes(file.read_at(length, offset))
        except FileNotFoundError:
            return None

    def write_segment(self, task: str, segment: str, data: bytes, before_rename: Callable[[], None]) -> None:
        """Write a segment; harmless when it is there already, since equal ids mean equal bytes."""
        self._write(_segment_path(task, segment), data, before_rename)

    def delete_segment(self, task: str, segment: str) -> None:
        """Delete a segment if it is there."""
        self._delete(_segment_path(task, segment))

    def list_segments(self, task: str) -> list[tuple[str, int]]:
        """Return (id, time of writing in ms) of all files of `task`, torn ones under their temporary names; lists a
        directory."""
        infos = self._files.get_file_info(fs.FileSelector(f"{self._root}/state/{task}", allow_not_found=True))
        return [(info.base_name, int(info.mtime_ns // 1_000_000)) for info in infos if info.type == fs.FileType.File]

    # ------------------------------------------------------------------------------------------------ restores

    def write_restore_state(self, task: str, data: bytes) -> None:
        """Say how far `task` is in rebuilding its base."""
        self._write(_restore_path(task), data)

    def delete_restore_state(self, task: str) -> None:
        """Say no more of `task`."""
        self._delete(_restore_path(task))

    def restore_states(self) -> dict[str, bytes]:
        """Return what is said of each task that rebuilds its base; lists a directory."""
        infos = self._files.get_file_info(fs.FileSelector(f"{self._root}/restoring", allow_not_found=True))
        found = {name: self._read(_restore_path(name)) for name in (i.base_name for i in infos) if name[0] != "."}
        return {task: data for task, data in found.items() if data is not None}

    # ------------------------------------------------------------------------------------------------ files

    def _read(self, path: str) -> bytes | None:
        try:
            with self._files.open_input_stream(f"{self._root}/{path}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def _write(self, path: str, data: bytes, before_rename: Callable[[], None] | None = None) -> None:
        target = f"{self._root}/{path}"
        directory = target.rpartition("/")[0]
        if directory not in self._made:
            self._files.create_dir(directory, recursive=True)
            self._made.add(directory)
        if not self._renames:
            with self._files.open_output_stream(target) as stream:
                stream.write(data)
            return
        temporary = f"{directory}/.{uuid.uuid4().hex}.tmp"
        with self._files.open_output_stream(temporary) as stream:
            stream.write(data)
        if before_rename is not None:
            before_rename()
        if not isinstance(self._files, fs.LocalFileSystem):  # HDFS does not rename over a file
            self._delete(path)
        self._files.move(temporary, target)

    def _delete(self, path: str) -> None:
        try:
            self._files.delete_file(f"{self._root}/{path}")
        except FileNotFoundError:
            return


def encode_manifest(manifest: Manifest) -> bytes:
    """Return a manifest as bytes."""
    fields = {
        "format": FORMAT,
        "query_id": manifest.query_id,
        "epoch": manifest.epoch,
        "generation": manifest.generation,
        "planned_ms": manifest.planned_ms,
        "committed_ms": manifest.committed_ms,
        "tasks": {
            name: [entry.head, entry.segments, entry.due_ms, entry.carried] for name, entry in manifest.tasks.items()
        },
        "offsets": manifest.offsets,
        "input": {topic: [figures.records, figures.bytes] for topic, figures in manifest.input.items()},
        "records_out": manifest.records_out,
        "printed": manifest.printed,
    }
    return orjson.dumps(fields)


def decode_manifest(data: bytes) -> Manifest:
    """Return the manifest that `data` was made from; raises StreamsError for another format."""
    fields = orjson.loads(data)
    if fields.pop("format", None) != FORMAT:
        raise StreamsError(
            "A manifest has a format that this version of Penstock does not read; run the version that wrote it."
        )
    fields["tasks"] = {name: TaskEntry(*entry) for name, entry in fields["tasks"].items()}
    fields["input"] = {topic: TopicFigures(*figures) for topic, figures in fields["input"].items()}
    return Manifest(**fields)


def _manifest_path(epoch: int) -> str:
    return f"manifests/{epoch:012d}"


def _restore_path(task: str) -> str:
    return f"restoring/{task}"


def _segment_path(task: str, segment: str) -> str:
    return f"state/{task}/{segment}"
