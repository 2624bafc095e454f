"""Leader epochs of a partition (KIP-320). The batches of the log hold those of earlier leaders."""

from __future__ import annotations

from penstock_broker.batch import InvalidBatchError
from penstock_broker.errors import ApiError
from penstock_broker.log import Log
from penstock_broker.log_reader import LogReader
from penstock_broker.wire.error_codes import ErrorCode


class LeaderEpochs:
    """The leader epochs of one partition (Kafka class: LeaderEpochFileCache).

    Args:
        current: epoch of the current leader, larger than those of all records in the log.
        log: the log, as found by the current leader.
        reader: reads the log.

    Attributes:
        current: epoch of the current leader.
    """

    __slots__ = ("_log", "_reader", "_start_offset", "current")

    def __init__(self, current: int, log: Log, reader: LogReader) -> None:
        self.current = current
        self._log = log
        self._reader = reader
        self._start_offset = log.end_offset

    def check(self, epoch: int) -> None:
        """Check the leader epoch known to a client, or -1 for an unknown epoch.

        Raises:
            ApiError: UNKNOWN_LEADER_EPOCH if it is newer than the leader's; FENCED_LEADER_EPOCH if it is older.
        """
        if epoch > self.current:
            raise ApiError(ErrorCode.unknown_leader_epoch, f"the leader's epoch is {self.current}, not {epoch}")
        if 0 <= epoch < self.current:
            raise ApiError(ErrorCode.fenced_leader_epoch, f"the leader's epoch is {self.current}, not {epoch}")

    def end_of(self, epoch: int) -> tuple[int, int] | None:
        """Return the last epoch with records up to `epoch`, and the offset after these.

        Returns `epoch` itself if the log has no records of it or of earlier epochs; None if it is larger than the
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
        # Most callers have read up to the first offset of the current leader, so try the batch before it first.
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
