"""The APIs about records: Produce, Fetch and ListOffsets.

Here live the handlers, and the Fetch that waits for records. Not here: batches, files and offsets (partition.py), and
the bytes of requests and responses (wire.py).

Rules: a waiting Fetch answers when enough bytes are there, when its time is over, or when a partition has an error,
whichever comes first. It holds no memory but its request.
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


class Fetch:
    """One Fetch request, from its arrival to its answer.

    Args:
        state: the broker.
        request: the request.
    """

    __slots__ = ("_body", "_done", "_state", "_timer", "_version", "_wake_is_due", "_watched")

    def __init__(self, state: BrokerState, request: Request) -> None:
        self._state = state
        self._body = request.body
        self._version = request.version
        self._done: Callable[[Message], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wake_is_due = False
        self._watched: list[Partition] = []

    def start(self, done: Callable[[Message], None]) -> None:
        """Answer at once where there is enough, or else wait for it.

        Args:
            done: called once with the response.
        """
        self._done = done
        body = self._body
        if body.get("session_id", 0) != 0:
            self._finish({"error_code": ErrorCode.fetch_session_id_not_found, "responses": []})
            return
        response, is_enough = self._read()
        if is_enough or body["max_wait"] <= 0:
            self._finish(response)
            return
        self._timer = asyncio.get_running_loop().call_later(body["max_wait"] / 1000, self._time_is_over)
        for partition in self._watched:
            partition.add_listener(self._wake)

    def cancel(self) -> None:
        """Stop waiting; no answer is given."""
        self._done = None
        self._stop_waiting()

    def _wake(self) -> None:
        # Once for all appends of this turn of the event loop.
        if not self._wake_is_due:
            self._wake_is_due = True
            asyncio.get_running_loop().call_soon(self._read_again)

    def _read_again(self) -> None:
        self._wake_is_due = False
        if self._done is not None:
            response, is_enough = self._read()
            if is_enough:
                self._finish(response)

    def _time_is_over(self) -> None:
        self._finish(self._read()[0])

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for partition in self._watched:
            partition.remove_listener(self._wake)

    def _finish(self, response: Message) -> None:
        done, self._done = self._done, None
        self._stop_waiting()
        if done is not None:
            done(response)

    def _read(self) -> tuple[Message, bool]:
        """Return the response as of now, and whether it need not wait."""
        is_first = not self._watched
        left = min(self._body["max_bytes"], _MAX_FETCH_BYTES)
        found, has_error = 0, False
        responses = []
        for topic in self._body["topics"]:
            answers = []
            for wanted in topic["partitions"]:
                try:
                    partition = self._partition(topic, wanted["partition"])
                    if is_first:
                        self._watched.append(partition)
                    answer = _read_partition(partition, wanted, left)
                    left -= len(answer["records"])
                    found += len(answer["records"])
                except ApiError as error:
                    has_error = True
                    answer = {"error_code": error.code, "high_watermark": -1, "records": b""}
                answer["partition_index"] = wanted["partition"]
                answers.append(answer)
            responses.append(topic | {"partitions": answers})
        return {"responses": responses}, has_error or not self._watched or found >= self._body["min_bytes"]

    def _partition(self, topic: Message, index: int) -> Partition:
        if "topic_id" in topic:
            return partition_of(self._state.topics.by_id(topic["topic_id"]), index)
        return self._state.topics.partition(topic["topic"], index)


def _read_partition(partition: Partition, wanted: Message, left: int) -> Message:
    _check_leader_epoch(wanted)
    # A partition for which no room is left is answered without records; the client asks for it again.
    records = partition.read(wanted["fetch_offset"], min(wanted["partition_max_bytes"], left)) if left > 0 else b""
    return {
        "high_watermark": partition.end_offset,
        "last_stable_offset": partition.end_offset,
        "log_start_offset": partition.start_offset,
        "aborted_transactions": None,
        "records": records,
    }
