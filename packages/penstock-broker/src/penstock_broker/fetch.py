"""The Fetch API, which may wait for records.

Rules:
- A waiting Fetch answers when enough bytes are available, when its time is over, or when a partition has an error,
  whichever comes first. On a wake-up it reads only the partitions that have grown.
- If many consumers follow a partition, answering each of them after each append would saturate the processor. So the
  more Fetches wait for a partition, the longer each of them collects records: some milliseconds from its own start, so
  that records arriving later are answered at once.
- Incremental fetch sessions are not created: the session id of every answer is 0, which disables them in all clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from penstock_broker.answers import LaterAnswer
from penstock_broker.errors import ApiError
from penstock_broker.partition import READ_COMMITTED, Partition
from penstock_broker.state import BrokerState, Request
from penstock_broker.topics import partition_of
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

_MAX_FETCH_BYTES: Final = 8 * 1024 * 1024
# A lost client is noticed when its Fetch ends, if it has sent another request before.
_MAX_WAIT_MS: Final = 60_000

# A Fetch of ten partitions costs less than half of this, so waiting Fetches take less than half of a core.
_COLLECTING_SECONDS: Final = 0.001
"""Time that a Fetch collects records, for each Fetch that waits for the same partition."""

_MOST_COLLECTING_SECONDS: Final = 0.02
_LEAST_COLLECTING_SECONDS: Final = 0.004

_Records = tuple[bytes, list[Message] | None]
"""Batches and the aborted transactions with records in them; None for read-uncommitted readers."""

_NOTHING: Final[_Records] = (b"", None)
_NOTHING_COMMITTED: Final[_Records] = (b"", [])


class _FetchedPartition:
    """One partition of a Fetch and its part of the answer.

    The partition is read again when its log has grown.

    Args:
        partition: the partition; None if it does not exist.
        wanted: the request for it.
        error: the error code of a missing partition, otherwise NONE.
        is_committed: whether only records of ended transactions are returned.
    """

    __slots__ = ("_is_committed", "_wanted", "answer", "has_error", "is_left_out", "listener", "partition", "size")

    def __init__(self, partition: Partition | None, wanted: Message, error: ErrorCode, is_committed: bool) -> None:
        self.partition = partition
        self._wanted = wanted
        self._is_committed = is_committed
        self.has_error = error != ErrorCode.none
        """Whether the answer is an error."""
        self.is_left_out = False
        """Whether the response has no room for the next batch."""
        self.size = 0
        """Bytes of records in the answer."""
        self.listener: Callable[[], None] | None = None
        """Callback of the partition when it has grown."""
        self.answer: Message = {
            "partition_index": wanted["partition"],
            "error_code": error,
            "high_watermark": -1,
            "records": b"",
        }

    def read(self, max_bytes: int, taken: int) -> None:
        """Update the answer.

        Args:
            max_bytes: maximum bytes of records in the response, which only its first batch may exceed.
            taken: bytes already taken by records of other partitions.
        """
        partition, answer = self.partition, self.answer
        if partition is None:
            return
        try:
            partition.leader_epochs.check(self._wanted.get("current_leader_epoch", -1))
            start, stable, end = partition.offsets
            # Without room the answer has no records, and the client asks for them again.
            room = max_bytes - taken
            limit = min(self._wanted["partition_max_bytes"], room)
            is_at_end = self._wanted["fetch_offset"] == (stable if self._is_committed else end)
            if is_at_end and not partition.is_deleted:  # most partitions of a Fetch, so it must be cheap
                records, aborted = _NOTHING_COMMITTED if self._is_committed else _NOTHING
            else:
                records, aborted = self._records(partition, limit) if room > 0 else _NOTHING
                self.is_left_out = taken > 0 and (room <= 0 or len(records) > limit)
            if self.is_left_out:
                records, aborted = _NOTHING
        except ApiError as error:
            answer |= {"error_code": error.code, "high_watermark": partition.end_offset, "records": b""}
            self.has_error, self.size = True, 0
            return
        answer["log_start_offset"], answer["last_stable_offset"], answer["high_watermark"] = start, stable, end
        answer["aborted_transactions"] = aborted
        answer["records"] = records
        self.size = len(records)

    def _records(self, partition: Partition, max_bytes: int) -> _Records:
        offset: int = self._wanted["fetch_offset"]
        if not self._is_committed:
            return partition.read(offset, max_bytes), None
        records, aborted = partition.read_committed(offset, max_bytes)
        return records, [{"producer_id": one.producer_id, "first_offset": one.first_offset} for one in aborted]


class Fetch(LaterAnswer):
    """One Fetch request, from its arrival to its answer."""

    __slots__ = (
        "_began",
        "_body",
        "_done",
        "_grown",
        "_max_bytes",
        "_partitions",
        "_response",
        "_size",
        "_state",
        "_timer",
    )

    def __init__(self, state: BrokerState, request: Request) -> None:
        self._state = state
        self._body = request.body
        self._max_bytes = min(
            self._body["max_bytes"], _MAX_FETCH_BYTES, state.quotas.most_fetched_bytes(request.client_id)
        )
        self._done: Callable[[Message], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._began = 0.0
        self._partitions: list[_FetchedPartition] = []
        self._grown: list[_FetchedPartition] = []
        self._size = 0
        self._response: Message = {"responses": []}

    def start(self, done: Callable[[Message], None]) -> None:
        """Answer immediately if enough bytes are available, otherwise wait for them.

        Args:
            done: called once with the response.
        """
        self._done = done
        if self._body.get("session_id", 0) != 0:
            self._response["error_code"] = ErrorCode.fetch_session_id_not_found
            self._finish()
            return
        self._find_partitions()
        wait_ms: int = min(self._body["max_wait"], _MAX_WAIT_MS)
        if self._is_enough(self._partitions) or wait_ms <= 0:
            self._finish()
            return
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        self._timer = loop.call_later(wait_ms / 1000, self._finish)
        for one in self._partitions:
            if one.partition is not None:
                one.listener = partial(self._wake, one, one.partition)
                one.partition.add_listener(one.listener)

    def cancel(self) -> None:
        """Stop waiting; no answer is given."""
        self._done = None
        self._finish()

    def _find_partitions(self) -> None:
        # As in Kafka, a partition that is requested twice is answered once, as requested last.
        topics: dict[object, tuple[Message, dict[int, Message]]] = {}
        for topic in self._body["topics"]:
            _, wanted = topics.setdefault(topic.get("topic_id", topic.get("topic")), (topic, {}))
            wanted.update((partition["partition"], partition) for partition in topic["partitions"])
        for topic, wanted in topics.values():
            found = self._find(topic, wanted.values())
            self._partitions += found
            self._response["responses"].append(topic | {"partitions": [one.answer for one in found]})

    def _find(self, topic: Message, partitions: Iterable[Message]) -> list[_FetchedPartition]:
        topics, is_committed = self._state.topics, self._body.get("isolation_level", 0) == READ_COMMITTED
        try:
            found = topics.by_id(topic["topic_id"]) if "topic_id" in topic else topics.by_name(topic["topic"])
        except ApiError as error:
            return [_FetchedPartition(None, wanted, error.code, is_committed) for wanted in partitions]
        fetched = []
        for wanted in partitions:
            try:
                partition = partition_of(found, wanted["partition"])
                fetched.append(_FetchedPartition(partition, wanted, ErrorCode.none, is_committed))
            except ApiError as error:
                fetched.append(_FetchedPartition(None, wanted, error.code, is_committed))
        return fetched

    def _is_enough(self, partitions: Sequence[_FetchedPartition]) -> bool:
        """Read new records, and return whether the response need not wait."""
        need_not_wait = not partitions
        for one in partitions:
            self._size -= one.size
            one.read(self._max_bytes, self._size)
            self._size += one.size
            need_not_wait |= one.has_error or one.is_left_out
        return need_not_wait or self._size >= min(self._body["min_bytes"], self._state.config.max_waiting_fetch_bytes)

    def _wake(self, grown: _FetchedPartition, partition: Partition) -> None:
        if not self._grown:
            loop = asyncio.get_running_loop()
            collecting = min(_COLLECTING_SECONDS * partition.listeners, _MOST_COLLECTING_SECONDS)
            collecting += self._began - loop.time()
            if collecting < _LEAST_COLLECTING_SECONDS:
                loop.call_soon(self._look_again)  # covers everything that has grown in this turn of the event loop
            else:
                loop.call_later(collecting, self._look_again)
        if grown not in self._grown:
            self._grown.append(grown)

    def _look_again(self) -> None:
        grown, self._grown = self._grown, []
        if self._done is not None and self._is_enough(grown):
            self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            for one in self._partitions:
                if one.partition is not None and one.listener is not None:
                    one.partition.remove_listener(one.listener)
        done, self._done = self._done, None
        if done is not None:
            done(self._response)
