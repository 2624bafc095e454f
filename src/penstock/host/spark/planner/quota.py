"""Decides how far an epoch reads, within a quota of bytes.

A pure function of positions, ends, sizes of records and the quota, without a clock and without I/O.

Rules: an epoch never reads past the given ends, and never back; it stays within the quota of bytes by estimate, plus
one record for each partition; every partition that lags advances in every epoch; and partitions share the quota by
their lag, so topics that feed one task advance together. Partitions that tasks wait for come first, and the others
share the rest, so waiting records do not grow. The quota grows or shrinks towards the target time of an epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from penstock.record import TopicPartition

UNKNOWN_RECORD_BYTES = 64 * 1024
"""Estimated record size (bytes) of a topic without any records read.

It is large, so that the first epoch is small.
"""

_MIN_QUOTA = 64 * 1024
_FIRST_QUOTA = 16 * 1024 * 1024
_STEP = 2.0

FAN_OUT = 4
"""Tasks may send at most this many times the largest input of an epoch."""


@dataclass(frozen=True)
class QuotaLimits:
    """The limits of an epoch.

    Args:
        max_bytes: its bytes (`penstock.batch.max.bytes`).
        target_ms: its target time in ms (`penstock.batch.target.ms`).
    """

    max_bytes: int
    target_ms: int


def first_quota(limits: QuotaLimits) -> int:
    """Return the bytes of the first epoch after a start."""
    return min(limits.max_bytes, _FIRST_QUOTA)


def next_quota(quota: int, read_bytes: int, duration_ms: int, limits: QuotaLimits, sent_bytes: int = 0) -> int:
    """Return the quota (bytes) of the next epoch.

    The last one read `read_bytes` in `duration_ms`, and its tasks sent on `sent_bytes`.

    An epoch in time that used less than half of its quota changes nothing; otherwise the quota at most doubles or
    halves per step. If tasks sent more than `max_bytes`, the next epoch reads at most as much as makes FAN_OUT times
    that.
    """
    if sent_bytes > limits.max_bytes:
        bearable = read_bytes * FAN_OUT * limits.max_bytes / sent_bytes
        least = min(_MIN_QUOTA, limits.max_bytes)
        return int(max(min(_in_time(quota, read_bytes, duration_ms, limits), bearable), least))
    return _in_time(quota, read_bytes, duration_ms, limits)


def _in_time(quota: int, read_bytes: int, duration_ms: int, limits: QuotaLimits) -> int:
    if read_bytes < quota / 2 and duration_ms <= limits.target_ms:
        return quota
    wanted = read_bytes * limits.target_ms / max(duration_ms, 1)
    bounded = min(max(wanted, quota / _STEP), quota * _STEP)
    return int(min(max(bounded, _MIN_QUOTA), limits.max_bytes))


def remaining_quota(quota: int, sent_bytes: int, held_bytes: int) -> int:
    """Return the bytes that an epoch may read in addition to the carried records.

    Args:
        quota: bytes of the epoch.
        sent_bytes: of carried records that tasks sent, so that loops that multiply records slow new input down, but
            never stop it.
        held_bytes: of waiting records; they leave at least half of the quota to the records that they wait for.
    """
    left = max(quota - sent_bytes, min(quota, _MIN_QUOTA))
    return max(left - held_bytes, left // 2, 1)


def wanted_bytes(
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    record_bytes: Mapping[str, float],
    unread: Set[TopicPartition] = frozenset(),
) -> float:
    """Return the estimated bytes from `positions` to `ends`; see `positions_within`."""
    return sum(
        max(ends.get(tp, position) - position, 0) * record_bytes.get(tp.topic, UNKNOWN_RECORD_BYTES)
        for tp, position in positions.items()
        if tp not in unread
    )


def positions_within(
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    record_bytes: Mapping[str, float],
    quota: int,
    unread: Set[TopicPartition] = frozenset(),
    first: Sequence[Set[TopicPartition]] = (),
) -> dict[TopicPartition, int]:
    """Return the position of each partition after the epoch.

    Args:
        positions: offset of the next record to read of each partition.
        ends: offset after the last readable record; partitions without an end are not read.
        record_bytes: average record size (bytes) by topic; UNKNOWN_RECORD_BYTES for other topics.
        quota: bytes that the epoch may read.
        unread: partitions that are not read.
        first: partitions that precede all others, those of each set before the next.
    """
    planned = dict(positions)
    open_to = positions.keys() - unread
    left: float = quota
    for chosen in (*first, open_to):
        group = {tp: positions[tp] for tp in chosen & open_to}
        open_to = open_to - chosen
        wanted = wanted_bytes(group, ends, record_bytes)
        share = min(max(left, 0.0) / wanted, 1.0) if wanted else 0.0
        for tp, position in group.items():
            lag = max(ends.get(tp, position) - position, 0)
            # At least one record, whatever the quota, because a task may wait for this partition.
            planned[tp] += min(lag, max(1, int(lag * share)))
        left -= wanted
    return planned
