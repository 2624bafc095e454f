"""The APIs about records: Produce, Fetch and ListOffsets.

Here live the handlers, and the Fetch that waits for records. Not here: batches, files and offsets (partition.py), and
the bytes of requests and responses (wire.py).

Rules: a waiting Fetch answers when enough bytes are there, when its time is over, or when a partition has an error,
whichever comes first. When it is woken it reads only the partitions that have grown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from kio.schema.errors import ErrorCode

from penstock.broker.batch import NO_TIMESTAMP
from penstock.broker.codec import Message
from penstock.broker.errors import ApiError
from penstock.broker.partition import LEADER_EPOCH, Partition
from penstock.broker.state import BrokerState, Request
from penstock.broker.topics import partition_of

_MAX_FETCH_BYTES: Final = 64 * 1024 * 1024
_NO_ACKS: Final = 0


class _Time(IntEnum):
    """What ListOffsets may ask for in the place of a time."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


def produce(state: BrokerState, request: Request) -> Message | None:
    """Answer Produce; None where the client asks for no answer (acks=0)."""
    acks: int = request.body["acks"]
    refusal = None
    if acks not in (-1, 0, 1):
        refusal = ApiError(ErrorCode.invalid_required_acks, f"acks={acks}; it must be -1 (all), 0 or 1")
    elif request.body["transactional_id"] is not None:
        refusal = ApiError(
            ErrorCode.transactional_id_authorization_failed, "this broker does not serve transactions yet"
        )
    responses = [
        {
            "name": topic["name"],
            "partition_responses": [
                _produce_partition(state, topic["name"], partition, refusal) for partition in topic["partition_data"]
            ],
        }
        for topic in request.body["topic_data"]
    ]
    return None if acks == _NO_ACKS else {"responses": responses}


def _produce_partition(state: BrokerState, topic: str, wanted: Message, refusal: ApiError | None) -> Message:
    index: int = wanted["index"]
    try:
        if refusal is not None:
            raise refusal
        partition = state.topics.partition(topic, index)
        records: memoryview | None = wanted["records"]
        if not records:
            raise ApiError(ErrorCode.invalid_record, "the request has no record batch for the partition")
        base_offset = partition.append(records)
        return {"index": index, "base_offset": base_offset, "log_start_offset": partition.start_offset}
    except ApiError as error:
        return {"index": index, "error_code": error.code, "base_offset": -1, "error_message": error.message}


def list_offsets(state: BrokerState, request: Request) -> Message:
    """Answer ListOffsets: the start, the end, or the first record not older than a time."""
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [_list_offset(state, topic["name"], partition) for partition in topic["partitions"]],
            }
            for topic in request.body["topics"]
        ]
    }


def _list_offset(state: BrokerState, topic: str, wanted: Message) -> Message:
    index: int = wanted["partition_index"]
    try:
        _check_leader_epoch(wanted)
        found = _find_offset(state.topics.partition(topic, index), wanted["timestamp"])
    except ApiError as error:
        return {"partition_index": index, "error_code": error.code}
    answer: Message = {"partition_index": index}
    if found is not None:
        answer |= {"offset": found[0], "timestamp": found[1], "leader_epoch": LEADER_EPOCH}
    return answer


def _find_offset(partition: Partition, timestamp: int) -> tuple[int, int] | None:
    match timestamp:
        case _Time.LATEST:
            return partition.end_offset, NO_TIMESTAMP
        case _Time.EARLIEST | _Time.EARLIEST_LOCAL:
            return partition.start_offset, NO_TIMESTAMP
        case _Time.MAX_TIMESTAMP:
            return partition.offset_of_max_timestamp()
        case _Time.LATEST_TIERED:
            return None
        case _:
            return partition.offset_for_time(timestamp)


def _check_leader_epoch(wanted: Message) -> None:
    epoch: int = wanted.get("current_leader_epoch", -1)
    if epoch > LEADER_EPOCH:
        raise ApiError(ErrorCode.unknown_leader_epoch, f"the leader's epoch is {LEADER_EPOCH}, not {epoch}")


