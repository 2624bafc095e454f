"""The epochs of a partition's leaders (KIP-320). Those of earlier leaders are in the batches of the log."""

from __future__ import annotations

from penstock_broker.batch import InvalidBatchError
from penstock_broker.errors import ApiError
from penstock_broker.log import Log
from penstock_broker.log_reader import LogReader
from penstock_broker.wire.error_codes import ErrorCode


class LeaderEpochs:
    """The epochs of the leaders of one partition (Kafka class: LeaderEpochFileCache).

    Args:
        current: that of the present leader, larger than those of all records in the log.
        log: the log, as the present leader finds it.
        reader: reads the log.

    Attributes:
        current: as given.
    """

    __slots__ = ("_log", "_reader", "_start_offset", "current")

    def __init__(self, current: int, log: Log, reader: LogReader) -> None:
        self.current = current
        self._log = log
        self._reader = reader
        self._start_offset = log.end_offset

    def check(self, epoch: int) -> None:
        """Check the leader's epoch that a client knows; -1 stands for an unknown one.

        Raises:
            ApiError: UNKNOWN_LEADER_EPOCH where it is newer than the leader's; FENCED_LEADER_EPOCH where it is older.
        """
        if epoch > self.current:
            raise ApiError(ErrorCode.unknown_leader_epoch, f"the leader's epoch is {self.current}, not {epoch}")
        if 0 <= epoch < self.current:
            raise ApiError(ErrorCode.fenced_leader_epoch, f"the leader's epoch is {self.current}, not {epoch}")

    def end_of(self, epoch: int) -> tuple[int, int] | None:
        """Return the last epoch up to `epoch` that has records, and the offset after these.

        The epoch itself is returned if the log has no records of it and of earlier ones; None if it is larger than the
        leader's.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR if reading fails.
        """
        if epoch >= self.current:
            return (epoch, self._log.end_offset) if epoch == self.current else None
        try:
            return self._end_of_earlier(epoch)
        except (OSError, InvalidBatchError) as error:
            text = f"cannot read the log of {self._log.name}: {error}"
            raise ApiError(ErrorCode.kafka_storage_error, text) from error

    def _end_of_earlier(self, epoch: int) -> tuple[int, int]:
        # Most of those that ask have read up to the first offset of the present leader, so its last batch comes first.
        newest = next((header for header, _ in self._reader.batches(self._start_offset - 1)), None)
        if newest is None or newest.leader_epoch <= epoch:
            return (epoch if newest is None else newest.leader_epoch), self._start_offset
        begins = [segment for segment, header in self._reader.first_headers() if header.leader_epoch <= epoch]
        if not begins:
            return epoch, self._log.segments.all[0].base_offset
        found = epoch
        for header, _ in self._reader.batches(begins[-1].base_offset):
            if header.leader_epoch > epoch:
                return found, header.base_offset
            found = header.leader_epoch
        return found, self._start_offset
