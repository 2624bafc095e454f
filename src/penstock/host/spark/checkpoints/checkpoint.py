"""The checkpoint of an application: Penstock's own files, on any file system that pyarrow supports.

    <penstock.checkpoint.dir>/
      metadata              the current topology version, and its properties fixed at its start (`Metadata`)
      plans/<digest>        the application descriptions of that version (`stored_description`)
      generations/<number>  one per driver that has started, older ones are deleted; a driver without the largest
                            number is a zombie
      lock                  held by the running driver (local file systems only)
      offsets/<epoch>.<g>   the offset log: the end offsets of an epoch, as planned by the driver of generation <g>;
                            written before any record of the epoch can reach a topic
      manifests/<epoch>     one per epoch: the head and the live segments of each task (`Manifest`); epoch 0 is empty
                            and has no manifest
      state/<task>/<id>     segments, and files of rows carried to the next epoch: immutable, named by a digest
      results/<epoch>/      the results of tasks in an epoch that is not yet in a manifest (`result_log`)
      histories/<topic>/    the rows that precede a topic (`stored_history`)
      restoring/<task>.<id> the progress of a worker that restores stores of a task, during long restores; for
                            information, not state
      requests/end          asks the application to process its present input and end (`end_request`)

A changed shape of the topology, or a changed placement of its tasks, starts the next *topology version*: epoch numbers
continue, and the first manifest of the version contains the state that it takes over. The change takes effect when
`metadata` is replaced.

Every file appears completely or not at all, and is durable before any file that depends on it is written (`files`):
segments and carried rows before the manifest that names them, the offset of an epoch before its transactions, its
manifest before the offset of the next. The small files contain a digest of their content (`documents`). A segment in no
retained manifest is garbage. This module knows neither the content of segments nor Spark: each query of Spark has its
own checkpoint in a temporary directory, and nothing depends on it.

Checkpoints of older formats can be read too. In format 3, `format_3` finds the stores that keep headers. Format 2 also
has no digests, and Spark's log instead of offset files: below `spark/<query id>` or `penstock.spark.checkpoint.dir`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from penstock.config import StreamsConfig
from penstock.errors import IncompatibleCheckpointError, TaskMigratedError
from penstock.host.spark.checkpoints.documents import damaged, parsed, unsealed
from penstock.host.spark.checkpoints.replaced_program import ReplacedProgram
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.host.storage.files import Files
from penstock.host.storage.sealed_files import is_sealed, sealed

FORMAT = 4

FORMAT_3, FORMAT_2 = 3, 2

_TOKEN_BITS = 32
"""Random bits in the number of a driver; the bits above count the drivers."""

_DATA_FRAMES = "dataframes"

_NEVER = 1 << 62
"""A time in ms that is never reached."""


@dataclass(frozen=True)
class TopicFigures:
    """Records and bytes read from one topic, or written to it, in one epoch."""

    records: int
    bytes: int


@dataclass(frozen=True)
class Manifest:
    """The commit of one epoch: the state of each task, and figures of the epoch.

    Args:
        tasks: by task id as text.
        planned_ms, committed_ms: times at which the epoch was planned and committed.
        commit_ms, phases_ms: durations of the commit, and of each phase of the epoch.
        offsets, global_offsets: positions reached in each topic, and in the topics of global stores.
        records_out, bytes_sent: records written to topics; bytes that tasks sent to topics and to one another.
        printed: text that user functions printed.
        removed: the state of stores that the program no longer has, by `removed_holder`.
        input, output: by topic. processed, dropped: records by task.
        measured: by task and operation; the empty name has the measurements that belong to no task.
        sensors: measurements of the users' own sensors, of all tasks together.
        read_to_ms: upper bound (exclusive) of the timestamps read from aligned topics (`EpochOffset`).
        leader_epochs, lagging, call_again_before: by topic (`EpochOffset`).
        idle_ms: as in `EpochOffset`; None in manifests of earlier versions of Penstock, which did not record it.
        workers: machine and process of each task that had input or state to process.
        awaited: by task, the partitions (topic and number) for which its waiting records wait.
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
    removed: Mapping[str, TaskEntry] = field(default_factory=dict)
    output: Mapping[str, TopicFigures] = field(default_factory=dict)
    processed: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    bytes_sent: int = 0
    commit_ms: float = 0.0
    measured: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    sensors: Sequence[Any] = field(default_factory=list)
    global_offsets: Mapping[str, list[int]] = field(default_factory=dict)
    read_to_ms: int = 0
    phases_ms: Mapping[str, float] = field(default_factory=dict)
    lagging: Mapping[str, list[int]] = field(default_factory=dict)
    idle_ms: int | None = None
    workers: Mapping[str, str] = field(default_factory=dict)
    awaited: Mapping[str, Sequence[Sequence[Any]]] = field(default_factory=dict)
    leader_epochs: Mapping[str, list[int]] = field(default_factory=dict)
    call_again_before: Mapping[str, list[int]] = field(default_factory=dict)

    def entry(self, task: str) -> TaskEntry:
        """Return the entry of `task`, or of a holder of removed state. It is empty before the first commit."""
        return self.tasks.get(task) or self.removed.get(task) or TaskEntry()

    def segments(self) -> set[tuple[str, str]]:
        """Return all segments and files of carried rows that this manifest names, as (task, id)."""
        entries = (*self.tasks.items(), *self.removed.items())
        return {(task, segment) for task, entry in entries for segment in entry.ids()}

    def due_ms(self) -> int | None:
        """Return when the earliest wall-clock punctuation of all tasks is due, None for never."""
        return min((entry.due_ms for entry in self.tasks.values() if entry.due_ms is not None), default=None)


