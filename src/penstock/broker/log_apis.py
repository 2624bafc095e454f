"""The APIs about records that answer immediately: Produce, ListOffsets and DeleteRecords.

Not here: Fetch, which may wait (fetch.py); batches, files and offsets (partition.py); and the bytes of requests and
responses (wire.py).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from kio.schema.errors import ErrorCode

from penstock.broker.batch import NO_TIMESTAMP
from penstock.broker.codec import Message
from penstock.broker.errors import NO_TRANSACTIONS, ApiError
from penstock.broker.partition import LEADER_EPOCH, Partition, check_leader_epoch
from penstock.broker.state import BrokerState, Request
from penstock.broker.topics import partition_of

_NO_ACKS: Final = 0


class _Time(IntEnum):
    """What ListOffsets may request instead of a time."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


def produce(state: BrokerState, request: Request) -> Message | None:
    """Answer Produce; None if the client asks for no answer (acks=0)."""
    acks: int = request.body["acks"]
    refusal = None
    if acks not in (-1, 0, 1):
        refusal = ApiError(ErrorCode.invalid_required_acks, f"acks={acks}; it must be -1 (all), 0 or 1")
    elif request.body["transactional_id"] is not None:
        refusal = ApiError(ErrorCode.transactional_id_authorization_failed, NO_TRANSACTIONS)
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
        found = state.topics.by_name(topic)
        found.check_not_internal()
        partition = partition_of(found, index)
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
        check_leader_epoch(wanted.get("current_leader_epoch", -1))
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


def delete_records(state: BrokerState, request: Request) -> Message:
    """Answer DeleteRecords."""
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [_delete_records(state, topic["name"], partition) for partition in topic["partitions"]],
            }
            for topic in request.body["topics"]
        ]
    }


def _delete_records(state: BrokerState, name: str, wanted: Message) -> Message:
    index: int = wanted["partition_index"]
    try:
        topic = state.topics.by_name(name)
        topic.check_not_internal()
        low_watermark = partition_of(topic, index).delete_records(wanted["offset"])
    except ApiError as error:
        return {"partition_index": index, "low_watermark": -1, "error_code": error.code}
    return {"partition_index": index, "low_watermark": low_watermark}
