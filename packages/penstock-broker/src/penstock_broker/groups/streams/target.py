"""The target assignment of a streams group: the intended tasks of each member."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from penstock_broker.groups.modern.target import TargetAssignment
from penstock_broker.groups.streams.assignor import TaskClient, assign_sticky
from penstock_broker.groups.streams.member import StreamsGroupMember
from penstock_broker.groups.streams.tasks import TaskId
from penstock_broker.groups.streams.topology import ConfiguredTopology

NOT_READY: int = -1
"""Topology epoch of a group whose topics are not complete."""


@dataclass(frozen=True, slots=True)
class StreamsTargetAssignment(TargetAssignment[TaskId]):
    """The tasks that the members move towards.

    Args:
        epoch: the group epoch; 1 in a new group, as in Kafka, because members with epoch 0 join.
        assignment_epoch: the epoch of the assignment; 1 in a new group, which has no tasks.
        topology_epoch: the epoch of the topology whose topics are complete; NOT_READY if they are not.
    """

    epoch: int = 1
    assignment_epoch: int = 1
    topology_epoch: int = NOT_READY

    def next_epoch(self, metadata_hash: int, topology_epoch: int) -> StreamsTargetAssignment:
        """Return the target in the next epoch, with the assignment unchanged."""
        return replace(self, epoch=self.epoch + 1, metadata_hash=metadata_hash, topology_epoch=topology_epoch)

    def assigned(
        self, members: Collection[StreamsGroupMember], topology: ConfiguredTopology
    ) -> StreamsTargetAssignment:
        """Return the target with an assignment for its epoch, which is empty while topics are missing."""
        clients = {each.member_id: TaskClient(each.process_id, each.assigned, each.offsets.offsets) for each in members}
        tasks = [(id, number) for id, count in topology.task_counts.items() for number in range(count)]
        return replace(self, assignment_epoch=self.epoch, assignments=assign_sticky(clients, tasks))
