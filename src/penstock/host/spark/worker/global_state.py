"""The global stores on one machine, in one base for all tasks there.

The base is filled from all partitions of the global topics. The offset of an epoch contains the positions up to which
it reads the global topics. The first worker of a machine that takes part in the epoch advances the base to exactly
those positions, under a lock of the file system, while the others wait; then all read it in transactions at those
positions. An epoch is planned after the commit of the previous one, so a replay finds the base at the same positions,
or rebuilds it from the topics.

The stamp of the base contains the positions, and the clocks of the stores at them. A base of another checkpoint of the
application, of other global stores, or ahead of the epoch (the checkpoint was restored from a copy, or a topic was
created again) starts empty. A stamp of a later driver means that this worker is a zombie.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson

from penstock.config import StreamsConfig
from penstock.errors import (
    CorruptedBaseError,
    IncompatibleCheckpointError,
    OffsetOutOfRangeError,
    StreamsError,
    TaskMigratedError,
)
from penstock.host.crashpoints import crash_point
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.clients import open_admin, open_fetcher
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.messages import GlobalControl
from penstock.host.spark.worker.bases import GLOBAL_DIRECTORY
from penstock.host.spark.worker.restore_progress import GlobalRestore
from penstock.host.storage.directories import application_directory, application_path
from penstock.plan.subtopology import SubtopologySpec
from penstock.private_files import open_private
from penstock.record import RecordBatch, TopicPartition, size_of
from penstock.state.api import StateStore, StoreBuilder
from penstock.state.base_directory import BaseDirectory
from penstock.state.kept_headers import store_layout
from penstock.state.lmdb import DATA_FILE, LmdbBase
from penstock.task.global_task import GlobalStateUpdateTask

_log = logging.getLogger(__name__)

_FROM = " from "

_COMMIT_BYTES = 16 * 1024 * 1024
"""Bytes of keys and values between two commits of the base: the most that is lost when a worker is killed meanwhile."""


@dataclass(frozen=True)
class _Stamp:
    """The stamp of a base.

    Args:
        checkpoint_id: of the run that updated the base last.
        generation: of that run.
        epoch: of the last update.
        positions: the next offset of each partition, by topic.
        processor_metadata: the data of the stores besides entries.
        stores: the stores in the base.
        topic_ids: the ids of their topics, if brokers assign ids.
    """

    checkpoint_id: str
    generation: int
    epoch: int
    positions: Mapping[str, list[int]]
    processor_metadata: Mapping[str, int]
    stores: str
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self))

    @staticmethod
    def decode(data: bytes) -> _Stamp:
        return _Stamp(**orjson.loads(data))


def global_directory(config: StreamsConfig) -> Path:
    """Return the directory of the base of the global stores on each machine."""
    return application_path(config) / GLOBAL_DIRECTORY


def lock_path(config: StreamsConfig) -> Path:
    """Return the lock file for creating or updating the base."""
    return global_directory(config).with_suffix(".lock")


def clocks_of(stamp: bytes, stores: Mapping[str, StoreBuilder], config: StreamsConfig) -> Mapping[str, int]:
    """Return the data besides entries of the `stores` of a base with `stamp`.

    Raises IncompatibleCheckpointError if the base has other stores or layouts.
    """
    found = _Stamp.decode(stamp)
    kept, wanted = found.stores.partition(_FROM)[0], _described(stores, config)
    if kept != wanted:
        raise IncompatibleCheckpointError(
            f"The global stores in {global_directory(config)} are {kept}, and {wanted} in the program: read them with "
            "the program that writes them, and its configuration."
        )
    return found.processor_metadata


def _described(stores: Mapping[str, StoreBuilder], config: StreamsConfig) -> str:
    return ", ".join(f"{name}: {store_layout(store, config)}" for name, store in sorted(stores.items()))


@contextmanager
def global_stores(
    description: ApplicationDescription, checkpoint: Checkpoint, control: GlobalControl
) -> Iterator[Mapping[str, StateStore]]:
    """Provide the global stores by name, for reading, at the positions of `control`.

    The mapping is empty if the topology has no global stores. If reading the topics takes long, the progress is
    reported through `checkpoint`.

    Raises:
        TaskMigratedError: this worker belongs to an epoch that is over.
        KafkaError: the global topics cannot be read now.
        StreamsError: a processor of a global store fails.
    """
    spec = description.topology.global_topology
    if spec is None:
        yield {}
        return
    path = global_directory(description.config)
    application_directory(description.config)
    directory = BaseDirectory(
        path, description.process_id, DATA_FILE, lambda: checkpoint.check_generation(description.generation)
    )
    is_damaged = False
    with ExitStack() as opened:
        opened.callback(lambda: directory.leave(is_damaged))
        try:
            with _locked(lock_path(description.config)):
                base = LmdbBase(directory.enter())
                opened.callback(base.close)
                stamp = _Updating(description, checkpoint, spec, base, control).run()
            yield _task(description, spec, base, control, stamp.processor_metadata).read_only_stores()
        except StreamsError as error:
            is_damaged = _is_about(error, directory.database)
            raise


def _is_about(error: BaseException | None, database: Path) -> bool:
    """Return whether `error` or one of its causes reports a damaged base.

    The base is the one in the directory `database`.
    """
    while error is not None:
        if isinstance(error, CorruptedBaseError):
            return error.path == str(database)
        error = error.__cause__
    return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Admit one process of the machine at a time into the block.

    The lock ends with its holder, however that process ends.
    """
    with open_private(path, "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _task(
    description: ApplicationDescription,
    spec: SubtopologySpec,
    base: LmdbBase,
    control: GlobalControl,
    processor_metadata: Mapping[str, int],
) -> GlobalStateUpdateTask:
    handler = description.config["deserialization.exception.handler"]
    return GlobalStateUpdateTask(
        spec,
        description.config,
        base,
        handler,
        control.planned_ms,
        processor_metadata,
        description.topology.node_lines,
    )


