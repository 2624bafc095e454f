"""Looks for waiting records of calls among the state of stores that the program no longer has."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from penstock.client.api import Admin
from penstock.host.deployment.uncalled_records import (
    UncalledStore,
    operator_of,
    operators_with_answers,
    warn_of_uncalled_records,
)
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest
from penstock.host.spark.checkpoints.task_segments import first_value, read_states


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
    operators, found = operators_with_answers(application_id, admin.topics()), list[UncalledStore]()
    for store, removed in metadata.removed.items():
        holders = removed.holders(store)
        operator = operator_of(store, operators, partial(first_value, checkpoint, last, store, holders))
        if operator is not None:
            found.append(UncalledStore(store, operator, _waiting(checkpoint, last, store, holders)))
    warn_of_uncalled_records(found, "penstock savepoint drop FILE {store}")


def _waiting(checkpoint: Checkpoint, last: Manifest, store: str, holders: Collection[str]) -> int:
    count = 0
    for state in read_states(checkpoint, last, holders).values():
        with state.entries() as entries:
            count += sum(1 for _ in entries.view(store).range(None, None, reverse=False))
    return count
