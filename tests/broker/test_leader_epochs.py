"""The epochs of leaders: where the records of each end, and which of them clients may have."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_broker.common.clock import MockClock
from penstock_broker.errors import ApiError
from penstock_broker.partition import Partition
from penstock_broker.topic_config import log_config
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.test_partition import CONFIG, batch, forget_clean_stop


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), min_size=1, max_size=6),
    st.sampled_from([1 << 10, 1 << 20]),
)
def test_the_end_of_an_epoch_is_where_the_records_of_a_later_one_begin(
    starts: list[tuple[int, int]], segment_bytes: int
) -> None:
    """starts: of each start, how many batches it appends, and by how much its epoch is larger."""
    config = log_config({"segment.bytes": str(segment_bytes)})
    offsets: list[tuple[int, int]] = []
    epoch = -1
    with tempfile.TemporaryDirectory() as name:
        for batches, more in starts:
            epoch += more
            partition = Partition(Path(name), "topic", 0, config, MockClock(), epoch)
            first = partition.end_offset
            for _ in range(batches):
                partition.append(batch(2, size=200))
            for asked in range(epoch):
                earlier = [(of, end) for of, end in offsets if of <= asked]
                expected = earlier[-1][0] if earlier else asked
                begin = min((one for of, one in starts_of(offsets) if of > asked), default=first)
                assert partition.leader_epochs.end_of(asked) == (expected, begin)
            assert partition.leader_epochs.end_of(epoch) == (epoch, partition.end_offset)
            assert partition.leader_epochs.end_of(epoch + 1) is None
            if batches:
                offsets.append((epoch, partition.end_offset))
            partition.close()


def starts_of(ends: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return where the records of each epoch begin, from the epochs and where they end."""
    return [(epoch, before) for (epoch, _), (_, before) in zip(ends, [(-1, 0), *ends], strict=False)]


def test_a_log_that_lost_records_and_grew_again_shows_it_by_the_end_of_the_epoch(tmp_path: Path) -> None:
    partition = Partition(tmp_path, "topic", 0, CONFIG, MockClock(), 4)
    partition.append(batch(5))
    size = partition.log.segments.size
    partition.append(batch(5))
    partition.close()
    forget_clean_stop(tmp_path)
    path = next(tmp_path.glob("*.log"))
    os.truncate(path, size)
    partition = Partition(tmp_path, "topic", 0, CONFIG, MockClock(), 5)
    partition.append(batch(9))
    assert (partition.leader_epochs.end_of(4), partition.end_offset) == ((4, 5), 14)
    for known, error in [(4, ErrorCode.fenced_leader_epoch), (6, ErrorCode.unknown_leader_epoch)]:
        with pytest.raises(ApiError) as caught:
            partition.leader_epochs.check(known)
        assert caught.value.code == error
    partition.leader_epochs.check(5)
    partition.leader_epochs.check(-1)
    partition.close()
