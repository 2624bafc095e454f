"""Joining a classic group: as a new, a known or a returning static member."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ApiError
from penstock_broker.groups.classic.generation import ClassicGeneration
from penstock_broker.groups.classic.member import ClassicGroupMember
from penstock_broker.groups.classic.members import ClassicMembers
from penstock_broker.groups.classic.rebalance import ClassicRebalance
from penstock_broker.groups.classic.state import ClassicGroupState
from penstock_broker.groups.context import Answer
from penstock_broker.wire.error_codes import ErrorCode


class JoinRequest(NamedTuple):
    """A request to join.

    Args:
        member_id: empty for a client that is not a member yet.
        instance_id: name of a static member; None for others.
        client_id: name of the client, chosen by itself.
        client_host: its address.
        session_timeout_ms: time (ms) without a request after which the member is removed.
        rebalance_timeout_ms: time (ms) that the others wait for it in a rebalance.
        protocol_type: purpose of the group, such as `consumer` or `connect`.
        protocols: its assignors with its metadata for each of them, preferred first.
        needs_member_id: whether a new member must ask again with the id that it gets (KIP-394).
        may_skip_assignment: whether the client, as a leader, understands that the assignment is unchanged.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Mapping[str, bytes]
    needs_member_id: bool
    may_skip_assignment: bool


class ClassicJoining:
    """Handles the requests to join a group.

    Args:
        config: the broker's settings.
        members: the members of the group.
        generation: its generation.
        rebalance: its rebalance.
    """

    def __init__(
        self, config: BrokerConfig, members: ClassicMembers, generation: ClassicGeneration, rebalance: ClassicRebalance
    ) -> None:
        self._config = config
        self._members = members
        self._generation = generation
        self._rebalance = rebalance

    def join(self, request: JoinRequest, answer: Answer) -> None:
        """Handle JoinGroup; the answer may wait until all members have joined.

        Raises:
            ApiError: GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
        """
        self._check_room(request)
        if not self._supports(request):
            raise ApiError(ErrorCode.inconsistent_group_protocol)
        if not request.member_id:
            self._join_new(request, answer)
        elif request.member_id in self._members.pending_joins:
            self._add(request, request.member_id, answer)
        else:
            self._rejoin(request, self._members.identified(request.member_id, request.instance_id), answer)

    def _check_room(self, request: JoinRequest) -> None:
        most = self._config.group_max_size
        known = self._members.get(request.member_id)
        match self._generation.state:
            case ClassicGroupState.EMPTY:
                has_room = True
            case ClassicGroupState.PREPARING:
                waiting = sum(member.join is not None for member in self._members.values())
                has_room = (known is not None and known.join is not None) or waiting < most
            case _:
                has_room = known is not None or len(self._members) < most
        if not has_room:
            self._members.remove(request.member_id)
            self._rebalance.complete_if_all_joined()
            raise ApiError(ErrorCode.group_max_size_reached)
        size = sum(len(metadata) for metadata in request.protocols.values())
        others = sum(member.size for member in self._members.values() if member is not known)
        if size + others > self._config.group_max_bytes:
            raise ApiError(ErrorCode.group_max_size_reached)

    def _supports(self, request: JoinRequest) -> bool:
        if self._generation.state == ClassicGroupState.EMPTY:
            return bool(request.protocol_type and request.protocols)
        return request.protocol_type == self._generation.protocol_type and self._members.support(request.protocols)

    def _join_new(self, request: JoinRequest, answer: Answer) -> None:
        member_id = f"{request.client_id if request.instance_id is None else request.instance_id}-{uuid.uuid4()}"
        replaced_id = self._members.static_id(request.instance_id)
        if replaced_id is not None:
            self._replace_static(request, self._members[replaced_id], member_id, answer)
        elif request.instance_id is None and request.needs_member_id:
            if len(self._members.pending_joins) >= self._config.group_max_size:
                raise ApiError(ErrorCode.group_max_size_reached)
            self._members.add_pending_join(member_id, request.session_timeout_ms)
            answer({"error_code": ErrorCode.member_id_required, "member_id": member_id})
        else:
            self._add(request, member_id, answer)

    def _add(self, request: JoinRequest, member_id: str, answer: Answer) -> None:
        if not self._members:
            self._generation.protocol_type = request.protocol_type
        member = ClassicGroupMember(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            join=answer,
            is_new=True,
        )
        self._rebalance.add(member)

    def _rejoin(self, request: JoinRequest, member: ClassicGroupMember, answer: Answer) -> None:
        is_changed = list(member.protocols.items()) != list(request.protocols.items())  # a changed order counts, too
        match self._generation.state:
            case ClassicGroupState.COMPLETING if not is_changed:
                # It may have missed the first answer.
                answer(self._generation.joined(member))
            case ClassicGroupState.STABLE if not is_changed and member.member_id != self._members.leader:
                answer(self._generation.joined(member))
            case _:
                # The leader joins again because of changes that only it can see, such as new partitions.
                self._update(request, member, answer)
                self._rebalance.begin_or_complete(f"member {member.member_id} joins again")

    def _update(self, request: JoinRequest, member: ClassicGroupMember, answer: Answer) -> None:
        # A client that repeats its request no longer waits for the first answer.
        member.answer_join({"error_code": ErrorCode.rebalance_in_progress, "member_id": member.member_id})
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.join = answer

    def _replace_static(
        self, request: JoinRequest, replaced: ClassicGroupMember, member_id: str, answer: Answer
    ) -> None:
        """Replace a static member that was away by its new instance, under a new id."""
        old_leader = self._members.leader
        member = self._members.replace_static(replaced, member_id)
        self._members.extend_session(member)
        self._update(request, member, answer)
        match self._generation.state:
            case ClassicGroupState.STABLE if self._members.selected_protocol() == self._generation.protocol:
                self._keep_replaced(request, member, old_leader or "")
            case ClassicGroupState.STABLE | ClassicGroupState.COMPLETING:
                # The leader may already know the old id and would assign to it.
                self._rebalance.begin(f"static member {member.instance_id} joins again")
            case _:
                self._rebalance.complete_if_all_joined()

    def _keep_replaced(self, request: JoinRequest, member: ClassicGroupMember, old_leader: str) -> None:
        """Answer a static member that is back in a stable group, which is otherwise unchanged."""
        self._generation.try_save(f"static member {member.instance_id} is back")
        response = self._generation.joined(member)
        if request.may_skip_assignment:
            response["skip_assignment"] = member.member_id == self._members.leader
        else:
            # Without that flag a leader would assign; given its old id as the leader, it acts as a follower.
            response |= {"leader": old_leader, "members": []}
        member.answer_join(response)
