"""Which life a checkpoint is in, which manifest is the last of it, and which epoch is planned beyond."""

from __future__ import annotations

import orjson

from penstock.errors import StreamsError, TaskCorruptedError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest, Metadata


def existing_metadata(checkpoint: Checkpoint, missing: type[StreamsError]) -> Metadata:
    """Return the metadata of `checkpoint`; raises `missing` where no application was started on it yet."""
    metadata = checkpoint.read_metadata()
    if metadata is None:
        raise missing(
            f"There is no checkpoint at {checkpoint.uri}: start the application first, with the same application.id, "
            "state.dir and penstock.checkpoint.dir."
        )
    return metadata


def last_manifest(checkpoint: Checkpoint, metadata: Metadata) -> Manifest:
    """Return the last manifest of the life of `metadata`; raises TaskCorruptedError if the checkpoint is not whole."""
    manifest = manifest_of_life(checkpoint, metadata, checkpoint.last_epoch())
    if manifest is None or (
        manifest.epoch != metadata.start_epoch and checkpoint.planned_offset(metadata.query_id) is None
    ):
        raise TaskCorruptedError(
            f"The checkpoint {checkpoint.uri} is not whole: manifests, metadata and Spark's own checkpoint do not "
            "belong together. Restore the whole directory from one copy, or delete it to start anew."
        )
    return manifest


def manifest_of_life(checkpoint: Checkpoint, metadata: Metadata, epoch: int) -> Manifest | None:
    """Return the last manifest of the life of `metadata` where `epoch` is that of the last of all; None if it is not
    there. One manifest more may be that of a life that did not begin."""
    manifest = checkpoint.read_manifest(epoch, metadata.query_id)
    if manifest is not None and manifest.query_id != metadata.query_id and epoch > metadata.start_epoch:
        manifest = checkpoint.read_manifest(epoch - 1, metadata.query_id)
    return manifest if manifest is not None and manifest.query_id == metadata.query_id else None


def planned_epoch(checkpoint: Checkpoint, metadata: Metadata) -> int | None:
    """Return the epoch that Spark has planned and that has no manifest yet, None if there is none."""
    logged = checkpoint.planned_offset(metadata.query_id)
    if logged is None:
        return None
    epoch = int(orjson.loads(logged.splitlines()[-1])["epoch"])
    manifest = checkpoint.read_manifest(epoch, metadata.query_id)
    return epoch if manifest is None or manifest.query_id != metadata.query_id else None
