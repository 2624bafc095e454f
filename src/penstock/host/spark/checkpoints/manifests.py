"""The topology version of a checkpoint, its last manifest, and the epoch planned after it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.errors import StreamsError
from penstock.host.spark.checkpoints.checkpoint import FORMAT_2, Checkpoint, Manifest, Metadata
from penstock.host.spark.checkpoints.documents import damaged
from penstock.host.spark.protocol.epoch_offset import EpochOffset

_log = logging.getLogger(__name__)

_PATIENCE_MS = 10_000


class NewManifests:
    """Follows the manifests of a checkpoint as they are written, and deleted after the retention.

    Args:
        checkpoint: the checkpoint to follow.
        patience_ms: time for which the next manifest may be missing before the directory is listed.
    """

    def __init__(self, checkpoint: Checkpoint, patience_ms: int = _PATIENCE_MS) -> None:
        self._checkpoint = checkpoint
        self._patience = patience_ms / 1000
        self._found_at = time.monotonic()

    def after(self, epoch: int, query_id: str) -> Iterator[Manifest]:
        """Yield the manifests that were written since that of `epoch`.

        If the next ones are deleted, because this process was suspended for longer than their retention, it continues
        with the oldest one left.
        """
        while (manifest := self._next(epoch, query_id)) is not None:
            self._found_at = time.monotonic()
            epoch = manifest.epoch
            yield manifest

    def _next(self, epoch: int, query_id: str) -> Manifest | None:
        manifest = self._checkpoint.read_manifest(epoch + 1, query_id)
        if manifest is not None or time.monotonic() - self._found_at < self._patience:
            return manifest
        self._found_at = time.monotonic()
        first = self._checkpoint.first_epoch()
        if first <= epoch + 1:
            return None
        _log.warning(
            "The manifests of epochs %d to %d were deleted before the driver read them, because this program stood "
            "still. Their records are not counted, and the output that functions printed in them is lost.",
            epoch + 1,
            first - 1,
        )
        return self._checkpoint.read_manifest(first, query_id)  # None if it has been deleted: look again


def check_absent(checkpoint: Checkpoint, action: str) -> None:
    """Raise StreamsError if a checkpoint already exists; action: the verb of what needs an empty directory."""
    if checkpoint.read_metadata() is not None:
        raise StreamsError(
            f"A checkpoint already exists at {checkpoint.uri}. {action} into another directory "
            "(penstock.checkpoint.dir), or stop its application and delete it first."
        )


def existing_metadata(checkpoint: Checkpoint, missing: type[StreamsError]) -> Metadata:
    """Return the metadata of `checkpoint`; raises `missing` if no application was started on it yet."""
    metadata = checkpoint.read_metadata()
    if metadata is None:
        raise missing(
            f"There is no checkpoint at {checkpoint.uri}: start the application first, on Spark, with the same "
            "application.id, state.dir and penstock.checkpoint.dir. The threads host keeps no checkpoint."
        )
    return metadata


def last_manifest(checkpoint: Checkpoint, metadata: Metadata) -> Manifest:
    """Return the last manifest of the topology version of `metadata`.

    Raises TaskCorruptedError if required files are missing.
    """
    newest = checkpoint.last_epoch()
    manifest = manifest_of_version(checkpoint, metadata, newest)
    planned = checkpoint.last_planned_epoch()
    if newest == planned == 0 and metadata.format != FORMAT_2 and checkpoint.state_directories():
        raise damaged(checkpoint.manifest_name(1), "it is missing, as are all others, but tasks have written state")
    if manifest is None or max(planned, metadata.start_epoch) > manifest.epoch + 1:
        missing = max(planned - 1, metadata.start_epoch)
        raise damaged(
            checkpoint.manifest_name(max(missing, newest)),
            f"it is missing or of another topology version, and the newest manifest is of epoch {newest}, while epoch "
            f"{max(planned, metadata.start_epoch)} was started: manifests were deleted, or files of two copies were "
            "mixed",
        )
    return manifest


def manifest_of_version(checkpoint: Checkpoint, metadata: Metadata, epoch: int) -> Manifest | None:
    """Return the last manifest of the topology version of `metadata`, None if absent.

    Args:
        checkpoint: the checkpoint.
        metadata: its metadata.
        epoch: of the last manifest of all. That one may belong to a topology version that did not begin.
    """
    manifest = checkpoint.read_manifest(epoch, metadata.query_id)
    if manifest is not None and manifest.query_id != metadata.query_id and epoch > metadata.start_epoch:
        manifest = checkpoint.read_manifest(epoch - 1, metadata.query_id)
    return manifest if manifest is not None and manifest.query_id == metadata.query_id else None


def planned_offset(checkpoint: Checkpoint, metadata: Metadata, last: Manifest) -> EpochOffset | None:
    """Return the offset of the epoch after the manifest `last`, None if not started.

    The epoch must have been started by the topology version of `metadata`. Raises TaskCorruptedError if it does not
    follow that manifest.
    """
    name = checkpoint.offset_name(last.epoch + 1)
    fields = (
        checkpoint.read_offset(last.epoch + 1)
        if metadata.format != FORMAT_2
        else checkpoint.offset_of_format_2(metadata.query_id)
    )
    offset = None if fields is None else _offset_of(fields, name)
    if offset is None or offset.query_id != metadata.query_id:
        return None
    if metadata.format == FORMAT_2 and offset.epoch <= last.epoch:
        return None
    begun = {**metadata.begin, **last.offsets}
    behind = [topic for topic, positions in offset.positions.items() if not _follows(positions, begun.get(topic, ()))]
    if offset.epoch != last.epoch + 1 or behind:
        raise damaged(
            name,
            f"it reads epoch {offset.epoch} to {dict(offset.positions)}, and the manifest before it is of epoch "
            f"{last.epoch} at {begun}: they do not belong together",
        )
    return offset


def start_offset(metadata: Metadata, last: Manifest) -> EpochOffset:
    """Return the offset from which a run starts.

    The run continues after the manifest `last`, or starts the topology version of `metadata`.
    """
    return EpochOffset(
        metadata.query_id,
        last.epoch or metadata.start_epoch,
        last.planned_ms or metadata.start_ms,
        {topic: list(offsets) for topic, offsets in {**metadata.begin, **last.offsets}.items()},
        list(metadata.partitions),
        metadata.sink_partitions,
        last.global_offsets,
        read_to_ms=last.read_to_ms,
        leader_epochs=last.leader_epochs,
    )


def check_follows(manifest: Manifest, offset: EpochOffset, name: str) -> None:
    """Check that `manifest` belongs to the epoch that ends at `offset`.

    Raises TaskCorruptedError, which names the manifest `name`, if it does not.
    """
    said = (manifest.epoch, manifest.planned_ms, dict(manifest.offsets))
    planned = (offset.epoch, offset.planned_ms, dict(offset.positions))
    if manifest.offsets and said != planned:
        raise damaged(
            name,
            f"it is of epoch {said[0]} at {said[2]}, planned at {said[1]} ms, and epoch {planned[0]} was planned at "
            f"{planned[1]} ms to {planned[2]}",
        )


def _offset_of(fields: Mapping[str, Any], name: str) -> EpochOffset:
    try:
        return EpochOffset.from_json(fields)
    except TypeError as error:
        raise damaged(name, f"a field is missing or unknown ({error})") from error


def _follows(positions: list[int], begun: Any) -> bool:
    """Return whether a topic's positions are at or after the epoch's start."""
    return len(positions) >= len(begun) and all(at >= before for at, before in zip(positions, begun, strict=False))
