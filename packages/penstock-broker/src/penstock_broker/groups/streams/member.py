"""A member of a streams group."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import TypeVar

from penstock_broker.groups.modern.member import ModernGroupMember
from penstock_broker.groups.streams.heartbeat import ClientTags, Endpoint, StreamsHeartbeatRequest
from penstock_broker.groups.streams.task_offsets import MemberTaskOffsets
from penstock_broker.groups.streams.tasks import TaskId
from penstock_broker.wire.codec import Message

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StreamsGroupMember(ModernGroupMember[TaskId]):
    """A member: its process and its tasks.

    Args:
        topology_epoch: epoch of the topology of its program.
        process_id: id of its process.
        endpoint: where its process answers queries; None if it does not.
        client_tags: tags of its process.
        offsets: how far its state of tasks is; only in memory, and not compared.
    """

    topology_epoch: int = -1
    process_id: str = ""
    endpoint: Endpoint | None = None
    client_tags: ClientTags = ()
    offsets: MemberTaskOffsets = field(default=MemberTaskOffsets(), kw_only=True, compare=False)

    @property
    def endpoint_message(self) -> Message | None:
        """Its endpoint in the form of messages."""
        return None if self.endpoint is None else {"host": self.endpoint[0], "port": self.endpoint[1]}

    def updated(self, request: StreamsHeartbeatRequest, subtopology_ids: Container[str]) -> StreamsGroupMember:
        """Return the member with the metadata of a heartbeat.

        Args:
            request: the heartbeat.
            subtopology_ids: ids of the sub-topologies of the group.
        """

        def new(value: T | None, old: T) -> T:
            return old if value is None else value

        topology = request.topology
        # A process that starts again may have lost its endpoint.
        endpoint = None if request.member_epoch == 0 else self.endpoint
        # A client without an epoch may replace a static member, whose state it need not have.
        offsets = MemberTaskOffsets() if self.epoch == 0 else self.offsets
        return replace(
            self,
            instance_id=new(request.instance_id, self.instance_id),
            rack_id=new(request.rack_id, self.rack_id),
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=new(request.rebalance_timeout_ms, self.rebalance_timeout_ms),
            topology_epoch=self.topology_epoch if topology is None else topology.epoch,
            process_id=new(request.process_id, self.process_id),
            endpoint=new(request.endpoint, endpoint),
            client_tags=new(request.client_tags, self.client_tags),
            offsets=offsets.updated(request.offsets, subtopology_ids),
        )

    def has_process_of(self, other: StreamsGroupMember) -> bool:
        """Return whether another member has the same metadata, as far as assignments depend on it."""
        return self._process == other._process

    @property
    def _process(self) -> tuple[object, ...]:
        return self.topology_epoch, self.rack_id, self.client_tags, self.process_id
