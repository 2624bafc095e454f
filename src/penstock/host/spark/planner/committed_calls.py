"""The calls of an application: the planner hands the waiting records of each manifest to the runner of calls.

Only committed records are called, so a replay of an epoch makes no calls. Records that wait at the start of the process
may have answers that no epoch has read: those of a task are called when its position of the answers has reached the end
that the partition had at the start. Later records of the task are held until then too, because of the order of keys.
An earlier process may have made the calls of those that wait at the start, so they are marked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.host.calls.gate import CallGate
from penstock.host.spark.checkpoints.checkpoint import Manifest
from penstock.host.spark.planner.call_stores import TaskInbox
from penstock.host.spark.protocol.epoch_offset import EpochOffset
from penstock.processor.waiting_records import Waiting
from penstock.record import TopicPartition


class CallStarter(Protocol):
    """Makes calls and writes their answers (`host.calls`)."""

    def add(self, node: str, partition: int, entries: Sequence[Waiting]) -> None:
        """Call the function of `node` for records that wait in the task of a partition."""
        ...


class WaitingStores(Protocol):
    """The waiting records as of a manifest (`CallStores`)."""

    def follow(self, manifest: Manifest) -> dict[TaskInbox, list[Waiting]]:
        """Advance to `manifest`; return the records that have been added since the manifest before."""
        ...

    def waiting(self, inbox: TaskInbox) -> list[Waiting]:
        """Return all records that wait in `inbox`."""
        ...

    def __len__(self) -> int: ...


class CommittedCalls:
    """Hands waiting records to the runner, each once; see the module docstring.

    Args:
        inboxes: the stores of waiting records.
        stores: reads them.
        starter: makes the calls.
    """

    def __init__(self, inboxes: Sequence[TaskInbox], stores: WaitingStores, starter: CallStarter) -> None:
        self._stores = stores
        self._starter = starter
        self._closed = list(inboxes)
        self._gates: dict[TaskInbox, CallGate] = {}
        self._at_start: dict[TaskInbox, int] | None = None

    def take(self, manifest: Manifest, committed: EpochOffset, ends: Mapping[TopicPartition, int]) -> None:
        """Hand over the records that wait in `manifest` and have not been handed over.

        Args:
            manifest: of the last committed epoch.
            committed: the end of that epoch.
            ends: the current ends of the answers topics; nothing while no broker answers.

        Raises TaskCorruptedError and ProcessorStateError as `CallStores.follow`.
        """
        added = self._stores.follow(manifest)
        if self._at_start is None:
            self._at_start = {inbox: records[-1][0] for inbox, records in added.items() if records}
        for inbox in self._closed:
            if inbox.answers in ends and inbox not in self._gates:
                self._gates[inbox] = CallGate({inbox.answers: ends[inbox.answers]})
        opening = [inbox for inbox in self._closed if self._is_open(inbox, committed)]
        for inbox in opening:
            self._closed.remove(inbox)
            last = self._at_start.get(inbox, 0)
            added[inbox] = [
                (number, record.that_waited() if number <= last else record)
                for number, record in self._stores.waiting(inbox)
            ]
        closed = set(self._closed)
        for inbox, records in added.items():
            if records and inbox not in closed:
                self._starter.add(inbox.node, inbox.answers.partition, records)

    @property
    def waiting(self) -> int:
        """The number of records that wait, as of the last manifest."""
        return len(self._stores)

    def _is_open(self, inbox: TaskInbox, committed: EpochOffset) -> bool:
        """Return whether the task of `inbox` has read all answers that were there at the start."""
        gate = self._gates.get(inbox)
        return gate is not None and gate.is_open({inbox.answers: committed.position(inbox.answers)})
