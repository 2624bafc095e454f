"""Looks for waiting records of calls among the state of stores that the program no longer has."""

from __future__ import annotations

from collections.abc import Collection

from penstock.client.api import Admin
from penstock.host.deployment.uncalled_records import stores_of_calls, warn_of_uncalled_records
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest
from penstock.host.spark.checkpoints.task_segments import read_states


def warn_of_removed_calls(checkpoint: Checkpoint, last: Manifest, admin: Admin, application_id: str) -> None:
    """Log how many records wait for calls of operators that the program does not have.

    Args:
        checkpoint: of the application, with the topology version of the program.
        last: its last manifest.
        admin: a client of the brokers.
        application_id: of the application.
    """
    metadata = checkpoint.read_metadata()
    if metadata is None or not metadata.removed:
        return
    waiting = {
        store: _waiting(checkpoint, last, store, metadata.removed[store].holders(store))
        for store in stores_of_calls(application_id, metadata.removed, admin.topics())
    }
    warn_of_uncalled_records(waiting, "penstock savepoint drop FILE {store}")


def _waiting(checkpoint: Checkpoint, last: Manifest, store: str, holders: Collection[str]) -> int:
    count = 0
    for state in read_states(checkpoint, last, holders).values():
        with state.entries() as entries:
            count += sum(1 for _ in entries.view(store).range(None, None, reverse=False))
    return count
