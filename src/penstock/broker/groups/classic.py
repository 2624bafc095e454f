"""A group whose members assign partitions among themselves: the classic protocol (Kafka class: ClassicGroup).

A rebalance has two phases. In the first, every member joins, and the broker waits until all have or the time is over;
in the second, the leader of the members sends the assignment, and everyone gets its part. Each rebalance makes a
generation, and requests of an older one are refused.

Rules: the broker reads neither subscriptions nor assignments, so any assignor and any type of protocol works. A member
stays until its session is over, whatever happens to its connection. What is kept on disk is the last stable generation.
Times are in ms.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from kio.schema.consumer_protocol_subscription.v0.data import ConsumerProtocolSubscription
from kio.schema.errors import ErrorCode

from penstock.broker.errors import ApiError
from penstock.broker.groups.context import Answer, GroupContext
from penstock.broker.groups.group import Group, MemberIdentity
from penstock.broker.groups.offsets import CommittedOffset, TopicPartition
from penstock.broker.groups.schemas import GroupRecord, RecordKind
from penstock.wire.codec import Message, entity_codec
from penstock.wire.primitives import INT16, Cursor, MalformedMessageError

CONSUMER_PROTOCOL: Final = "consumer"
"""Type of the protocol of Kafka's consumers."""

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60_000
"""How long a new member may wait for the others; then it has to ask again, which shows that it still exists."""

_log = logging.getLogger(__name__)
_subscription = entity_codec(ConsumerProtocolSubscription)


class ClassicState(StrEnum):
    """The states of a group, by the names that tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class JoinRequest(NamedTuple):
    """A request to join.

    Args:
        member_id: empty for a client that is no member yet.
        instance_id: name of a static member; None for others.
        client_id: the name that the client gives itself.
        client_host: its address.
        session_timeout_ms: after how long without a request the member is removed.
        rebalance_timeout_ms: how long the others wait for it in a rebalance.
        protocol_type: what the group is for, such as `consumer` or `connect`.
        protocols: its assignors and what it tells each of them, the preferred one first.
        needs_member_id: whether a new member must ask again with the id that it gets (KIP-394).
        may_skip_assignment: whether a leader understands that the assignment stays.
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