@dataclass(frozen=True)
class RemovedStore:
    """A store whose state is kept although the program no longer has it."""

    layout: str
    partitions: int

    @property
    def kind(self) -> str:
        """The kind of the store: the beginning of its layout."""
        return self.layout.partition(",")[0]

    def holders(self, store: str) -> list[str]:
        """Return the names under which the state of `store` is kept."""
        return [removed_holder(store, partition) for partition in range(self.partitions)]


@dataclass(frozen=True)
class Metadata:
    """The current topology version, and the properties a program must share to continue the checkpoint.

    Args:
        checkpoint_id, query_id: random identities of the checkpoint through all its topology versions, and of this one.
        begin: the offsets at which this version started to read each source topic, one per partition.
        partitions: Spark partitions of each level.
        sink_partitions: partitions of the sink, and of the commits topic.
        shape: the tasks, nodes and stores, as `placement.shape` describes them.
        plan: the digest of the application description of the last epochs.
        transactional: whether the application writes in transactions.
        start_epoch: the epoch of the first manifest of this version, with the state that it took over; 0 without one.
        start_ms: the clock of that epoch.
        topic_ids: the ids of the source topics and of the topics of global stores, if the brokers assign ids.
        former_owners: query ids of other checkpoints whose committed epochs may be in the commits topic, because this
            checkpoint replaces them; None if the next start accepts all of them.
        replaced: the program that the last switch has replaced.
    """

    checkpoint_id: str
    query_id: str
    application_id: str
    begin: Mapping[str, list[int]]
    partitions: tuple[int, ...]
    sink_partitions: int
    shape: Mapping[str, Any]
    plan: str = ""
    transactional: bool = False
    start_epoch: int = 0
    start_ms: int = 0
    removed: Mapping[str, RemovedStore] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    former_owners: tuple[str, ...] | None = ()
    replaced: ReplacedProgram | None = None
    format: int = FORMAT


def removed_holder(store: str, partition: int) -> str:
    """Return the name of a removed store's partition, in manifests and as directory of segments."""
    return f"removed-{store}-{partition}"


