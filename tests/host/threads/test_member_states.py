"""The transitions of a member are those of the table of its protocol, in whatever order things happen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy

import pytest

from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.threads import member_messages as m
from penstock.host.threads import streams_member as s
from penstock.host.threads.classic_member import ClassicMember
from penstock.host.threads.member import AbstractMember
from penstock.host.threads.member_states import (
    CLASSIC_TRANSITIONS,
    STREAMS_TRANSITIONS,
    MemberState,
    MemberTransitions,
)
from penstock.host.threads.state_machine import StateMachine
from penstock.host.threads.streams_member import StreamsMember
from penstock.host.threads.subscription import lead
from penstock_broker.wire.error_codes import ErrorCode
from tests.host.threads.test_member import NONE, RULES, TASKS, TIMING, flagged, subscribed

Transition = tuple[MemberState, MemberState]

CODES = (
    ErrorCode.not_coordinator,
    ErrorCode.unknown_member_id,
    ErrorCode.illegal_generation,
    ErrorCode.rebalance_in_progress,
    ErrorCode.group_authorization_failed,
)
OF_INSTANCES = (ErrorCode.unreleased_instance_id, ErrorCode.fenced_instance_id)
ERROR = RuntimeError("permanent")
ALWAYS: Sequence[m.MemberEvent] = (
    m.Begin(),
    m.Tick(),
    m.LeaveAnswered(),
    m.Disconnected(),
    m.Unusable(ERROR),
    *(m.CommitRefused(code, "me", 1) for code in CODES),
    m.TasksRevoked(frozenset(TASKS), assignments=1_000_000),
    m.Stalled(ERROR),
    m.ShutDownRequested(),
    *map(m.LeaveRequested, GroupMembershipOperation),
)
OF_CLASSIC: Sequence[m.MemberEvent] = (
    m.JoinAnswered(ErrorCode.member_id_required, "me"),
    m.JoinAnswered(NONE, "me", 1, "other", {}),
    m.JoinAnswered(NONE, "me", 1, "me", {"me": subscribed(), "other": subscribed()}),
    m.JoinAnswered(NONE, "me", 1, "me", {"me": subscribed(), "other": b"\x00\x00"}),
    *(m.JoinAnswered(code) for code in CODES),
    m.SyncAnswered(NONE, lead({"me": subscribed()}, RULES)["me"]),
    m.SyncAnswered(NONE, lead({"me": subscribed(TASKS), "other": subscribed()}, RULES)["me"]),
    m.SyncAnswered(NONE, lead({"me": subscribed(), "other": flagged()}, RULES)["me"]),
    m.SyncAnswered(NONE, b"\x00\x00"),
    *(m.SyncAnswered(code) for code in CODES),
    *(m.HeartbeatAnswered(code) for code in (NONE, *CODES)),
)
OF_STREAMS: Sequence[m.MemberEvent] = (
    m.StreamsHeartbeatAnswered(NONE, epoch=1),
    m.StreamsHeartbeatAnswered(NONE, epoch=1, tasks=m.StreamsTasks(frozenset(TASKS))),
    m.StreamsHeartbeatAnswered(NONE, epoch=1, statuses={s.INCORRECTLY_PARTITIONED_TOPICS: "3 and 4"}),
    m.StreamsHeartbeatAnswered(NONE, epoch=1, statuses={s.SHUTDOWN_APPLICATION: "another"}),
    *(m.StreamsHeartbeatAnswered(code) for code in (*CODES, ErrorCode.group_id_not_found, *OF_INSTANCES)),
    m.StreamsMemberDescribed(NONE),
    m.StreamsMemberDescribed(NONE, m.StreamsTasks(frozenset(TASKS))),
    *(m.StreamsMemberDescribed(code) for code in (*CODES, ErrorCode.group_id_not_found)),
)
MEMBERS = {
    "classic": (ClassicMember(RULES, TIMING), OF_CLASSIC, CLASSIC_TRANSITIONS),
    "streams": (StreamsMember("me", TIMING, max_poll_interval_ms=300_000), OF_STREAMS, STREAMS_TRANSITIONS),
}
SETTINGS = {"_rules", "_timing"}
COUNTERS = {"losses", "_assignments", "_assigned_in"}
TIMES = {"_next_ms", "_session_until", "_probe_ms", "_missing_since"}


def situation(member: AbstractMember) -> object:
    """Return the attributes that decide about the next steps; time passes between all of them."""
    others = {"_state"} | SETTINGS | COUNTERS | TIMES
    return member.state, member._next_ms is None, *(each for name, each in vars(member).items() if name not in others)


def copied(member: AbstractMember) -> AbstractMember:
    other = copy(member)
    other._state, other._assigned_in = copy(member._state), member._assigned_in.copy()
    return other


def situations(member: AbstractMember, events: Sequence[m.MemberEvent]) -> Iterator[AbstractMember]:
    """Let everything happen in every situation that follows from it, once."""
    left, known, now = [member], {situation(member)}, 0
    while left:
        before = left.pop()
        yield before
        for event in events:
            now += 60_000
            after = copied(before)
            after.handle(event, now)
            if (found := situation(after)) not in known:
                known.add(found)
                left.append(after)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> set[Transition]:
    """The transitions that members have taken."""
    transitions: set[Transition] = set()
    change = StateMachine.change

    def noted(machine: StateMachine[MemberState], state: MemberState) -> None:
        transitions.add((machine.current, state))
        change(machine, state)

    monkeypatch.setattr(StateMachine, "change", noted)
    return transitions


def pairs(transitions: MemberTransitions) -> set[Transition]:
    return {(state, each) for state, following in transitions.items() for each in following}


@pytest.mark.parametrize("protocol", MEMBERS)
def test_a_member_takes_each_transition_of_its_protocol_and_no_other(taken: set[Transition], protocol: str) -> None:
    member, own, transitions = MEMBERS[protocol]
    reached = {each.state for each in situations(member, (*ALWAYS, *own))}
    assert taken == pairs(transitions)
    assert reached == set(transitions)


STATIC_MEMBERS = {
    "classic": (ClassicMember(RULES, TIMING, instance="one"), OF_CLASSIC, CLASSIC_TRANSITIONS),
    "streams": (StreamsMember("me", TIMING, 300_000, instance="one"), OF_STREAMS, STREAMS_TRANSITIONS),
}


@pytest.mark.parametrize("protocol", STATIC_MEMBERS)
def test_a_static_member_takes_the_same_transitions(taken: set[Transition], protocol: str) -> None:
    member, own, transitions = STATIC_MEMBERS[protocol]
    assert {each.state for each in situations(member, (*ALWAYS, *own))} == set(transitions)
    assert taken == pairs(transitions)


def test_a_member_refuses_other_transitions() -> None:
    state = StateMachine(MemberState.STABLE, STREAMS_TRANSITIONS)
    with pytest.raises(AssertionError, match=r"MemberState\.JOINING cannot follow MemberState\.STABLE\."):
        state.change(MemberState.JOINING)
