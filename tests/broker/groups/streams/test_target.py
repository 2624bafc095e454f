"""The target assignment of a streams group: its epochs, and its tasks."""

from __future__ import annotations

from dataclasses import replace

from penstock_broker.groups.streams.target import NOT_READY, StreamsTargetAssignment
from penstock_broker.groups.streams.topology import ConfiguredTopology, StreamsTopology
from tests.broker.groups.streams.test_group import READS_T, tasks
from tests.broker.groups.streams.test_member import MEMBER


def test_a_new_group_begins_with_epoch_one() -> None:
    target = StreamsTargetAssignment()
    assert (target.epoch, target.assignment_epoch, target.topology_epoch) == (1, 1, NOT_READY)
    following = target.next_epoch(77, 0)
    assert (following.epoch, following.metadata_hash, following.topology_epoch) == (2, 77, 0)
    assert following.is_outdated


def test_members_keep_their_tasks() -> None:
    topology = ConfiguredTopology(StreamsTopology(READS_T), 77, task_counts={"0": 3})
    members = [replace(MEMBER, assigned=tasks(0, 1, 2)), replace(MEMBER, member_id="n", process_id="q")]
    target = StreamsTargetAssignment().next_epoch(77, 0).assigned(members, topology)
    assert not target.is_outdated
    assert target.assignments == {"m": tasks(0, 1), "n": tasks(2)}
