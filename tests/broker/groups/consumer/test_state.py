"""The states of a consumer group: each transition of the table, and no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock_broker.groups.consumer.group import ConsumerGroup
from penstock_broker.groups.consumer.member import ConsumerGroupMember
from penstock_broker.groups.consumer.state import NEXT_STATES, ConsumerGroupState, state_of
from penstock_broker.groups.consumer.target import ConsumerTargetAssignment
from penstock_broker.groups.modern.heartbeat import LEAVE_FOR_A_WHILE
from penstock_broker.groups.modern.member import MemberState
from tests.broker.groups.classic.test_group import code_of
from tests.broker.groups.consumer.test_group import SESSION_MS, Consumer, settle
from tests.broker.groups.support import GroupBroker

EMPTY, ASSIGNING, RECONCILING, STABLE = ConsumerGroupState
Transition = tuple[ConsumerGroupState, ConsumerGroupState]


class Watched:
    """The group `g` of three clients, and the states that it takes."""

    def __init__(self, directory: Path) -> None:
        self.broker = GroupBroker(directory)
        self.broker.create_topic("t", 6)
        self.one, self.two = Consumer(self.broker), Consumer(self.broker)
        self.static = Consumer(self.broker, instance_id="static")
        self.states = [EMPTY]

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.close()

    @property
    def state(self) -> ConsumerGroupState:
        """The state of the group, as tools see it."""
        [group] = self.broker.groups.groups() or [None]
        assert group is None or isinstance(group, ConsumerGroup)
        return EMPTY if group is None else group.state

    def __call__(self, *actions: Callable[[], None]) -> None:
        """Take actions, and note the state after each of them."""
        for action in actions:
            action()
            self.states.append(self.state)

    @property
    def transitions(self) -> set[Transition]:
        """The changes of the state so far."""
        return {(old, new) for old, new in zip(self.states, self.states[1:], strict=False) if old != new}

    def settle_two(self) -> None:
        """Give each of two members half of the partitions."""
        settle(self.one, self.two)

    def replace_two(self) -> None:
        """Kill the second client; another one takes its place."""
        self.two = Consumer(self.broker)

    def grow_topic(self) -> None:
        """Add a partition to the topic."""
        topic = self.broker.topics.by_name("t")
        self.broker.topics.grow(topic, len(topic.partitions) + 1)


@pytest.fixture
def group(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


PATHS: Mapping[Transition, Callable[[Watched], tuple[Callable[[], None], ...]]] = {
    (EMPTY, STABLE): lambda group: (group.one.follow,),
    (STABLE, RECONCILING): lambda group: (group.one.follow, group.two.follow),
    (RECONCILING, STABLE): lambda group: (group.one.follow, group.two.follow, group.settle_two),
    (STABLE, ASSIGNING): lambda group: (group.settle_two, group.two.leave),
    (RECONCILING, ASSIGNING): lambda group: (group.one.follow, group.two.follow, group.two.leave),
    (ASSIGNING, STABLE): lambda group: (group.settle_two, group.two.leave, group.one.follow),
    (ASSIGNING, RECONCILING): lambda group: (
        lambda: settle(group.one, group.two, group.static),
        group.static.leave,
        group.one.follow,
    ),
    (STABLE, EMPTY): lambda group: (group.one.follow, group.one.leave),
    (ASSIGNING, EMPTY): lambda group: (group.settle_two, group.two.leave, group.one.leave),
    (RECONCILING, EMPTY): lambda group: (
        group.static.follow,
        lambda: group.static.leave(LEAVE_FOR_A_WHILE),
        lambda: group.broker.timers.advance(SESSION_MS),
    ),
}
"""Actions that end with each transition."""


def test_each_transition_of_the_table_has_a_path() -> None:
    assert set(PATHS) == {(state, each) for state, following in NEXT_STATES.items() for each in following}


@pytest.mark.parametrize("transition", PATHS, ids=lambda pair: f"{pair[0]} to {pair[1]}")
def test_a_group_takes_each_transition(group: Watched, transition: Transition) -> None:
    with group:
        group(*PATHS[transition](group))
        assert tuple(group.states[-2:]) == transition


ACTIONS: Mapping[str, Callable[[Watched], None]] = {
    "one": lambda group: group.one.follow(),
    "two": lambda group: group.two.follow(),
    "static": lambda group: group.static.follow(),
    "one leaves": lambda group: group.one.leave(),
    "static leaves": lambda group: group.static.leave(),
    "static goes away": lambda group: group.static.leave(LEAVE_FOR_A_WHILE),
    "two crashes": lambda group: group.replace_two(),
    "topics": lambda group: group.grow_topic(),
    "time": lambda group: group.broker.timers.advance(SESSION_MS // 2),
    "restart": lambda group: group.broker.restart(),
}


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(names=st.lists(st.sampled_from(list(ACTIONS)), max_size=30))
def test_a_group_takes_no_other_transition(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    with Watched(tmp_path_factory.mktemp("group")) as group:
        for name in names:
            group(lambda name=name: code_of(lambda: ACTIONS[name](group)))  # type: ignore[misc]  # bound now
        assert all(new in NEXT_STATES[old] for old, new in group.transitions)


def test_another_transition_is_refused(group: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    with group:
        monkeypatch.setattr("penstock_broker.groups.consumer.group.state_of", lambda members, target: ASSIGNING)
        with pytest.raises(AssertionError, match="a group that is Empty cannot become Assigning"):
            group.one.follow()


def test_the_state_follows_from_the_members_and_the_target() -> None:
    target = ConsumerTargetAssignment(epoch=3, assignment_epoch=3)
    ready, behind = ConsumerGroupMember("a", epoch=3), ConsumerGroupMember("b", epoch=2)
    waiting = ConsumerGroupMember("c", epoch=3, state=MemberState.UNRELEASED_PARTITIONS)
    assert state_of([], target) is EMPTY
    assert state_of([ready], ConsumerTargetAssignment(epoch=4, assignment_epoch=3)) is ASSIGNING
    assert state_of([ready, ready], target) is STABLE
    assert state_of([ready, behind], target) is RECONCILING
    assert state_of([ready, waiting], target) is RECONCILING