class Checkpoint:
    """Reads and writes the files of one checkpoint. Any number of processes may have it open.

    Args:
        uri: a path, or a URI of a file system that pyarrow supports (file, hdfs, s3, gs ...).
        spark: the directory of Spark's own files, by default below `uri`: the checkpoints of queries between topics and
            DataFrames, and its log in a checkpoint of format 2.
    """

    def __init__(self, uri: str, spark: Files | None = None) -> None:
        self._files = Files(uri)
        self._spark = spark or self._files.below("spark")
        self._spark_is_apart = spark is not None
        self._taken = 0
        self.uri = uri

    @property
    def local_path(self) -> str | None:
        """The directory of the checkpoint on a local file system, None on other file systems."""
        return self._files.local_path

    @property
    def local_paths(self) -> tuple[str, ...]:
        """The directories of the checkpoint, and of Spark's, that are on a local file system."""
        return tuple(path for path in (self._files.local_path, self._spark.local_path) if path is not None)

    def data_frames(self) -> Files:
        """Return the parent directory of Spark's checkpoints of queries between topics and DataFrames."""
        return (self._spark if self._spark_is_apart else self._files).below(_DATA_FRAMES)

    def exists(self) -> bool:
        """Return whether any file exists at the place of the checkpoint, complete or not."""
        return any(each.is_directory or each.name != "lock" for each in self._files.find(""))

    def delete(self) -> None:
        """Delete all files of the checkpoint, and Spark's checkpoints."""
        self._files.clear()
        self._spark.clear()

    def forget_other_descriptions(self, digest: str) -> None:
        """Delete the descriptions other than `digest`, and Spark's log of a checkpoint of format 2."""
        for each in self._spark.find(""):
            if each.name != _DATA_FRAMES:
                self._spark.delete_directory(each.name)
        for each in self._files.find("plans"):
            if each.name != digest:
                self._files.delete(f"plans/{each.name}")

    # ---------------------------------------- metadata and generation

    def read_metadata(self) -> Metadata | None:
        """Return the metadata, None if there is no checkpoint yet.

        Raises IncompatibleCheckpointError for another format, TaskCorruptedError if the file is damaged.
        """
        found = self._document("metadata")
        if found is None:
            return None
        content, is_format_2 = found
        name = self._name("metadata")
        fields = parsed(content, name)
        self._check_format(fields, is_format_2, name)
        try:
            former = fields.get("former_owners")
            return Metadata(
                **{
                    **fields,
                    "partitions": tuple(fields["partitions"]),
                    "removed": {store: RemovedStore(**kept) for store, kept in fields["removed"].items()},
                    "former_owners": None if former is None else tuple(former),
                    "replaced": ReplacedProgram.of_fields(fields.get("replaced")),
                }
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise damaged(name, f"a field is missing or invalid ({error!r})") from error

    def write_metadata(self, metadata: Metadata) -> None:
        """Create the checkpoint, or switch to another topology version."""
        fields = asdict(replace(metadata, format=max(metadata.format, FORMAT_3)))
        self._files.write("metadata", sealed(orjson.dumps(fields, option=orjson.OPT_INDENT_2)))

    def read_description(self, metadata: Metadata) -> bytes | None:
        """Return the stored description that `metadata` names, None if absent.

        Raises TaskCorruptedError if it is damaged, and ProcessorStateError if another user may have written it.
        """
        path = f"plans/{metadata.plan}"
        data = self._files.read_code(path)
        return data if data is None or metadata.format == FORMAT_2 else unsealed(data, self._name(path))

    def write_description(self, digest: str, data: bytes) -> None:
        """Write the description with the digest `digest`."""
        self._files.write(f"plans/{digest}", sealed(data))

    def _document(self, path: str) -> tuple[bytes, bool] | None:
        """Return a small file and whether its format is 2, None if absent. Raises TaskCorruptedError if damaged."""
        data = self._files.read(path)
        if data is None or not is_sealed(data):
            return None if data is None else (data, True)
        return unsealed(data, self._name(path)), False

    def _check_format(self, fields: Mapping[str, Any], is_format_2: bool, name: str) -> None:
        """Raise IncompatibleCheckpointError for another format, TaskCorruptedError without the format's digest."""
        found = fields.get("format")
        if found not in (FORMAT, FORMAT_3, FORMAT_2):
            raise IncompatibleCheckpointError(
                f"The file {name} has format {found}; this version of Penstock reads the formats {FORMAT_2} to "
                f"{FORMAT}. Run the version that wrote it, or start with another penstock.checkpoint.dir."
            )
        if is_format_2 != (found == FORMAT_2):
            raise damaged(name, "its last line, with the digest of its content, is missing")

    def _name(self, path: str) -> str:
        return f"{self.uri.rstrip('/')}/{path}"

    def read_generation(self) -> int:
        """Return the number of the newest driver, 0 before the first; lists a directory."""
        return max(self._generations(), default=0)

    def take_generation(self, at_least: int = 0, before_write: Callable[[], None] = lambda: None) -> int:
        """Become the newest driver: return a unique number larger than every earlier one.

        If drivers start at the same moment, on any machines, the one with the largest number stays; the others find its
        file here or at their next check. No file is ever replaced, so a late driver changes nothing for a newer one. A
        driver that was overtaken stays overtaken: it takes no second number here, whatever the reason of its restart.

        `at_least` is the generation of the last manifest: a copy of a checkpoint may lack the files of generations.
        `before_write` is called when the number is chosen but not yet visible. Raises TaskMigratedError if another
        driver is newer.
        """
        self.check_not_overtaken()
        turn = (max(self.read_generation(), at_least) >> _TOKEN_BITS) + 1
        generation = turn << _TOKEN_BITS | secrets.randbits(_TOKEN_BITS)
        before_write()
        self._files.write(_generation_path(generation), b"")
        self._taken = generation
        self.check_generation(generation)
        for older in self._generations():
            if older < generation:
                self._files.delete(_generation_path(older))
        return generation

    def check_not_overtaken(self) -> None:
        """Raise TaskMigratedError if a newer driver has started since this one took its number here."""
        if self._taken:
            self.check_generation(self._taken)

    def check_generation(self, generation: int) -> None:
        """Raise TaskMigratedError if a newer driver than `generation` has taken over."""
        if self.read_generation() > generation:
            raise TaskMigratedError(
                f"Another program has taken over the checkpoint {self.uri}, and the work of this one since then is "
                "discarded. Run only one program with this application.id."
            )

    def _generations(self) -> list[int]:
        return [int(each.name) for each in self._files.find("generations") if each.name.isdigit()]

    def read_savepoint(self) -> dict[str, Any] | None:
        """Return the savepoint's description, None if absent or incomplete; raises TaskCorruptedError if damaged."""
        found = self._document("savepoint")
        return None if found is None else parsed(found[0], self._name("savepoint"))

    def write_savepoint(self, description: Mapping[str, Any]) -> None:
        """Complete this savepoint: all its other files exist."""
        self._files.write("savepoint", sealed(orjson.dumps(description)))

    def directories(self) -> list[str]:
        """Return the directories below, opened as checkpoints, sorted by name."""
        names = sorted(each.name for each in self._files.find("") if each.is_directory)
        return [f"{self.uri.rstrip('/')}/{name}" for name in names]

    # ------------------------------------------------------------------------------------------------ manifests

    def read_manifest(self, epoch: int, query_id: str) -> Manifest | None:
        """Return the manifest of `epoch`, None if absent.

        The manifest of epoch 0 is empty and always present. Raises the errors of `read_metadata`.
        """
        if epoch == 0:
            return Manifest(query_id, 0, 0, 0, 0, {})
        path = _manifest_path(epoch)
        found = self._document(path)
        if found is None:
            return None
        content, is_format_2 = found
        fields = parsed(content, self._name(path))
        self._check_format(fields, is_format_2, self._name(path))
        try:
            return _manifest_of(fields)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise damaged(self._name(path), f"a field is missing or invalid ({error!r})") from error

    def write_manifest(self, manifest: Manifest, before_rename: Callable[[], None]) -> None:
        """Commit an epoch; `before_rename` is called after the temporary file is written."""
        self._files.write(_manifest_path(manifest.epoch), sealed(_encoded(manifest)), before_rename)

    def delete_manifest(self, epoch: int) -> None:
        """Delete the manifest of `epoch` if present."""
        self._files.delete(_manifest_path(epoch))

    def delete_manifests(self) -> None:
        """Delete all manifests."""
        for epoch in self._epochs():
            self.delete_manifest(epoch)

    def has_remains(self) -> bool:
        """Return whether there are manifests or segments; without metadata, an interrupted restore left them."""
        return bool(self._epochs() or self.state_directories())

    def first_epoch(self) -> int:
        """Return the epoch of the oldest manifest, 0 without manifests; lists a directory."""
        return min(self._epochs(), default=0)

    def last_epoch(self) -> int:
        """Return the epoch of the newest manifest, 0 without manifests; lists a directory."""
        return max(self._epochs(), default=0)

    def _epochs(self) -> list[int]:
        return [int(each.name) for each in self._files.find("manifests") if each.name.isdigit()]

    # ------------------------------------------------------------------------------------------------ offsets

    def write_offset(self, epoch: int, generation: int, fields: Mapping[str, Any]) -> None:
        """Log the end offsets of `epoch`, planned by the driver of `generation`; durable on return."""
        self._files.write(_offset_path(epoch, generation), sealed(orjson.dumps(fields)))

    def read_offset(self, epoch: int) -> dict[str, Any] | None:
        """Return the log entry of the newest driver that planned `epoch`, None if absent.

        Lists a directory. Raises TaskCorruptedError if the file is damaged.
        """
        generations = [generation for planned, generation in self._offsets() if planned == epoch]
        if not generations:
            return None
        path = _offset_path(epoch, max(generations))
        found = self._document(path)
        if found is None:
            raise damaged(self._name(path), "it was deleted while it was read")
        if found[1]:
            raise damaged(self._name(path), "its last line, with the digest of its content, is missing")
        return parsed(found[0], self._name(path))

    def last_planned_epoch(self) -> int:
        """Return the newest planned epoch in the log, 0 if absent; lists a directory."""
        return max((epoch for epoch, _ in self._offsets()), default=0)

    def offset_name(self, epoch: int) -> str:
        """Return the name of the files that log `epoch`, for messages."""
        return self._name(f"offsets/{epoch:012d}.*")

    def manifest_name(self, epoch: int) -> str:
        """Return the name of the manifest of `epoch`, for messages."""
        return self._name(_manifest_path(epoch))

    def delete_offset(self, epoch: int, generation: int) -> None:
        """Delete the log entry of the driver of `generation` for `epoch`, if present."""
        self._files.delete(_offset_path(epoch, generation))

    def delete_offsets_before(self, epoch: int) -> None:
        """Delete the log of the epochs before `epoch`; lists a directory."""
        for planned, generation in self._offsets():
            if planned < epoch:
                self.delete_offset(planned, generation)

    def _offsets(self) -> list[tuple[int, int]]:
        names = [each.name.partition(".") for each in self._files.find("offsets")]
        return [(int(epoch), int(number)) for epoch, _, number in names if epoch.isdigit() and number.isdigit()]

    def offset_of_format_2(self, query_id: str) -> dict[str, Any] | None:
        """Return the newest offset of the topology version `query_id` in Spark's log, None if absent.

        Only checkpoints of format 2 need that log. Raises TaskCorruptedError if it is damaged.
        """
        offsets = f"{query_id}/offsets"
        planned = [int(each.name) for each in self._spark.find(offsets) if each.name.isdigit()]
        logged = self._spark.read(f"{offsets}/{max(planned)}") if planned else None
        if logged is None:
            return None
        lines = logged.splitlines()
        return parsed(lines[-1] if lines else b"", f"{self._spark.uri}/{offsets}/{max(planned)}")

    # ------------------------------------------------------------------------------------------------ segments

    def read_segment(self, task: str, segment: str) -> bytes | None:
        """Return the bytes of a segment, None if absent."""
        return self._files.read(_segment_path(task, segment))

    def read_segment_range(self, task: str, segment: str, offset: int, length: int) -> bytes | None:
        """Return `length` bytes of a segment from `offset` on, None if absent."""
        return self._files.read_range(_segment_path(task, segment), offset, length)

    def write_segment(self, task: str, segment: str, data: bytes, before_rename: Callable[[], None]) -> None:
        """Write a segment. Repeated and simultaneous writes are harmless: equal ids mean equal bytes."""
        self._files.write_once(_segment_path(task, segment), data, before_rename)

    def whole_segment(self, task: str, segment: str) -> bytes:
        """Return the bytes of a segment; raises FileNotFoundError if absent."""
        data = self.read_segment(task, segment)
        if data is None:
            raise FileNotFoundError(f"Segment {segment} of task {task} is not in {self.uri}.")
        return data

    def segment_name(self, task: str, segment: str) -> str:
        """Return the name of a segment, or of a file of carried rows, for messages."""
        return self._name(_segment_path(task, segment))

    def delete_segment(self, task: str, segment: str) -> None:
        """Delete a segment if present."""
        self._files.delete(_segment_path(task, segment))

    def list_segments(self, task: str) -> list[tuple[str, int]]:
        """Return (id, modification time in ms) of all files of `task`; lists a directory.

        Incomplete files are listed under their temporary names. The time is in the far future if the file system does
        not know it.
        """
        found = [each for each in self._files.find(f"state/{task}") if not each.is_directory]
        return [(each.name, _NEVER if each.modified_ms is None else each.modified_ms) for each in found]

    def state_directories(self) -> list[str]:
        """Return the tasks, and holders of removed state, with a directory of segments. Lists a directory."""
        return sorted(each.name for each in self._files.find("state") if each.is_directory)

    # ------------------------------------------------------------------------------------------------ directories

    def restores(self) -> Files:
        """Return the directory with the progress of each restore."""
        return self._files.below("restoring")

    def results(self) -> Files:
        """Return the directory with the result log of each epoch."""
        return self._files.below("results")


def checkpoint_of(config: StreamsConfig) -> Checkpoint:
    """Return the checkpoint of the application of `config`."""
    chosen: str | None = config["penstock.spark.checkpoint.dir"]
    spark = None if chosen is None else Files(chosen).below(str(config.required("application.id")))
    return Checkpoint(config.checkpoint_directory(), spark)


def _encoded(manifest: Manifest) -> bytes:
    """Return a manifest as JSON."""
    fields = {
        "format": FORMAT,
        "query_id": manifest.query_id,
        "epoch": manifest.epoch,
        "generation": manifest.generation,
        "planned_ms": manifest.planned_ms,
        "committed_ms": manifest.committed_ms,
        "tasks": {name: entry.fields() for name, entry in manifest.tasks.items()},
        "offsets": manifest.offsets,
        "input": {topic: [figures.records, figures.bytes] for topic, figures in manifest.input.items()},
        "records_out": manifest.records_out,
        "output": {topic: [figures.records, figures.bytes] for topic, figures in manifest.output.items()},
        "processed": dict(manifest.processed),
        "dropped": dict(manifest.dropped),
        "bytes_sent": manifest.bytes_sent,
        "commit_ms": manifest.commit_ms,
        "measured": manifest.measured,
        "sensors": manifest.sensors,
        "printed": manifest.printed,
        "removed": {name: entry.fields() for name, entry in manifest.removed.items()},
        "global_offsets": manifest.global_offsets,
        "read_to_ms": manifest.read_to_ms,
        "phases_ms": manifest.phases_ms,
        "lagging": manifest.lagging,
        "idle_ms": manifest.idle_ms,
        "workers": manifest.workers,
        "awaited": manifest.awaited,
        "leader_epochs": manifest.leader_epochs,
        "call_again_before": manifest.call_again_before,
    }
    return orjson.dumps(fields)


def _manifest_of(fields: dict[str, Any]) -> Manifest:
    """Return the manifest that `_encoded` turned into `fields`."""
    values = {name: value for name, value in fields.items() if name != "format"}
    for kind in ("tasks", "removed"):
        values[kind] = {name: TaskEntry.of_fields(entry) for name, entry in values[kind].items()}
    for kind in ("input", "output"):
        values[kind] = {topic: TopicFigures(*figures) for topic, figures in values.get(kind, {}).items()}
    return Manifest(**values)


def _generation_path(generation: int) -> str:
    return f"generations/{generation:019d}"


def _offset_path(epoch: int, generation: int) -> str:
    return f"offsets/{epoch:012d}.{generation:019d}"


def _manifest_path(epoch: int) -> str:
    return f"manifests/{epoch:012d}"


def _segment_path(task: str, segment: str) -> str:
    return f"state/{task}/{segment}"