@dataclass(slots=True)
class ClassicMember:
    """A member and what it waits for."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Mapping[str, bytes]
    assignment: bytes = b""
    join: Answer | None = None
    sync: Answer | None = None
    is_new: bool = False

    @property
    def size(self) -> int:
        """Bytes of its subscription."""
        return sum(len(name) + len(metadata) for name, metadata in self.protocols.items())

    def answer_join(self, response: Message) -> bool:
        """Answer the JoinGroup that waits; return whether there was one."""
        answer, self.join = self.join, None
        if answer is not None:
            answer(response)
        return answer is not None

    def answer_sync(self, response: Message) -> bool:
        """Answer the SyncGroup that waits; return whether there was one."""
        answer, self.sync = self.sync, None
        if answer is not None:
            answer(response)
        return answer is not None


class ClassicGroup(Group):
    """A classic group; without members and a type of protocol it only has committed offsets.

    Args:
        group_id: its name.
        context: its surroundings.

    Attributes:
        members: its members by id.
        state: where it stands in a rebalance.
        generation: the number of its last rebalance.
        protocol_type: what the group is for; None if it never had members.
        protocol: the assignor of this generation.
        leader: id of the member that assigns.
        changed_ms: when its state changed last, in ms since the epoch.
    """

    group_type = "classic"

    def __init__(self, group_id: str, context: GroupContext) -> None:
        self.group_id = group_id
        self.members: dict[str, ClassicMember] = {}
        self.state = ClassicState.EMPTY
        self.generation = 0
        self.protocol_type = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.changed_ms = -1
        self._context = context
        self._static_ids: dict[str, str] = {}
        self._pending_joins: set[str] = set()
        self._pending_syncs: set[str] = set()
        self._is_first_rebalance = False
        self._has_new_member = False

    def load(self, value: Message) -> None:
        """Take the generation that the topic has; the sessions of its members begin now.

        Args:
            value: the fields of its record.
        """
        self.generation = value["generation"]
        self.protocol_type = value["protocol_type"] or None
        self.protocol = value["protocol"]
        self.leader = value["leader"]
        self.changed_ms = value["current_state_timestamp"]
        for stored in value["members"]:
            member = ClassicMember(
                stored["member_id"],
                stored["group_instance_id"],
                stored["client_id"],
                stored["client_host"],
                stored["session_timeout"],
                stored["rebalance_timeout"],
                {self.protocol or "": bytes(stored["subscription"])},
                bytes(stored["assignment"]),
            )
            self.members[member.member_id] = member
            if member.instance_id is not None:
                self._static_ids[member.instance_id] = member.member_id
            self._extend_session(member)
        self.state = ClassicState.STABLE if self.members else ClassicState.EMPTY

    @property
    def state_name(self) -> str:
        """The name of its state, as tools show it."""
        return str(self.state)

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return self.state == ClassicState.EMPTY

    @property
    def is_unused(self) -> bool:
        """Whether nobody is a member or about to become one."""
        return self.is_empty and not self._pending_joins

    # Joining

    def join(self, request: JoinRequest, answer: Answer) -> None:
        """Handle JoinGroup; the answer may come when all members have joined.

        Raises:
            ApiError: GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
        """
        self._check_room(request)
        if not self._supports(request):
            raise ApiError(ErrorCode.inconsistent_group_protocol)
        if not request.member_id:
            self._join_new(request, answer)
        elif request.member_id in self._pending_joins:
            self._add(request, request.member_id, answer)
        else:
            self._check_identity(request.member_id, request.instance_id)
            self._rejoin(request, self.members[request.member_id], answer)

    def _check_room(self, request: JoinRequest) -> None:
        most = self._context.config.group_max_size
        known = self.members.get(request.member_id)
        match self.state:
            case ClassicState.EMPTY:
                has_room = True
            case ClassicState.PREPARING:
                waiting = sum(member.join is not None for member in self.members.values())
                has_room = (known is not None and known.join is not None) or waiting < most
            case _:
                has_room = known is not None or len(self.members) < most
        if not has_room:
            self._remove(request.member_id)
            self._complete_if_all_joined()
            raise ApiError(ErrorCode.group_max_size_reached)
        size = sum(len(metadata) for metadata in request.protocols.values())
        others = sum(member.size for member in self.members.values() if member is not known)
        if size + others > self._context.config.group_max_bytes:
            raise ApiError(ErrorCode.group_max_size_reached)

    def _supports(self, request: JoinRequest) -> bool:
        if self.is_empty:
            return bool(request.protocol_type and request.protocols)
        if request.protocol_type != self.protocol_type:
            return False
        return any(all(name in member.protocols for member in self.members.values()) for name in request.protocols)

    def _join_new(self, request: JoinRequest, answer: Answer) -> None:
        member_id = f"{request.client_id if request.instance_id is None else request.instance_id}-{uuid.uuid4()}"
        if request.instance_id is not None and request.instance_id in self._static_ids:
            self._replace_static(request, member_id, answer)
        elif request.instance_id is None and request.needs_member_id:
            if len(self._pending_joins) >= self._context.config.group_max_size:
                raise ApiError(ErrorCode.group_max_size_reached)
            self._pending_joins.add(member_id)
            self._schedule_session(member_id, request.session_timeout_ms)
            answer({"error_code": ErrorCode.member_id_required, "member_id": member_id})
        else:
            self._add(request, member_id, answer)

    def _add(self, request: JoinRequest, member_id: str, answer: Answer) -> None:
        if not self.members:
            self.protocol_type = request.protocol_type
        self._pending_joins.discard(member_id)
        if self.state == ClassicState.PREPARING and self._is_first_rebalance:
            self._has_new_member = True
        self.members[member_id] = ClassicMember(
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
        if request.instance_id is not None:
            self._static_ids[request.instance_id] = member_id
        self.leader = self.leader or member_id
        self._schedule_session(member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance_or_complete(f"member {member_id} joins")

    def _rejoin(self, request: JoinRequest, member: ClassicMember, answer: Answer) -> None:
        is_changed = list(member.protocols.items()) != list(request.protocols.items())  # also where the order changed
        is_leader = member.member_id == self.leader
        match self.state:
            case ClassicState.PREPARING:
                self._update_and_rebalance(request, member, answer)
            case ClassicState.COMPLETING if not is_changed:
                # It may have missed the first answer.
                answer(self._joined(member, self._subscriptions() if is_leader else []))
            case ClassicState.STABLE if not is_changed and not is_leader:
                answer(self._joined(member, []))
            case ClassicState.COMPLETING | ClassicState.STABLE:
                # The leader joins again for what only it knows of, such as new partitions.
                self._update_and_rebalance(request, member, answer)
            case _:
                raise ApiError(ErrorCode.unknown_member_id)

    def _update_and_rebalance(self, request: JoinRequest, member: ClassicMember, answer: Answer) -> None:
        self._update(request, member, answer)
        self._rebalance_or_complete(f"member {member.member_id} joins again")

    def _update(self, request: JoinRequest, member: ClassicMember, answer: Answer) -> None:
        # A client that repeats its request does not wait for the answer to the first one.
        member.answer_join({"error_code": ErrorCode.rebalance_in_progress, "member_id": member.member_id})
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.join = answer

    def _replace_static(self, request: JoinRequest, member_id: str, answer: Answer) -> None:
        """Let a static member that was away take its place again, under a new id."""
        instance_id = request.instance_id
        assert instance_id is not None
        old = self.members.pop(self._static_ids[instance_id])
        old.answer_join({"error_code": ErrorCode.fenced_instance_id, "member_id": old.member_id})
        old.answer_sync({"error_code": ErrorCode.fenced_instance_id})
        self._cancel_session(old.member_id)
        member = ClassicMember(
            member_id,
            instance_id,
            old.client_id,
            old.client_host,
            old.session_timeout_ms,
            old.rebalance_timeout_ms,
            old.protocols,
            old.assignment,
        )
        self.members[member_id] = member
        self._static_ids[instance_id] = member_id
        old_leader = self.leader
        if self.leader == old.member_id:
            self.leader = member_id
        self._pending_syncs.discard(old.member_id)
        self._extend_session(member)
        self._update(request, member, answer)
        match self.state:
            case ClassicState.STABLE if self._selected_protocol() == self.protocol:
                self._keep_replaced(request, member, old_leader or "")
            case ClassicState.STABLE | ClassicState.COMPLETING:
                # The leader may have the old id already, and would assign to it.
                self._prepare_rebalance(f"static member {instance_id} joins again")
            case _:
                self._complete_if_all_joined()

    def _keep_replaced(self, request: JoinRequest, member: ClassicMember, old_leader: str) -> None:
        """Answer a static member that is back in a stable group: nothing else changes."""
        try:
            self._save({each.member_id: each.assignment for each in self.members.values()})
        except ApiError as error:
            _log.warning("group %s: static member %s is not kept: %s", self.group_id, member.instance_id, error)
        is_leader = member.member_id == self.leader
        if request.may_skip_assignment:
            members = self._subscriptions() if is_leader else []
            member.answer_join(self._joined(member, members) | {"skip_assignment": is_leader})
        else:
            # Without that a leader would assign; under its old id it takes itself for a follower.
            member.answer_join(self._joined(member, []) | {"leader": old_leader})

    def _joined(self, member: ClassicMember, members: list[Message]) -> Message:
        return {
            "error_code": ErrorCode.none,
            "generation_id": self.generation,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "leader": self.leader or "",
            "member_id": member.member_id,
            "members": members,
        }

    def _subscriptions(self) -> list[Message]:
        return [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.protocols.get(self.protocol or "", b""),
            }
            for member in self.members.values()
        ]

    # Rebalancing

    def _rebalance_or_complete(self, reason: str) -> None:
        if self.state == ClassicState.PREPARING:
            self._complete_if_all_joined()
        else:
            self._prepare_rebalance(reason)

    def _prepare_rebalance(self, reason: str) -> None:
        _log.info("group %s: a rebalance begins: %s", self.group_id, reason)
        if self.state == ClassicState.COMPLETING:
            for member in self.members.values():
                member.assignment = b""
                if member.answer_sync({"error_code": ErrorCode.rebalance_in_progress}):
                    self._extend_session(member)
        self._pending_syncs.clear()
        self._context.timers.cancel(("sync", self.group_id))
        self._is_first_rebalance = self.is_empty
        self._move_to(ClassicState.PREPARING)
        if not self._is_first_rebalance:
            if self._have_all_joined():
                self._complete_join()
            else:
                self._schedule_join(self._rebalance_timeout_ms(), self._complete_join)
            return
        delay_ms = self._context.config.group_initial_rebalance_delay_ms
        if delay_ms == 0:
            self._complete_join()
            return
        self._has_new_member = False
        self._wait_for_first_members(delay_ms, max(self._rebalance_timeout_ms() - delay_ms, 0))

    def _wait_for_first_members(self, delay_ms: int, remaining_ms: int) -> None:
        """Wait for further members of a new group, as long as they come."""

        def look_again() -> None:
            if not self._has_new_member or remaining_ms == 0:
                self._complete_join()
                return
            self._has_new_member = False
            next_ms = min(self._context.config.group_initial_rebalance_delay_ms, remaining_ms)
            self._wait_for_first_members(next_ms, max(remaining_ms - delay_ms, 0))

        self._schedule_join(delay_ms, look_again)

    def _schedule_join(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._context.timers.schedule(("join", self.group_id), delay_ms, action)

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _have_all_joined(self) -> bool:
        return not self._pending_joins and all(member.join is not None for member in self.members.values())

    def _complete_if_all_joined(self) -> None:
        # The first rebalance lasts as long as its delay, for others that are about to come.
        if self.state == ClassicState.PREPARING and not self._is_first_rebalance and self._have_all_joined():
            self._complete_join()

    def _complete_join(self) -> None:
        self._context.timers.cancel(("join", self.group_id))
        for member in tuple(self.members.values()):
            if member.join is None and member.instance_id is None:
                self._remove(member.member_id)
        if self.members and not self._elect_leader():
            # Only static members are left, and none has come: their sessions decide.
            self._schedule_join(self._rebalance_timeout_ms(), self._complete_join)
            return
        self.generation += 1
        self._pending_syncs.clear()
        if not self.members:
            self.protocol = None
            self._move_to(ClassicState.EMPTY)
            self._save_empty()
            return
        self.protocol = self._selected_protocol()
        self._move_to(ClassicState.COMPLETING)
        self._is_first_rebalance = False
        subscriptions = self._subscriptions()
        self._pending_syncs.update(self.members)
        for member in self.members.values():
            member.answer_join(self._joined(member, subscriptions if member.member_id == self.leader else []))
            member.is_new = False
            self._extend_session(member)
        self._context.timers.schedule(("sync", self.group_id), self._rebalance_timeout_ms(), self._expire_syncs)

    def _elect_leader(self) -> bool:
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join is None:
            joined = next((member for member in self.members.values() if member.join is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    def _selected_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all have."""
        members = self.members.values()
        common = set.intersection(*(set(member.protocols) for member in members))
        votes = Counter(next(name for name in member.protocols if name in common) for member in members)
        return votes.most_common(1)[0][0]

    def _save_empty(self) -> None:
        try:
            self._save({})
        except ApiError as error:
            # After a crash its last members would be expected once more, until their sessions end.
            _log.warning("group %s: it is empty now, which is not kept: %s", self.group_id, error)

    def _expire_syncs(self) -> None:
        if not self._pending_syncs:
            return
        missing = list(self._pending_syncs)
        for member_id in missing:
            self._remove(member_id)
        self._prepare_rebalance(f"members {missing} did not ask for their assignment")

    def _move_to(self, state: ClassicState) -> None:
        self.state = state
        self.changed_ms = self._context.clock.milliseconds()

    # Assignment

    def sync(
        self,
        identity: MemberIdentity,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
        answer: Answer,
    ) -> None:
        """Handle SyncGroup; the answer may come when the leader has sent the assignment.

        Args:
            identity: the member and its generation.
            protocol_type: the type that the member takes the group for; None if it does not say.
            protocol: the assignor that it used; None if it does not say.
            assignments: by member id; only the leader sends any.
            answer: gives the response.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL or
                REBALANCE_IN_PROGRESS.
        """
        member = self.check_member(identity)
        for claimed, actual in ((protocol_type, self.protocol_type), (protocol, self.protocol)):
            if claimed is not None and actual is not None and claimed != actual:
                raise ApiError(ErrorCode.inconsistent_group_protocol)
        match self.state:
            case ClassicState.PREPARING:
                raise ApiError(ErrorCode.rebalance_in_progress)
            case ClassicState.STABLE:
                self._note_sync(member)
                answer(self._assigned(member))
                self._extend_session(member)
            case _:
                member.answer_sync({"error_code": ErrorCode.rebalance_in_progress})
                member.sync = answer
                self._note_sync(member)
                if member.member_id == self.leader:
                    self._assign(assignments)

    def _note_sync(self, member: ClassicMember) -> None:
        self._pending_syncs.discard(member.member_id)
        if not self._pending_syncs:
            self._context.timers.cancel(("sync", self.group_id))

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        kept = {member_id: assignments.get(member_id, b"") for member_id in self.members}
        try:
            if sum(len(assignment) for assignment in kept.values()) > self._context.config.group_max_bytes:
                raise ApiError(ErrorCode.unknown_server_error, "the assignment is larger than group_max_bytes")
            self._save(kept)
        except ApiError as error:
            _log.warning("group %s: the assignment cannot be kept: %s", self.group_id, error)
            for member in self.members.values():
                if member.answer_sync({"error_code": error.code}):
                    self._extend_session(member)
            self._prepare_rebalance("the assignment cannot be kept")
            return
        self._move_to(ClassicState.STABLE)
        for member in self.members.values():
            member.assignment = kept[member.member_id]
            if member.answer_sync(self._assigned(member)):
                self._extend_session(member)

    def _assigned(self, member: ClassicMember) -> Message:
        return {
            "error_code": ErrorCode.none,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "assignment": member.assignment,
        }

    def _save(self, assignments: Mapping[str, bytes]) -> None:
        """Write the group with an assignment by member id.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE.
        """
        members = [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rebalance_timeout": member.rebalance_timeout_ms,
                "session_timeout": member.session_timeout_ms,
                "subscription": member.protocols.get(self.protocol or "", b""),
                "assignment": assignments[member.member_id],
            }
            for member in self.members.values()
        ]
        value: Message = {
            "protocol_type": self.protocol_type or "",
            "generation": self.generation,
            "protocol": self.protocol,
            "leader": self.leader,
            "current_state_timestamp": self.changed_ms,
            "members": members,
        }
        self._context.log.append([GroupRecord(RecordKind.GROUP, {"group": self.group_id}, value)])

    # Sessions

    def heartbeat(self, identity: MemberIdentity) -> None:
        """Handle Heartbeat.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION or REBALANCE_IN_PROGRESS.
        """
        self._extend_session(self.check_member(identity))
        if self.state == ClassicState.PREPARING:
            raise ApiError(ErrorCode.rebalance_in_progress)

    def _extend_session(self, member: ClassicMember) -> None:
        self._schedule_session(member.member_id, member.session_timeout_ms)

    def _schedule_session(self, member_id: str, timeout_ms: int) -> None:
        key = ("session", self.group_id, member_id)
        self._context.timers.schedule(key, timeout_ms, lambda: self._expire_session(member_id))

    def _cancel_session(self, member_id: str) -> None:
        self._context.timers.cancel(("session", self.group_id, member_id))

    def _expire_session(self, member_id: str) -> None:
        member = self.members.get(member_id)
        # A member that waits for others cannot send heartbeats; a new one has to ask again.
        if member is not None and not member.is_new and (member.join is not None or member.sync is not None):
            return
        self._remove(member_id)
        if member is None or self.state == ClassicState.PREPARING:
            self._complete_if_all_joined()
        else:
            self._prepare_rebalance(f"the session of member {member_id} is over")

    def leave(self, members: Sequence[tuple[str, str | None]]) -> list[ErrorCode]:
        """Handle LeaveGroup, and return a code for each member.

        Args:
            members: member id and instance id; a static member may be removed by its instance id alone.
        """
        codes = [self._leave(member_id, instance_id) for member_id, instance_id in members]
        if ErrorCode.none in codes:
            if self.state == ClassicState.PREPARING:
                self._complete_if_all_joined()
            elif self.state != ClassicState.EMPTY:
                # As in Kafka, also where none of them was a member yet.
                self._prepare_rebalance("members leave")
        return codes

    def _leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if not member_id and instance_id is not None:
            member_id = self._static_ids.get(instance_id, "")
        if member_id not in self._pending_joins:
            try:
                self._check_identity(member_id, instance_id)
            except ApiError as error:
                return error.code
        self._remove(member_id)
        return ErrorCode.none

    def _remove(self, member_id: str) -> None:
        """Forget a member; what it waits for is answered."""
        self._cancel_session(member_id)
        self._pending_joins.discard(member_id)
        self._pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        member.answer_join({"error_code": ErrorCode.unknown_member_id, "member_id": ""})
        member.answer_sync({"error_code": ErrorCode.unknown_member_id})
        if member.instance_id is not None and self._static_ids.get(member.instance_id) == member_id:
            del self._static_ids[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def close(self) -> None:
        """Drop what is due, because the group is deleted."""
        for member_id in [*self.members, *self._pending_joins]:
            self._remove(member_id)
        for kind in ("join", "sync"):
            self._context.timers.cancel((kind, self.group_id))

    # Checks

    def _check_identity(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None:
            known = self._static_ids.get(instance_id)
            if known is not None and known != member_id:
                raise ApiError(ErrorCode.fenced_instance_id)
            if known is None:
                raise ApiError(ErrorCode.unknown_member_id)
        if member_id not in self.members:
            raise ApiError(ErrorCode.unknown_member_id)

    def check_member(self, identity: MemberIdentity) -> ClassicMember:
        """Return a member after checking that it is one, of the present generation.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION.
        """
        self._check_identity(identity.member_id, identity.instance_id)
        if identity.generation != self.generation:
            raise ApiError(ErrorCode.illegal_generation)
        return self.members[identity.member_id]

    def check_transactional_commit(self, identity: MemberIdentity, partitions: Iterable[TopicPartition]) -> None:
        """Check that a client may commit offsets in a transaction; older ones do not say who they are.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION.
        """
        if identity.is_given and not (identity.generation < 0 and self.is_empty):
            self.check_member(identity)

    def check_commit(self, identity: MemberIdentity, version: int, partitions: Iterable[TopicPartition]) -> None:
        """Check that a client may commit offsets; the session of a member is extended.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION or REBALANCE_IN_PROGRESS.
        """
        if identity.generation < 0 and self.is_empty:
            return
        member = self.check_member(identity)
        if self.state == ClassicState.COMPLETING:
            raise ApiError(ErrorCode.rebalance_in_progress)
        self._extend_session(member)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Accept every client: only the members of consumer groups say who they are."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members read a topic, as far as the broker can tell."""
        if self.protocol_type != CONSUMER_PROTOCOL:
            return False
        try:
            return any(topic in _subscribed(member.protocols[self.protocol or ""]) for member in self.members.values())
        except (MalformedMessageError, KeyError):
            return True

    def retained_from(self, offset: CommittedOffset) -> int | None:
        """Return from when on the retention time of an offset counts, in ms since the epoch; None if it does not."""
        if self.protocol_type is None or self.changed_ms < 0:
            return offset.committed_ms
        if self.is_empty:
            return self.changed_ms
        # Members of other types of protocols do not tell which topics they use.
        return offset.committed_ms if self._is_stable_consumer else None

    @property
    def _is_stable_consumer(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL and self.state == ClassicState.STABLE

    def check_offsets_can_be_deleted(self) -> None:
        """Check that offsets may be removed while there are members.

        Raises:
            ApiError: NON_EMPTY_GROUP, because the broker cannot tell which topics the members use.
        """
        if not self.is_empty and self.protocol_type != CONSUMER_PROTOCOL:
            raise ApiError(ErrorCode.non_empty_group)

    # Description

    def description(self) -> Message:
        """Return the group as DescribeGroups shows it."""
        is_stable = self.state == ClassicState.STABLE
        protocol = self.protocol if is_stable and self.protocol is not None else ""
        return {
            "group_id": self.group_id,
            "group_state": str(self.state),
            "protocol_type": self.protocol_type or "",
            "protocol_data": protocol,
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.instance_id,
                    "client_id": member.client_id,
                    "client_host": member.client_host,
                    "member_metadata": member.protocols.get(protocol, b"") if is_stable else b"",
                    "member_assignment": member.assignment if is_stable else b"",
                }
                for member in self.members.values()
            ],
        }

    def removals(self) -> list[GroupRecord]:
        """Return the records that remove the group; a group that only has offsets has none of its own."""
        if self.protocol_type is None:
            return []
        return [GroupRecord(RecordKind.GROUP, {"group": self.group_id}, None)]


def _subscribed(metadata: bytes) -> list[str]:
    cursor = Cursor(memoryview(metadata))
    cursor.number(INT16)  # all later versions begin like the first one
    topics: list[str] = _subscription.decode(cursor)["topics"]
    return topics