class _FetchedPartition:
    """One partition of a Fetch and its part of the answer, which is read again when the log has grown."""

    __slots__ = ("_partition", "_wanted", "answer")

    def __init__(self, partition: Partition | None, wanted: Message, error: ErrorCode) -> None:
        self._partition = partition
        self._wanted = wanted
        self.answer: Message = {
            "partition_index": wanted["partition"],
            "error_code": error,
            "high_watermark": -1,
            "records": b"",
        }

    @property
    def partition(self) -> Partition | None:
        """The partition; None where there is none of that name or number."""
        return self._partition

    @property
    def has_error(self) -> bool:
        """Whether the answer is an error."""
        return self.answer["error_code"] != ErrorCode.none

    @property
    def size(self) -> int:
        """Bytes of records in the answer."""
        return len(self.answer["records"])

    def read(self, max_bytes: int) -> None:
        """Bring the answer up to date.

        Args:
            max_bytes: the most bytes of records that the response has room for.
        """
        partition, answer = self._partition, self.answer
        if partition is None or (partition.end_offset == answer["high_watermark"] and not partition.is_deleted):
            return
        try:
            _check_leader_epoch(self._wanted)
            # Where no room is left the answer has no records, and the client asks for them again.
            limit = min(self._wanted["partition_max_bytes"], max_bytes)
            records = partition.read(self._wanted["fetch_offset"], limit) if max_bytes > 0 else b""
        except ApiError as error:
            answer |= {"error_code": error.code, "high_watermark": partition.end_offset, "records": b""}
            return
        answer |= {
            "high_watermark": partition.end_offset,
            "last_stable_offset": partition.end_offset,
            "log_start_offset": partition.start_offset,
            "aborted_transactions": None,
            "records": records,
        }


class Fetch:
    """One Fetch request, from its arrival to its answer.

    Args:
        state: the broker.
        request: the request.
    """

    __slots__ = ("_body", "_done", "_partitions", "_response", "_state", "_timer", "_wake_is_due")

    def __init__(self, state: BrokerState, request: Request) -> None:
        self._state = state
        self._body = request.body
        self._done: Callable[[Message], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wake_is_due = False
        self._partitions: list[_FetchedPartition] = []
        self._response: Message = {"responses": []}

    def start(self, done: Callable[[Message], None]) -> None:
        """Answer at once where there is enough, or else wait for it.

        Args:
            done: called once with the response.
        """
        self._done = done
        if self._body.get("session_id", 0) != 0:
            self._response["error_code"] = ErrorCode.fetch_session_id_not_found
            self._finish()
            return
        self._find_partitions()
        if self._is_enough() or self._body["max_wait"] <= 0:
            self._finish()
            return
        self._timer = asyncio.get_running_loop().call_later(self._body["max_wait"] / 1000, self._finish)
        for one in self._partitions:
            if one.partition is not None:
                one.partition.add_listener(self._wake)

    def cancel(self) -> None:
        """Stop waiting; no answer is given."""
        self._done = None
        self._finish()

    def _find_partitions(self) -> None:
        for topic in self._body["topics"]:
            found = [self._find(topic, wanted) for wanted in topic["partitions"]]
            self._partitions += found
            self._response["responses"].append(topic | {"partitions": [one.answer for one in found]})

    def _find(self, topic: Message, wanted: Message) -> _FetchedPartition:
        try:
            if "topic_id" in topic:
                partition = partition_of(self._state.topics.by_id(topic["topic_id"]), wanted["partition"])
            else:
                partition = self._state.topics.partition(topic["topic"], wanted["partition"])
        except ApiError as error:
            return _FetchedPartition(None, wanted, error.code)
        return _FetchedPartition(partition, wanted, ErrorCode.none)

    def _is_enough(self) -> bool:
        """Read what has come, and return whether the response need not wait."""
        min_bytes: int = self._body["min_bytes"]
        left = min(self._body["max_bytes"], _MAX_FETCH_BYTES)
        has_error = not self._partitions
        for one in self._partitions:
            one.read(left)
            left -= one.size
            has_error = has_error or one.has_error
        return has_error or sum(one.size for one in self._partitions) >= min_bytes

    def _wake(self) -> None:
        # Once for all appends of this turn of the event loop.
        if not self._wake_is_due:
            self._wake_is_due = True
            asyncio.get_running_loop().call_soon(self._look_again)

    def _look_again(self) -> None:
        self._wake_is_due = False
        if self._done is not None and self._is_enough():
            self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            for one in self._partitions:
                if one.partition is not None:
                    one.partition.remove_listener(self._wake)
        done, self._done = self._done, None
        if done is not None:
            done(self._response)
