"""The task offsets of a member: reports, and what remains of them."""

from __future__ import annotations

import pytest

from penstock_broker.errors import ApiError
from penstock_broker.groups.streams.task_offsets import (
    MemberTaskOffsets,
    TaskOffsetReport,
    offsets_as_messages,
    read_report,
)
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode


def entry(number: int, offset: int, of: str = "0") -> Message:
    return {"subtopology_id": of, "partition": number, "offset": offset}


def report(offsets: list[Message] | None = None, ends: list[Message] | None = None) -> TaskOffsetReport:
    return read_report({"task_offsets": offsets, "task_end_offsets": ends})


def test_a_report_replaces_only_the_offsets_that_it_has() -> None:
    first = MemberTaskOffsets().updated(report([entry(0, 5), entry(1, 6)], []), {"0"})
    assert first == MemberTaskOffsets({("0", 0): 5, ("0", 1): 6}, {})
    assert first.updated(report(), {"0"}) == first
    assert first.updated(report(ends=[entry(0, 9)]), {"0"}) == MemberTaskOffsets(first.offsets, {("0", 0): 9})
    assert first.updated(report([]), {"0"}) == MemberTaskOffsets()


def test_a_report_without_offsets_changes_nothing() -> None:
    assert not report().has_changes
    assert report([]).has_changes
    assert report(ends=[]).has_changes


def test_tasks_of_other_topologies_are_left_out() -> None:
    kept = MemberTaskOffsets().updated(report([entry(0, 5), entry(0, 5, of="x")], [entry(1, 7, of="x")]), {"0"})
    assert kept == MemberTaskOffsets({("0", 0): 5}, {})
    assert 0 < kept.memory_bytes < MemberTaskOffsets({("0", 0): 5}, {("0", 0): 9}).memory_bytes


@pytest.mark.parametrize("key", ["offsets", "ends"])
def test_a_task_that_is_listed_twice_is_refused(key: str) -> None:
    with pytest.raises(ApiError, match="duplicate entry for subtopology 0 and partition 3") as refused:
        report(**{key: [entry(3, 5), entry(3, 6)]})
    assert refused.value.code == ErrorCode.invalid_request


def test_offsets_are_sorted_in_messages() -> None:
    listed = [entry(0, 1), entry(1, 2), entry(0, 3, of="1")]
    offsets = report(listed[::-1]).offsets
    assert offsets is not None
    assert offsets_as_messages(offsets) == listed
