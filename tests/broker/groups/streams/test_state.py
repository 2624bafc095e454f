"""The states of a streams group: each transition of the table, and no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock_broker.groups.modern.heartbeat import LEAVE_FOR_A_WHILE
from penstock_broker.groups.modern.member import MemberState
from penstock_broker.groups.streams.group import StreamsGroup
from penstock_broker.groups.streams.state import NEXT_STATES, StreamsGroupState, state_of
from penstock_broker.groups.streams.target import StreamsTargetAssignment
from tests.broker.groups.classic.test_group import code_of
from tests.broker.groups.streams.test_group import READS_T, SESSION_MS, StreamsClient, settle
from tests.broker.groups.streams.test_member import MEMBER
from tests.broker.groups.support import GroupBroker

EMPTY, NOT_READY, ASSIGNING, RECONCILING, STABLE = StreamsGroupState
Transition = tuple[StreamsGroupState, StreamsGroupState]
DELAY_MS = 3_000


class WatchedStreams:
    """The group `g` of three clients, and the states that it takes."""

    def __init__(self, directory: Path) -> None:
        self.broker = GroupBroker(directory, group_streams_initial_rebalance_delay_ms=DELAY_MS)
        self.broker.create_topic("t", 6)
        self.one, self.two = StreamsClient(self.broker, READS_T), StreamsClient(self.broker, READS_T)
        self.static = StreamsClient(self.broker, READS_T, instance_id="static")
        self.states = [EMPTY]

    def __enter__(self) -> WatchedStreams:
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.close()

    @property
    def state(self) -> StreamsGroupState:
        """The state of the group, as tools see it."""
        [group] = self.broker.groups.groups() or [None]
        assert group is None or isinstance(group, StreamsGroup)
        return EMPTY if group is None else group.state

    def __call__(self, *actions: Callable[[], object]) -> None:
        """Take actions, and note the state after each of them."""
        for action in actions:
            action()
            self.states.append(self.state)

    @property
    def transitions(self) -> set[Transition]:
        """The changes of the state so far."""
        return {(old, new) for old, new in zip(self.states, self.states[1:], strict=False) if old != new}

    def wait(self) -> None:
        """Let the delay of the first assignment pass."""
        self.broker.timers.advance(DELAY_MS)

    def start_one(self) -> None:
        """Give one member all tasks."""
        self.one.follow()
        self.wait()
        self.one.follow()

    def settle_two(self) -> None:
        """Give each of two members half of the tasks."""
        self.start_one()
        settle(self.one, self.two)

    def delete_topic(self) -> None:
        """Delete the topic, if it exists."""
        code_of(lambda: self.broker.delete_topic("t"))

    def create_topic(self) -> None:
        """Create the topic, if it does not exist."""
        code_of(lambda: self.broker.create_topic("t", 6))

    def make_ready(self) -> None:
        """Let two members wait for a topic, and create it."""
        self.settle_two()
        self.delete_topic()
        settle(self.one, self.two)


@pytest.fixture
def group(tmp_path: Path) -> WatchedStreams:
    return WatchedStreams(tmp_path)


PATHS: Mapping[Transition, Callable[[WatchedStreams], tuple[Callable[[], object], ...]]] = {
    (EMPTY, NOT_READY): lambda group: (group.delete_topic, group.one.follow),
    (EMPTY, ASSIGNING): lambda group: (group.one.follow,),
    (EMPTY, STABLE): lambda group: (lambda: None,),
    (NOT_READY, EMPTY): lambda group: (group.delete_topic, group.one.follow, group.one.leave),
    (NOT_READY, ASSIGNING): lambda group: (group.delete_topic, group.one.follow, group.create_topic, group.one.follow),
    (NOT_READY, RECONCILING): lambda group: (group.make_ready, group.create_topic, group.one.follow),
    (NOT_READY, STABLE): lambda group: (
        group.start_one,
        group.delete_topic,
        group.one.follow,
        group.one.follow,
        group.create_topic,
        group.one.follow,
    ),
    (ASSIGNING, EMPTY): lambda group: (group.one.follow, group.one.leave),
    (ASSIGNING, NOT_READY): lambda group: (group.one.follow, group.delete_topic, group.one.follow),
    (ASSIGNING, RECONCILING): lambda group: (group.one.follow, group.two.follow, group.wait, group.one.follow),
    (ASSIGNING, STABLE): lambda group: (group.one.follow, group.wait, group.one.follow),
    (RECONCILING, EMPTY): lambda group: (
        lambda: group.static.follow(),
        group.wait,
        group.static.follow,
        lambda: group.static.leave(LEAVE_FOR_A_WHILE),
        lambda: group.broker.timers.advance(SESSION_MS),
    ),
    (RECONCILING, NOT_READY): lambda group: (group.start_one, group.two.follow, group.delete_topic, group.one.beat),
    (RECONCILING, ASSIGNING): lambda group: (group.start_one, group.two.follow, group.two.leave),
    (RECONCILING, STABLE): lambda group: (
        group.start_one,
        group.two.follow,
        lambda: settle(group.one, group.two),
    ),
    (STABLE, EMPTY): lambda group: (group.start_one, group.one.leave),
    (STABLE, NOT_READY): lambda group: (group.start_one, group.delete_topic, group.one.follow),
    (STABLE, ASSIGNING): lambda group: (group.settle_two, group.two.leave),
    (STABLE, RECONCILING): lambda group: (group.start_one, group.two.follow),
}
"""Actions that end with each transition."""


def test_each_transition_of_the_table_has_a_path() -> None:
    assert set(PATHS) == {(state, each) for state, following in NEXT_STATES.items() for each in following}


@pytest.mark.parametrize(
    "transition", [pair for pair in PATHS if pair != (EMPTY, STABLE)], ids=lambda pair: f"{pair[0]} to {pair[1]}"
)
def test_a_group_takes_each_transition(group: WatchedStreams, transition: Transition) -> None:
    with group:
        group(*PATHS[transition](group))
        assert tuple(group.states[-2:]) == transition


def test_without_a_delay_the_first_member_gets_all_tasks(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path)
    broker.create_topic("t", 6)
    StreamsClient(broker, READS_T).follow()
    [group] = broker.groups.groups()
    assert (group.state, group.group_type, group.protocol_type) == (STABLE, "streams", "streams")
    broker.close()


ACTIONS: Mapping[str, Callable[[WatchedStreams], object]] = {
    "one": lambda group: group.one.follow(),
    "two": lambda group: group.two.follow(),
    "static": lambda group: group.static.follow(),
    "one leaves": lambda group: group.one.leave(),
    "static leaves": lambda group: group.static.leave(),
    "static goes away": lambda group: group.static.leave(LEAVE_FOR_A_WHILE),
    "topic is deleted": lambda group: group.delete_topic(),
    "topic is created": lambda group: group.create_topic(),
    "delay": lambda group: group.wait(),
    "time": lambda group: group.broker.timers.advance(SESSION_MS // 2),
    "restart": lambda group: group.broker.restart(),
}


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(names=st.lists(st.sampled_from(list(ACTIONS)), max_size=30))
def test_a_group_takes_no_other_transition(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    with WatchedStreams(tmp_path_factory.mktemp("group")) as group:
        for name in names:
            group(lambda name=name: code_of(lambda: ACTIONS[name](group)))  # type: ignore[misc]  # bound now
        assert all(new in NEXT_STATES[old] for old, new in group.transitions)


def test_the_state_follows_from_the_topics_the_members_and_the_target() -> None:
    target = StreamsTargetAssignment(epoch=3, assignment_epoch=3, topology_epoch=0)
    ready, behind = replace(MEMBER, epoch=3), replace(MEMBER, epoch=2)
    waiting = replace(MEMBER, epoch=3, state=MemberState.UNRELEASED_PARTITIONS)
    assert state_of([], target) is EMPTY
    assert state_of([ready], replace(target, topology_epoch=-1)) is NOT_READY
    assert state_of([ready], replace(target, epoch=4)) is ASSIGNING
    assert state_of([ready, ready], target) is STABLE
    assert state_of([ready, behind], target) is RECONCILING
    assert state_of([ready, waiting], target) is RECONCILING
