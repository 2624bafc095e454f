"""The record APIs that answer immediately: Produce, ListOffsets, OffsetForLeaderEpoch and DeleteRecords.

Not here: Fetch, which may wait (fetch.py); batches, files and offsets (partition.py); and the bytes of requests and
responses (wire).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final

from penstock_broker.batch import NO_TIMESTAMP, BatchHeader, is_transactional, is_zstd, read_header
from penstock_broker.errors import ApiError, RefusedRecordsError
from penstock_broker.groups.offsets import TopicPartition
from penstock_broker.log_validator import MOST_REFUSED
from penstock_broker.partition import READ_COMMITTED, Partition
from penstock_broker.state import BrokerState, Request
from penstock_broker.topics import partition_of
from penstock_broker.transaction_apis import check_transactional_produce
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

_NO_ACKS: Final = 0
_FIRST_ZSTD_PRODUCE: Final = 7


class _Time(IntEnum):
    """Special values of a requested time in ListOffsets."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


_FIRST_VERSIONS: Final[Mapping[int, int]] = {
    _Time.LATEST: 1,
    _Time.EARLIEST: 1,
    _Time.MAX_TIMESTAMP: 7,
    _Time.EARLIEST_LOCAL: 8,
    _Time.LATEST_TIERED: 9,
}
"""First version of ListOffsets for each of them."""


def produce(state: BrokerState, request: Request) -> Message | None:
    """Answer Produce, or return None if the client wants no answer (acks=0)."""
    acks: int = request.body["acks"]
    refusals: dict[TopicPartition, ApiError] = {}
    transactional = _transactional_batches(state, request)
    if acks not in (-1, 0, 1):
        refusals = dict.fromkeys(
            _partitions(request), ApiError(ErrorCode.invalid_required_acks, f"acks={acks}; it must be -1 (all), 0 or 1")
        )
    elif transactional and request.body["transactional_id"] is None:
        refusals = dict.fromkeys(
            _partitions(request),
            ApiError(
                ErrorCode.transactional_id_authorization_failed, "records of a transaction need a transactional id"
            ),
        )
    elif transactional:
        refusals = check_transactional_produce(state, request, transactional)
    responses: list[Message] = []
    most_refused = MOST_REFUSED
    for topic in request.body["topic_data"]:
        answers: list[Message] = []
        for partition in topic["partition_data"]:
            answers.append(_produce_partition(state, request, topic["name"], partition, refusals, most_refused))
            most_refused -= len(answers[-1].get("record_errors", ()))
        responses.append({"name": topic["name"], "partition_responses": answers})
    return None if acks == _NO_ACKS else {"responses": responses}


def _partitions(request: Request) -> Iterator[TopicPartition]:
    for topic in request.body["topic_data"]:
        for partition in topic["partition_data"]:
            yield topic["name"], partition["index"]


def _transactional_batches(state: BrokerState, request: Request) -> dict[TopicPartition, BatchHeader]:
    """Return the headers of transactional batches by partition, skipping missing partitions."""
    found: dict[TopicPartition, BatchHeader] = {}
    for topic in request.body["topic_data"]:
        for partition in topic["partition_data"]:
            records: memoryview | None = partition["records"]
            if records and is_transactional(records) and state.topics.has_partition(topic["name"], partition["index"]):
                found[topic["name"], partition["index"]] = read_header(records)
    return found


def _produce_partition(
    state: BrokerState,
    request: Request,
    topic: str,
    wanted: Message,
    refusals: Mapping[TopicPartition, ApiError],
    most_refused: int,
) -> Message:
    index: int = wanted["index"]
    try:
        if (topic, index) in refusals:
            raise refusals[topic, index]
        found = state.topics.by_name(topic)
        found.check_not_internal()
        partition = partition_of(found, index)
        records: memoryview | None = wanted["records"]
        if not records:
            raise ApiError(ErrorCode.invalid_record, "the request has no record batch for the partition")
        if request.version < _FIRST_ZSTD_PRODUCE and is_zstd(records):
            raise ApiError(
                ErrorCode.unsupported_compression_type, f"Produce has zstd from version {_FIRST_ZSTD_PRODUCE} on"
            )
        base_offset = partition.append(records)
        answer: Message = {"index": index, "base_offset": base_offset, "log_start_offset": partition.start_offset}
        if partition.config.is_log_append_time:
            answer["log_append_time"] = read_header(records).max_timestamp
        return answer
    except RefusedRecordsError as error:
        named = error.records[:most_refused]
        refused = [{"batch_index": place, "batch_index_error_message": reason} for place, reason in named]
        answer = {"index": index, "error_code": error.code, "base_offset": -1, "error_message": error.message}
        return answer | {"record_errors": refused}
    except ApiError as error:
        return {"index": index, "error_code": error.code, "base_offset": -1, "error_message": error.message}


def list_offsets(state: BrokerState, request: Request) -> Message:
    """Answer ListOffsets: the start, the end, or the first record from a time on."""
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    _list_offset(state, request, topic["name"], partition) for partition in topic["partitions"]
                ],
            }
            for topic in request.body["topics"]
        ]
    }


def _list_offset(state: BrokerState, request: Request, topic: str, wanted: Message) -> Message:
    index, timestamp = wanted["partition_index"], wanted["timestamp"]
    is_committed = request.body.get("isolation_level", 0) == READ_COMMITTED
    try:
        if timestamp < 0 and (timestamp not in _FIRST_VERSIONS or request.version < _FIRST_VERSIONS[timestamp]):
            raise ApiError(ErrorCode.unsupported_version)
        partition = state.topics.partition(topic, index)
        partition.leader_epochs.check(wanted.get("current_leader_epoch", -1))
        end = partition.last_stable_offset if is_committed else partition.end_offset
        found = _find_offset(partition, timestamp, end)
    except ApiError as error:
        return {"partition_index": index, "error_code": error.code}
    answer: Message = {"partition_index": index}
    if found is not None:
        answer |= {"offset": found[0], "timestamp": found[1], "leader_epoch": partition.leader_epochs.current}
    return answer


def _find_offset(partition: Partition, timestamp: int, end_offset: int) -> tuple[int, int] | None:
    match timestamp:
        case _Time.LATEST:
            return end_offset, NO_TIMESTAMP
        case _Time.EARLIEST | _Time.EARLIEST_LOCAL:
            return partition.start_offset, NO_TIMESTAMP
        case _Time.MAX_TIMESTAMP:
            found = partition.offset_of_max_timestamp()
        case _Time.LATEST_TIERED:
            return None
        case _:
            found = partition.offset_for_time(timestamp)
    return found if found is not None and found[0] < end_offset else None


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


def offset_for_leader_epoch(state: BrokerState, request: Request) -> Message:
    """Answer OffsetForLeaderEpoch: the end of an epoch's records."""
    return {
        "topics": [
            {
                "topic": topic["topic"],
                "partitions": [_end_of_epoch(state, topic["topic"], partition) for partition in topic["partitions"]],
            }
            for topic in request.body["topics"]
        ]
    }


def _end_of_epoch(state: BrokerState, topic: str, wanted: Message) -> Message:
    index: int = wanted["partition"]
    try:
        partition = state.topics.partition(topic, index)
        partition.leader_epochs.check(wanted["current_leader_epoch"])
        found = partition.leader_epochs.end_of(wanted["leader_epoch"])
    except ApiError as error:
        return {"partition": index, "error_code": error.code, "leader_epoch": -1, "end_offset": -1}
    epoch, end_offset = found or (-1, -1)
    return {"partition": index, "leader_epoch": epoch, "end_offset": end_offset}
