"""A member of a streams group: the metadata of its heartbeats."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock_broker.groups.streams.heartbeat import read_request
from penstock_broker.groups.streams.member import StreamsGroupMember
from penstock_broker.groups.streams.task_offsets import MemberTaskOffsets
from tests.broker.groups.streams.test_heartbeat import JOINING, LATER

MEMBER = StreamsGroupMember("m", None, "rack", "client", "/h", 1_000, 0, "p", ("h", 1), (("k", "v"),))


def test_a_new_member_has_the_metadata_of_its_first_heartbeat() -> None:
    member = StreamsGroupMember("m").updated(read_request(JOINING, "client", "/h"), {"0"})
    assert (member.topology_epoch, member.process_id, member.endpoint) == (0, "p", ("h", 1))
    assert (member.client_tags, member.rebalance_timeout_ms) == ((("a", "2"), ("z", "1")), 1_000)


def test_a_heartbeat_changes_only_the_fields_that_it_has() -> None:
    assert MEMBER.updated(read_request(LATER, "client", "/h"), {"0"}) == MEMBER
    moved = read_request(LATER | {"user_endpoint": {"host": "i", "port": 2}}, "other", "/h")
    assert MEMBER.updated(moved, {"0"}) == replace(MEMBER, client_id="other", endpoint=("i", 2))


def test_a_member_that_joins_again_may_have_lost_its_endpoint() -> None:
    assert MEMBER.endpoint_message == {"host": "h", "port": 1}
    joined = MEMBER.updated(read_request(JOINING | {"user_endpoint": None}, "client", "/h"), {"0"})
    assert (joined.endpoint, joined.endpoint_message) == (None, None)


def test_a_member_keeps_its_offsets_until_the_next_report() -> None:
    joined = StreamsGroupMember("m").updated(read_request(JOINING, "client", "/h"), {"0"})
    assert joined.offsets == MemberTaskOffsets({("0", 1): 7})
    known = replace(joined, epoch=3)
    assert known.updated(read_request(LATER, "client", "/h"), {"0"}).offsets == joined.offsets
    again = JOINING | {"task_offsets": None, "task_end_offsets": None}
    assert known.updated(read_request(again, "client", "/h"), {"0"}).offsets == joined.offsets


def test_a_client_in_the_place_of_a_static_member_has_only_its_own_offsets() -> None:
    released = replace(MEMBER, epoch=0, offsets=MemberTaskOffsets({("0", 2): 9}))
    silent = JOINING | {"task_offsets": None, "task_end_offsets": None}
    assert released.updated(read_request(silent, "client", "/h"), {"0"}).offsets == MemberTaskOffsets()


def test_members_with_other_offsets_are_equal() -> None:
    # Otherwise each report would be a record, and begin an epoch.
    assert replace(MEMBER, offsets=MemberTaskOffsets({("0", 2): 9})) == MEMBER


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({}, True),
        ({"client_id": "other", "client_host": "/i", "endpoint": None}, True),
        ({"process_id": "q"}, False),
        ({"rack_id": None}, False),
        ({"client_tags": ()}, False),
        ({"topology_epoch": 1}, False),
    ],
)
def test_assignments_depend_on_the_process(changes: dict[str, object], is_same: bool) -> None:
    assert replace(MEMBER, **changes).has_process_of(MEMBER) is is_same  # type: ignore[arg-type]  # any field
