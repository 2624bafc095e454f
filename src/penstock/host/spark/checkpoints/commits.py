"""Finds a retained commit of a checkpoint, by its epoch or by time."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.errors import StateStoreNotAvailableError
from penstock.host.api import AsOf
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest, Metadata


def commit_as_of(checkpoint: Checkpoint, metadata: Metadata, as_of: AsOf) -> Manifest:
    """Return the commit of an epoch, or the last one at a time.

    Only commits of the current topology version have the stores that its metadata describe.

    Raises StateStoreNotAvailableError if the commit is not retained.
    """
    last = checkpoint.last_epoch()
    first = max(checkpoint.first_epoch(), metadata.start_epoch, 1)
    epochs = range(last, first - 1, -1)
    if isinstance(as_of, int):
        epochs = epochs[last - as_of : last - as_of + 1] if first <= as_of <= last else range(0)
    for epoch in epochs:
        manifest = checkpoint.read_manifest(epoch, metadata.query_id)
        if manifest is not None and manifest.query_id == metadata.query_id and _is_at(manifest, as_of):
            return manifest
    wanted = f"epoch {as_of}" if isinstance(as_of, int) else as_of.isoformat()
    raise StateStoreNotAvailableError(
        f"The checkpoint {checkpoint.uri} has no commit of {wanted}: it has {_retained(checkpoint, metadata, first)}, "
        "of the present topology version. Retain more with penstock.manifests.retained, or "
        "penstock.manifests.retained.ms."
    )


def _is_at(manifest: Manifest, as_of: AsOf) -> bool:
    return manifest.epoch == as_of if isinstance(as_of, int) else manifest.committed_ms <= as_of.timestamp() * 1000


def _retained(checkpoint: Checkpoint, metadata: Metadata, first: int) -> str:
    """Return the epochs of the retained commits as text, with the time of the first."""
    oldest = checkpoint.read_manifest(first, metadata.query_id)
    if checkpoint.last_epoch() < first or oldest is None:
        return "none"
    begun = datetime.fromtimestamp(oldest.committed_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return f"the epochs {first}, committed at {begun}, to {checkpoint.last_epoch()}"
