"""The copy of one topic in a table of a lake, commit by commit.

The table has the offsets of the records that it contains, and changes them in the commit that adds the rows. A commit
is refused if the table has changed since the offsets were read. So any number of processes may copy one topic, after
crashes of any kind, and each record is added once. To avoid commits that are refused, one process copies at a time: a
process that sees the progress of another one waits until several rounds bring no progress.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from penstock.client.api import Admin, Fetcher
from penstock.errors import OffsetOutOfRangeError, StreamsError
from penstock.host.commits.purging import RecordPurge
from penstock.host.crashpoints import crash_point
from penstock.lake.tables import LakeConflictError, TopicIncarnation
from penstock.record import RecordBatch, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

_ROUNDS_TO_WAIT: Final = 3
"""Rounds without progress after which a process takes over the copy from another one."""

_MAX_CONFLICTS: Final = 10
"""Refused commits in a row after which a round ends."""


class LakeTarget(Protocol):
    """A table, and how records become its rows."""

    def refresh(self) -> None:
        """Read the newest version of the table."""
        ...

    def offsets(self, source: TopicIncarnation) -> Mapping[int, int]:
        """Return the next offset to copy of each partition, see `LakeTable`."""
        ...

    def rows(self, partition: TopicPartition, batch: RecordBatch) -> pa.Table:
        """Return the records of a partition as rows."""
        ...

    def commit(self, rows: list[pa.Table], source: TopicIncarnation, offsets: Mapping[int, int]) -> None:
        """Change the table by the results of `rows`, and replace the offsets, in one commit, see `LakeTable`."""
        ...


class Clients(NamedTuple):
    """The clients of a copy, for one thread, and the deletion of copied records."""

    admin: Admin
    fetcher: Fetcher
    purge: RecordPurge


class _Part(NamedTuple):
    """The rows of the next commit, and the offsets after them."""

    tables: list[pa.Table]
    offsets: dict[int, int]


class TopicCopy:
    """Copies a topic to a table.

    Args:
        topic: the topic.
        clients: the clients.
        table: the table.
        max_bytes: the bytes of keys and values in a commit; the last record of each partition may exceed its share.
    """

    def __init__(self, topic: str, clients: Clients, table: LakeTarget, max_bytes: int) -> None:
        self._topic = topic
        self._clients = clients
        self._table = table
        self._max_bytes = max_bytes
        self._seen: Mapping[int, int] | None = None
        self._waiting = 0
        self._commits = 0

    def run(self, is_last: bool) -> None:
        """Copy the records that the topic has now, or leave them to the process that copies.

        Args:
            is_last: copy them even if another process copies, because the application ends.

        Raises:
            StreamsError: records were deleted before they were copied, cannot be read, or do not fit the table.
        """
        ends: Mapping[TopicPartition, int] | None = None
        conflicts = 0
        while conflicts < _MAX_CONFLICTS:
            try:
                ends = self._copy_part(ends, is_last)
                if ends is None:
                    return
                conflicts = 0
            except (LakeConflictError, OffsetOutOfRangeError) as error:  # another process was faster
                _log.info("The copy of %s begins again: %s", self._topic, error)
                ends = None
                conflicts += 1
        refused = f"The table of {self._topic} changed {_MAX_CONFLICTS} times while records were added."
        if is_last:
            raise LakeConflictError(f"{refused} They remain in the topic, and the next start adds them.")
        _log.warning("%s They remain in the topic, and the next round adds them.", refused)

    def _copy_part(
        self, ends: Mapping[TopicPartition, int] | None, is_last: bool
    ) -> Mapping[TopicPartition, int] | None:
        """Add the next records before `ends` in one commit; return `ends`, or None if the round is over.

        The topic is asked for its first offsets before the table for its own: another process deletes only records
        that the table has.
        """
        source, partitions = self._source()
        first = self._clients.admin.beginning_offsets(partitions)
        if ends is None:
            ends = self._clients.admin.end_offsets(partitions, read_committed=True)
        self._table.refresh()
        copied = self._table.offsets(source)
        begin = {each: self._begin(each, copied, first[each]) for each in partitions}
        self._check_ends(source, begin, ends)
        left = {each: offset for each, offset in begin.items() if offset < ends.get(each, 0)}
        if not left or (self._is_left_to_another(copied) and not is_last):
            return None
        part = self._read(left, ends)
        if not part.tables:
            return None
        crash_point("lake.read", self._commits)
        self._check_incarnation(source)
        if not copied:
            self._warn_of_deleted(begin)
        offsets = {**{each.partition: offset for each, offset in begin.items()}, **part.offsets}
        self._table.commit(part.tables, source, offsets)
        self._seen = offsets
        crash_point("lake.committed", self._commits)
        self._commits += 1
        self._clients.purge.purge(self._clients.admin, {TopicPartition(self._topic, n): o for n, o in offsets.items()})
        return ends

    def _source(self) -> tuple[TopicIncarnation, list[TopicPartition]]:
        admin = self._clients.admin
        count = admin.topics().get(self._topic)
        if count is None:
            raise StreamsError(
                f"Topic {self._topic}, which is copied to a table, does not exist any more. If it was deleted by "
                "mistake, start the application again: it creates the topic."
            )
        source = TopicIncarnation(self._topic, self._topic_id(), count)
        return source, [TopicPartition(self._topic, number) for number in range(count)]

    def _topic_id(self) -> str:
        return self._clients.admin.topic_ids([self._topic]).get(self._topic, "")

    def _begin(self, partition: TopicPartition, copied: Mapping[int, int], first: int) -> int:
        """Return the first offset to copy.

        Each commit has an offset of each partition, so a partition without one is new.
        """
        offset = copied.get(partition.partition, 0 if copied else first)
        if offset < first:
            raise StreamsError(
                f"Records {offset} to {first - 1} of {partition} were deleted before they were copied to the table. "
                f"Only the application may delete records of {self._topic}: check its retention and who calls "
                "DeleteRecords. To continue without them, name another table."
            )
        return offset

    def _check_ends(
        self, source: TopicIncarnation, begin: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        """Check that no partition ends before its copy.

        `ends` are older than the copy, so another process may have copied more since.
        """
        beyond = [each for each, offset in begin.items() if offset > ends.get(each, offset)]
        now = self._clients.admin.end_offsets(beyond, read_committed=True) if beyond else {}
        for partition, end in now.items():
            if begin[partition] > end:
                self._check_incarnation(source)
                raise StreamsError(
                    f"The table has the records before offset {begin[partition]} of {partition}, which ends at {end}: "
                    "the topic has lost records, or another cluster has a topic of that name. Name another table."
                )

    def _check_incarnation(self, source: TopicIncarnation) -> None:
        """Check that the topic still exists: if so, the records that were read are its own."""
        if self._topic_id() != source.id:
            raise LakeConflictError(f"Topic {self._topic} was created again while its records were read.")

    def _warn_of_deleted(self, begin: Mapping[TopicPartition, int]) -> None:
        for partition, first in begin.items():
            if first > 0:
                _log.warning("The table has no offset of %s, whose records before %d are deleted.", partition, first)

    def _is_left_to_another(self, copied: Mapping[int, int]) -> bool:
        """Return whether another process copies the topic: it has made progress in the last rounds."""
        seen = self._seen
        if seen is not None and any(offset > seen.get(partition, 0) for partition, offset in copied.items()):
            self._waiting = _ROUNDS_TO_WAIT
        self._seen = copied
        self._waiting = max(0, self._waiting - 1)
        return self._waiting > 0

    def _read(self, begin: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> _Part:
        """Return the rows of one commit; each partition has an equal share of its bytes."""
        part, share = _Part([], {}), self._max_bytes // len(begin)
        for partition, start in begin.items():
            left, next_offset = share, ends[partition]
            for batch in self._clients.fetcher.fetch(partition, start, next_offset, read_committed=True):
                sizes = np.cumsum(
                    [len(key or b"") + len(value or b"") for key, value in zip(batch.keys, batch.values, strict=True)]
                )
                taken = int(np.searchsorted(sizes, left)) + 1
                part.tables.append(self._table.rows(partition, batch.slice(0, taken)))
                if taken <= len(batch):
                    next_offset = int(batch.offsets[taken - 1]) + 1
                    break
                left -= int(sizes[-1])
            part.offsets[partition.partition] = next_offset
        return part