class _Updating:
    """Advances a base to the positions of an epoch; its creator holds the lock."""

    def __init__(
        self,
        description: ApplicationDescription,
        checkpoint: Checkpoint,
        spec: SubtopologySpec,
        base: LmdbBase,
        control: GlobalControl,
    ) -> None:
        self._description = description
        self._checkpoint = checkpoint
        self._spec = spec
        self._base = base
        self._control = control
        stores = _described(spec.stores, description.config)
        self._stores = f"{stores}{_FROM}{', '.join(sorted(spec.source_topics))}"
        self._topic_ids: Mapping[str, str] = {}

    def run(self) -> _Stamp:
        """Advance the base to the positions; return its stamp.

        The stamp is read in the transaction that is used for reading from now on.
        """
        stamp = self._usable_stamp()
        if stamp is None or not self._is_there(stamp):
            try:
                self._update(stamp)
            except OffsetOutOfRangeError:
                _log.warning(
                    "Records of the topics of global stores were deleted before they were read: the global stores are "
                    "rebuilt from what the topics still have."
                )
                self._base.clear()
                self._update(None)
        data = self._base.stamp()
        assert data is not None
        return _Stamp.decode(data)

    def _is_there(self, stamp: _Stamp) -> bool:
        """Return whether the base is at the positions, in the driver's topics.

        These are the topics that the driver found at its start.
        """
        found = self._description.topic_ids
        ids = {topic: found[topic] for topic in self._spec.source_topics if topic in found}
        return dict(stamp.positions) == dict(self._control.positions) and stamp.topic_ids == ids

    def _usable_stamp(self) -> _Stamp | None:
        """Return the stamp of the base, None if it is empty or must start empty.

        Raises TaskMigratedError for a zombie.
        """
        description, control = self._description, self._control
        data = self._base.stamp()
        if data is None:
            return None
        stamp = _Stamp.decode(data)
        same = stamp.checkpoint_id == description.checkpoint_id and stamp.stores == self._stores
        if same and dict(stamp.positions) == dict(control.positions):
            return stamp
        if stamp.checkpoint_id == description.checkpoint_id and stamp.generation > description.generation:
            self._checkpoint.check_generation(
                description.generation
            )  # otherwise an older copy of the checkpoint continues
        elif stamp.checkpoint_id == description.checkpoint_id and (stamp.generation, stamp.epoch) > (
            description.generation,
            control.epoch,
        ):
            raise TaskMigratedError(
                f"Another worker has advanced the global stores of this machine to epoch {stamp.epoch}, while this one "
                f"is at epoch {control.epoch}: its work is discarded."
            )
        if same and all(offset <= _at(control.positions, tp, offset) for tp, offset in _flat(stamp.positions)):
            return stamp
        self._base.clear()
        return None

    def _update(self, stamp: _Stamp | None) -> None:
        """Process the records from `stamp` to the positions of the epoch.

        Without a stamp, it starts at the beginning of the topics.
        """
        self._topic_ids = open_admin(self._description).topic_ids(self._spec.source_topics)
        if stamp is not None and self._is_of_others(stamp):
            _log.warning("Topics of global stores were deleted and created again: the global stores are rebuilt.")
            self._base.clear()
            stamp = None
        reached = dict(_flat({} if stamp is None else stamp.positions))
        ends = dict(_flat(self._control.positions))
        reached.update(self._beginnings([tp for tp in ends if tp not in reached]))
        remembered = {} if stamp is None else stamp.processor_metadata
        task = _task(self._description, self._spec, self._base, self._control, remembered)
        description = self._description
        is_restore = stamp is None or stamp.generation < description.generation  # this driver's first update here
        with GlobalRestore(description, self._checkpoint, self._spec, self._control.epoch, is_restore) as progress:
            progress.begin(reached, ends)
            try:
                self._process(task, progress, reached, ends)
            finally:
                task.close()
        crash_point("base.after_apply", self._control.epoch)

    def _is_of_others(self, stamp: _Stamp) -> bool:
        """Return whether a topic has been deleted and created again since.

        The number of its records does not matter.
        """
        now = self._topic_ids
        return any(now.get(topic, topic_id) != topic_id for topic, topic_id in stamp.topic_ids.items())

    def _process(
        self,
        task: GlobalStateUpdateTask,
        progress: GlobalRestore,
        reached: dict[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        task.initialize()
        pending = 0
        for tp, end in ends.items():
            for batch in open_fetcher(self._description).fetch(tp, reached[tp], end, read_committed=True):
                self._take(task, tp, batch)
                reached[tp] = int(batch.offsets[-1]) + 1
                progress.restored(tp, len(batch), reached[tp])
                pending += size_of(batch)
                if pending >= _COMMIT_BYTES:
                    self._commit(task, reached)
                    pending = 0
            reached[tp] = end
        self._commit(task, reached)

    def _take(self, task: GlobalStateUpdateTask, tp: TopicPartition, batch: RecordBatch) -> None:
        try:
            task.update(tp.topic, tp.partition, batch, self._control.planned_ms)
        except StreamsError:
            raise
        except Exception as error:
            raise StreamsError(
                f"Updating global state failed: a processor of the stores {', '.join(sorted(self._spec.stores))} "
                f"failed on a record of topic {tp.topic}, partition {tp.partition}, offsets {batch.offsets[0]} to "
                f"{batch.offsets[-1]}."
            ) from error

    def _commit(self, task: GlobalStateUpdateTask, reached: Mapping[TopicPartition, int]) -> None:
        positions: dict[str, list[int]] = {}
        for tp in sorted(reached):
            positions.setdefault(tp.topic, []).append(reached[tp])
        description = self._description
        stamp = _Stamp(
            description.checkpoint_id,
            description.generation,
            self._control.epoch,
            positions,
            dict(task.processor_metadata),
            self._stores,
            self._topic_ids,
        )
        task.committed(task.changes(), stamp.encode())

    def _beginnings(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return open_admin(self._description).beginning_offsets(partitions) if partitions else {}


def _flat(positions: Mapping[str, list[int]]) -> Iterator[tuple[TopicPartition, int]]:
    for topic, offsets in sorted(positions.items()):
        for partition, offset in enumerate(offsets):
            yield TopicPartition(topic, partition), offset


def _at(positions: Mapping[str, list[int]], tp: TopicPartition, default: int) -> int:
    """Return the position of `tp`; `default` if its topic is no longer global."""
    offsets = positions.get(tp.topic, ())
    return offsets[tp.partition] if tp.partition < len(offsets) else default
