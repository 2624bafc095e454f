"""The members of a group, by id and by static name, and their sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, ValuesView
from typing import Protocol, TypeVar

from penstock_broker.errors import ApiError
from penstock_broker.groups.timers import Timers
from penstock_broker.wire.error_codes import ErrorCode


class _Member(Protocol):
    @property
    def member_id(self) -> str: ...

    @property
    def instance_id(self) -> str | None: ...


_AnyMember = TypeVar("_AnyMember", bound=_Member)


class GroupMembers(Mapping[str, _AnyMember]):
    """Members by id.

    Args:
        group_id: name of the group.
        timers: schedules the ends of sessions.
        expire: called with the id of a member when its session expires.
    """

    def __init__(self, group_id: str, timers: Timers, expire: Callable[[str], None]) -> None:
        self._group_id = group_id
        self._timers = timers
        self._expire = expire
        self._by_id: dict[str, _AnyMember] = {}
        self._static_ids: dict[str, str] = {}

    def __getitem__(self, member_id: str) -> _AnyMember:
        return self._by_id[member_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def values(self) -> ValuesView[_AnyMember]:
        """Return all members; the method of Mapping would look each of them up."""
        return self._by_id.values()

    def static_id(self, instance_id: str | None) -> str | None:
        """Return the id of a static member, or None if it does not exist."""
        return None if instance_id is None else self._static_ids.get(instance_id)

    def identified(self, member_id: str, instance_id: str | None) -> _AnyMember:
        """Return the member that a client claims to be.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
        """
        if instance_id is not None:
            known = self.static_id(instance_id)
            if known is None:
                raise ApiError(ErrorCode.unknown_member_id, f"the group has no static member {instance_id}")
            if known != member_id:
                raise ApiError(
                    ErrorCode.fenced_instance_id, f"static member {instance_id} is member {known}, not {member_id}"
                )
        if member_id not in self:
            raise ApiError(ErrorCode.unknown_member_id, f"the group has no member {member_id}")
        return self[member_id]

    def put(self, member: _AnyMember) -> None:
        """Add a member or replace its previous version."""
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._static_ids[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> _AnyMember | None:
        """Remove a member and its session, and return the member, if any."""
        self._timers.cancel(self._session(member_id))
        member = self._by_id.pop(member_id, None)
        if member is not None and member.instance_id is not None and self.static_id(member.instance_id) == member_id:
            del self._static_ids[member.instance_id]
        return member

    def start_session(self, member_id: str, timeout_ms: int) -> None:
        """Start or restart a session of a member or of a pending join."""
        self._timers.schedule(self._session(member_id), timeout_ms, lambda: self._expire(member_id))

    def _session(self, member_id: str) -> tuple[str, str, str]:
        return ("session", self._group_id, member_id)
