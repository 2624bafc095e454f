"""The generation of a classic group: its record, its answers, and its states."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ApiError
from penstock_broker.groups.classic.generation import ClassicGeneration
from penstock_broker.groups.classic.member import ClassicGroupMember
from penstock_broker.groups.classic.members import ClassicMembers
from penstock_broker.groups.classic.state import NEXT_STATES, ClassicGroupState
from penstock_broker.groups.context import GroupContext
from penstock_broker.groups.group_log import GroupLog
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.groups.classic.support import SESSION_MS, Client, classic_member, stable_group, state_of
from tests.broker.groups.support import GroupBroker


def test_members_go_on_after_a_kill_of_the_broker(broker: GroupBroker) -> None:
    first, static = Client(broker, "a"), Client(broker, "b", "two")
    stable_group(broker, first, static)
    before = broker.groups.describe("g")
    broker.restart()
    assert broker.groups.describe("g") == before
    assert [member.beat() for member in (first, static)] == [ErrorCode.none] * 2
    assert static.sync() == static.member_id.encode()
    broker.commit("other", "t", 0, 1)
    broker.timers.advance(SESSION_MS - 1)
    assert state_of(broker) == "Stable"
    broker.timers.advance(1)
    assert state_of(broker) == "Empty"
    broker.restart()
    assert state_of(broker) == "Empty"
    first.member_id = ""
    first.join()
    assert first.generation == 4  # generations go on, whatever happened


@pytest.fixture
def context(broker: GroupBroker, tmp_path: Path) -> GroupContext:
    log = GroupLog(broker.topics, broker.clock)
    return GroupContext(BrokerConfig(data_dir=tmp_path), broker.topics, log, broker.timers, broker.clock)


def generation_of(context: GroupContext, *members: ClassicGroupMember) -> ClassicGeneration:
    entered = ClassicMembers("g", context.timers, lambda member_id: None)
    for member in members:
        entered.put(member)
    return ClassicGeneration("g", context, entered)


def test_a_generation_moves_only_to_a_next_state(context: GroupContext, broker: GroupBroker) -> None:
    for state, followers in NEXT_STATES.items():
        for follower in ClassicGroupState:
            generation = generation_of(context)
            generation.state = state
            if follower in followers:
                broker.clock.advance(1)
                generation.move_to(follower)
                assert (generation.state, generation.changed_ms) == (follower, broker.clock.milliseconds())
            else:
                with pytest.raises(AssertionError, match=f"a group that is {state} cannot become {follower}"):
                    generation.move_to(follower)


def test_only_the_leader_gets_the_subscriptions_of_the_protocol(context: GroupContext) -> None:
    leader = classic_member("a", protocols={"range": b"1", "x": b"2"})
    static = classic_member("b", instance_id="one", protocols={"x": b"3"}, assignment=b"part")
    generation = generation_of(context, leader, static)
    generation.number, generation.protocol_type, generation.protocol = 4, "consumer", "x"
    answers = [generation.joined(member) for member in (leader, static)]
    assert [(answer["generation_id"], answer["leader"], answer["protocol_name"]) for answer in answers] == [
        (4, "a", "x")
    ] * 2
    subscriptions = [[(one["member_id"], one["metadata"]) for one in answer["members"]] for answer in answers]
    assert subscriptions == [[("a", b"2"), ("b", b"3")], []]
    assert generation.assigned(static)["assignment"] == b"part"


def test_a_generation_is_loaded_as_it_was_saved(context: GroupContext, broker: GroupBroker) -> None:
    members = [classic_member("a"), classic_member("b", instance_id="one")]
    generation = generation_of(context, *members)
    generation.number, generation.protocol_type, generation.protocol = 4, "consumer", "range"
    generation.move_to(ClassicGroupState.PREPARING)
    generation.save({"a": b"1", "b": b"2"})
    [stored] = context.log.read().records
    loaded = generation_of(context)
    loaded.load(stored.record.value or {})
    assert (loaded.number, loaded.protocol_type, loaded.protocol) == (4, "consumer", "range")
    assert (loaded.state, loaded.changed_ms) == (ClassicGroupState.STABLE, broker.clock.milliseconds())
    assert loaded.joined(members[0])["members"] == generation.joined(members[0])["members"]
    assert len(broker.timers) == 3  # both sessions, and the expiry of offsets
    loaded.try_save("nothing")
    [again] = context.log.read().records
    assert again.record == stored.record


def test_a_generation_that_cannot_be_saved_is_reported_and_stays(
    context: GroupContext, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    generation = generation_of(context, classic_member("a"))
    monkeypatch.setattr("os.pwrite", fail)
    generation.try_save("it is empty now")
    assert "group g: it is empty now, which is not kept: " in caplog.text
    with pytest.raises(ApiError) as refused:
        generation.save({"a": b""})
    assert refused.value.code == ErrorCode.coordinator_not_available
