"""Checkpoints and savepoints of format 3, whose layouts do not say which stores keep headers or timestamps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.errors import IncompatibleCheckpointError
from penstock.host.spark.checkpoints.checkpoint import FORMAT, Checkpoint, Metadata, RemovedStore
from penstock.host.spark.checkpoints.stored_description import load_from_checkpoint
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.state.kept_headers import layout_with_headers, store_layout


def with_headers_named(checkpoint: Checkpoint, metadata: Metadata) -> Metadata:
    """Return `metadata` with layouts that say which stores keep headers or timestamps.

    For older formats, the stored description of the program has the configuration that decided it. It is missing only
    in checkpoints from before 0.2.0: their stores count as without headers.

    Raises IncompatibleCheckpointError if the description cannot be loaded.
    """
    has_state = metadata.removed or any(metadata.shape["stores"].values())
    if metadata.format == FORMAT or not has_state:
        return metadata
    data = checkpoint.read_description(metadata)
    if data is None:
        return metadata
    try:
        stored = load_from_checkpoint(data)
    except Exception as error:  # any error raised by an object's own unpickling
        raise IncompatibleCheckpointError(
            f"An earlier version of Penstock wrote {checkpoint.uri}, and did not record which stores keep headers "
            f"(dsl.store.format). The program that ran with it tells that, but cannot be loaded ({error}). Start that "
            "program once with its modules, and Python, as they were and this version of Penstock; then start this one."
        ) from error
    known = {
        builder.name: store_layout(builder, stored.config)
        for spec in stored.topology.subtopologies
        for builder in spec.stores.values()
    }
    stores = {
        subtopology: {name: known.get(name, layout) for name, layout in layouts.items()}
        for subtopology, layouts in metadata.shape["stores"].items()
    }
    return replace(metadata, shape={**metadata.shape, "stores": stores}, removed=_removed(metadata.removed, stored))


def _removed(removed: Mapping[str, RemovedStore], stored: ApplicationDescription) -> dict[str, RemovedStore]:
    """Return removed stores with layouts that name headers.

    The program no longer has them; they were written with the same configuration, which had to be kept.
    """
    of_tables = ("timestamped_key_value", "timestamped_window", "session")
    follow = stored.config["dsl.store.format"] == "headers" and stored.config["dsl.store.suppliers.class"] == "rocksdb"
    return {
        name: replace(kept, layout=layout_with_headers(kept.layout, True))
        if follow and kept.kind in of_tables and "in memory" not in kept.layout
        else kept
        for name, kept in removed.items()
    }
