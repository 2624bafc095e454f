"""The parts that both types of groups have in common."""

from __future__ import annotations

import inspect

import pytest

from penstock_broker.groups.classic.group import ClassicGroup
from penstock_broker.groups.consumer.group import ConsumerGroup
from penstock_broker.groups.group import Group, MemberIdentity
from tests.broker.groups.classic.support import Client, stable_group
from tests.broker.groups.support import GroupBroker


@pytest.mark.parametrize(
    ("identity", "is_given"),
    [
        (MemberIdentity("", None, -1), False),
        (MemberIdentity("m", None, -1), True),
        (MemberIdentity("", "", -1), True),
        (MemberIdentity("", None, 0), True),
    ],
)
def test_a_client_claims_a_membership_with_each_of_its_parts(identity: MemberIdentity, is_given: bool) -> None:
    assert identity.is_given is is_given


def test_a_group_without_members_is_open_to_clients_without_membership(broker: GroupBroker) -> None:
    broker.commit("g", "t", 0, 5)
    group = broker.groups.classic_group("g")
    other, member = MemberIdentity("", None, -1), MemberIdentity("m", None, 0)
    assert (group.is_open_to(other), group.is_open_to(member)) == (True, False)
    stable_group(broker, Client(broker))
    assert not group.is_open_to(other)


@pytest.mark.parametrize("group_type", [ClassicGroup, ConsumerGroup])
@pytest.mark.parametrize("name", sorted(name for name in vars(Group) if not name.startswith("_")))
def test_both_types_have_the_methods_of_a_group_with_the_same_arguments(group_type: type[Group], name: str) -> None:
    declared, found = vars(Group)[name], getattr(group_type, name)
    if callable(declared):
        assert inspect.signature(found) == inspect.signature(declared)
    else:
        assert isinstance(found, type(declared))
