"""Which manifest is the last of a life, and which epoch is planned beyond it."""

from __future__ import annotations

import orjson

from penstock.errors import TaskCorruptedError
from penstock.host.spark.checkpoint import Checkpoint, Manifest, Metadata


def last_manifest(checkpoint: Checkpoint, metadata: Metadata) -> Manifest:
    """Return the last manifest of the life of `metadata`; raises TaskCorruptedError if the checkpoint is not whole."""
    epoch = checkpoint.last_epoch()
    manifest = checkpoint.read_manifest(epoch, metadata.query_id)
    if manifest is not None and manifest.query_id != metadata.query_id and epoch > metadata.start_epoch:
        epoch -= 1  # the first manifest of a life that did not begin
        manifest = checkpoint.read_manifest(epoch, metadata.query_id)
    spark_planned = epoch == metadata.start_epoch or checkpoint.planned_offset(metadata.query_id) is not None
    if manifest is None or manifest.query_id != metadata.query_id or not spark_planned:
        raise TaskCorruptedError(
            f"The checkpoint {checkpoint.uri} is not whole: manifests, metadata and Spark's own checkpoint do not "
            "belong together. Restore the whole directory from one copy, or delete it to start anew."
        )
    return manifest


def planned_epoch(checkpoint: Checkpoint, metadata: Metadata) -> int | None:
    """Return the epoch that Spark has planned and that has no manifest yet, None if there is none."""
    logged = checkpoint.planned_offset(metadata.query_id)
    if logged is None:
        return None
    epoch = int(orjson.loads(logged.splitlines()[-1])["epoch"])
    manifest = checkpoint.read_manifest(epoch, metadata.query_id)
    return epoch if manifest is None or manifest.query_id != metadata.query_id else None
