"""What consumer groups and streams groups have in common: heartbeats that fail, static members, epochs of commits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock_broker.errors import ApiError
from penstock_broker.groups.group_log import GroupLog
from penstock_broker.groups.modern.group import ModernGroup
from penstock_broker.groups.modern.heartbeat import LEAVE_FOR_A_WHILE
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.groups.classic.test_group import code_of
from tests.broker.groups.consumer.test_group import Consumer
from tests.broker.groups.streams.test_group import READS_T, StreamsClient
from tests.broker.groups.support import GroupBroker

SESSION_MS = 45_000

Client = Consumer | StreamsClient
NewClient = Callable[..., Client]


@pytest.fixture(params=["consumer", "streams"])
def new_client(request: pytest.FixtureRequest, broker: GroupBroker) -> NewClient:
    """Return what makes a client of the group `g`, which reads the topic `t` of two partitions."""

    def consumer(**settings: str) -> Client:
        return Consumer(broker, "t", **settings)

    def streams(**settings: str) -> Client:
        return StreamsClient(broker, READS_T, **settings)

    return {"consumer": consumer, "streams": streams}[request.param]


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function after which no record can be written, until the test ends."""

    def fill() -> None:
        def refuse(*_: object) -> int:
            raise ApiError(ErrorCode.coordinator_not_available)

        monkeypatch.setattr(GroupLog, "append", refuse)

    return fill


def members(broker: GroupBroker) -> list[str]:
    [group] = broker.groups.groups()
    assert isinstance(group, ModernGroup)
    return list(group.members)


def test_a_heartbeat_that_cannot_be_written_changes_nothing(
    broker: GroupBroker, new_client: NewClient, full_disk: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = new_client(), new_client()
    one.follow()
    full_disk()
    assert code_of(two.beat) == ErrorCode.coordinator_not_available
    assert members(broker) == [one.member_id]
    one.follow()  # it needs no record
    monkeypatch.undo()
    two.follow()
    assert members(broker) == [one.member_id, two.member_id]


def test_a_member_whose_removal_cannot_be_written_has_another_session(
    broker: GroupBroker, new_client: NewClient, full_disk: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    new_client().follow()
    full_disk()
    broker.timers.advance(SESSION_MS)
    assert len(members(broker)) == 1
    monkeypatch.undo()
    broker.timers.advance(SESSION_MS)
    assert members(broker) == []


def test_a_static_member_keeps_its_partitions_for_a_session(broker: GroupBroker, new_client: NewClient) -> None:
    one = new_client(instance_id="a")
    one.follow()
    assert code_of(new_client(instance_id="a").beat) == ErrorCode.unreleased_instance_id
    one.leave(LEAVE_FOR_A_WHILE)
    back = new_client(instance_id="a")
    back.follow()
    assert back.owned == one.owned
    assert members(broker) == [back.member_id]
    assert code_of(one.beat) == ErrorCode.fenced_instance_id
    broker.timers.advance(SESSION_MS)
    assert members(broker) == []


def test_commits_have_the_epoch_of_the_member(broker: GroupBroker, new_client: NewClient) -> None:
    client = new_client()
    client.follow()
    partitions = [("t", 0)]
    broker.groups.check_commit("g", client.member_id, None, client.epoch, 9, partitions)
    broker.groups.check_member("g", client.member_id, None, client.epoch, partitions)
    for epoch in (client.epoch - 1, client.epoch + 1):
        code = code_of(
            lambda epoch=epoch: broker.groups.check_commit("g", client.member_id, None, epoch, 9, partitions)
        )
        assert code == ErrorCode.stale_member_epoch
        code = code_of(lambda epoch=epoch: broker.groups.check_member("g", client.member_id, None, epoch, partitions))
        assert code == ErrorCode.illegal_generation
