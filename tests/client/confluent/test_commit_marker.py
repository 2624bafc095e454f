"""The marker of the last committed epoch of a sink partition."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import KafkaError as Code
from confluent_kafka import TopicPartition as Position

from penstock.client.api import OffsetAndMetadata
from penstock.client.confluent import commit_marker
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.commit_marker import CommitMarker
from penstock.errors import TaskCorruptedError, TaskMigratedError
from penstock.record import TopicPartition
from tests.client.confluent.places import Place


def test_an_epoch_that_is_known_to_be_committed_needs_no_marker(place: Place) -> None:
    writer = place.writer(was_committed=lambda epoch: epoch == 1)
    assert not writer.write(1, "q", place.output("a"))
    assert writer.write(2, "q", place.output("b"))
    assert place.read() == [b"b"]


def test_a_reader_that_finds_its_group_no_more_is_replaced(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[Consumer] = []

    class Lost(Consumer):
        def committed(self, *arguments: object) -> list[Position]:
            if not lost:
                lost.append(self)
            if self in lost:
                raise KafkaException(Code(Code._TIMED_OUT))
            return super().committed(*arguments)

    monkeypatch.setattr(commit_marker, "Consumer", Lost)
    monkeypatch.setattr(commit_marker, "COORDINATOR_TIMEOUT_MS", 3_000)
    assert place.writer().write(1, "q", place.output("a"))
    assert not place.writer().write(1, "q", place.output("a"))
    assert place.read() == [b"a"]


def test_an_epoch_is_not_taken_for_the_same_where_it_is_made_of_something_else(place: Place) -> None:
    assert place.writer().write(1, "q", place.output("a"), note="checkpoint one")
    assert not place.writer().write(1, "q", place.output("a"), note="checkpoint one")
    assert not place.writer().write(1, "q", place.output("a"))
    with pytest.raises(TaskCorruptedError, match="is already committed with other input"):
        place.writer().write(1, "q", place.output("b"), note="checkpoint two")
    assert place.read() == [b"a"]


def test_a_driver_that_is_behind_learns_that_it_is_a_zombie(place: Place) -> None:
    assert place.writer().write(3, "q", place.output("a"))
    with pytest.raises(TaskMigratedError, match=r"Epoch 3 of .* is already committed"):
        place.writer().write(2, "q", place.output("b"))
    assert place.read() == [b"a"]


def test_two_programs_of_one_id_with_separate_checkpoints_are_reported(place: Place) -> None:
    one, other = place.writer(), place.writer()
    assert one.write(1, "first", place.output("a"))
    assert other.write(1, "second", place.output("b"))
    with pytest.raises(TaskMigratedError, match=r"the same application\.id and another checkpoint"):
        one.write(2, "first", place.output("c"))
    assert place.read() == [b"a", b"b"]


def test_a_marker_is_found_as_it_was_committed(place: Place) -> None:
    asked: list[int] = []

    def was_committed(epoch: int) -> bool:
        asked.append(epoch)
        return True

    partition, group = TopicPartition(place.commits, 1), f"{place.topic}-group"
    with (
        closing(ConfluentAdmin(place.config)) as admin,
        closing(CommitMarker(place.config, "id", group, partition, 60_000, was_committed)) as marker,
    ):
        assert marker.has(3, "owner", "note"), "where no marker is, the caller knows"
        assert asked == [3]
        assert marker.of(5, "owner", "") == {partition: OffsetAndMetadata(5, "owner")}
        admin.commit_offsets(group, marker.of(5, "owner", "a note"))
        assert marker.read().offset == 5
        assert [marker.has(epoch, "owner", "a note") for epoch in (5, 6)] == [True, False]
        assert not marker.has(5, "other", "a note"), "a marker of an earlier version"
        marker.committed_by("other")
        with pytest.raises(TaskMigratedError, match="Another program writes as id"):
            marker.has(6, "other", "a note")
    assert asked == [3]
