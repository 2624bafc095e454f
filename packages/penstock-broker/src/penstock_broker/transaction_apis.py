"""The transaction APIs, and the transactional checks of Produce.

The APIs are InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, WriteTxnMarkers,
DescribeProducers, DescribeTransactions and ListTransactions. Not here: the decisions (transactions.py).

Rule: a fenced producer gets PRODUCER_FENCED in the versions that support it, and INVALID_PRODUCER_EPOCH in older ones
and in Produce.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import groupby
from typing import Final

from penstock_broker.batch import BatchHeader
from penstock_broker.errors import ApiError
from penstock_broker.groups.offsets import CommittedOffset, TopicPartition
from penstock_broker.groups.patterns import check_pattern, matching
from penstock_broker.offset_apis import commit_offsets
from penstock_broker.partition import Partition
from penstock_broker.producer_state import EPOCH_BUMPS
from penstock_broker.records import EndTransactionMarker
from penstock_broker.state import BrokerState, Request
from penstock_broker.topics import OFFSETS_TOPIC
from penstock_broker.transaction_log import NO_EPOCH, NO_ID, State
from penstock_broker.transactions import Producer
from penstock_broker.wire.codec import LazyArray, Message
from penstock_broker.wire.error_codes import ErrorCode

_FIRST_BATCHED_ADD: Final = 4
_FIRST_ABORTABLE_PRODUCE: Final = 11
_FIRST_ADDING_PRODUCE: Final = 12
_FIRST_BUMPING_END: Final = 5
_FIRST_ABORTABLE_OFFSET_COMMIT: Final = 4
_FIRST_ADDING_OFFSET_COMMIT: Final = 5
_OFFSETS: Final = (OFFSETS_TOPIC, 0)


def init_producer_id(state: BrokerState, request: Request) -> Message:
    """Answer InitProducerId for an idempotent or a transactional producer.

    The former gets a new id with epoch 0, the latter the id and epoch of its transactional id.
    """
    body = request.body
    try:
        if body["transactional_id"] is None:
            producer = Producer(state.producer_ids.draw(), 0)
        else:
            producer = state.transactions.init_producer_id(
                body["transactional_id"], body["transaction_timeout"], _known_producer(body)
            )
    except ApiError as error:
        code = _code_for(error, request.version >= 4)
        return {"error_code": code, "producer_id": NO_ID, "producer_epoch": NO_EPOCH}
    return {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}


def _known_producer(body: Message) -> Producer | None:
    known = Producer(body.get("producer_id", NO_ID), body.get("producer_epoch", NO_EPOCH))
    if known == (NO_ID, NO_EPOCH):
        return None
    if NO_ID in known:
        raise ApiError(ErrorCode.invalid_request, "producer id and epoch come together")
    return known


def _code_for(error: ApiError, knows_fenced: bool) -> ErrorCode:
    if error.code == ErrorCode.producer_fenced and not knows_fenced:
        return ErrorCode.invalid_producer_epoch
    return error.code


def add_partitions_to_txn(state: BrokerState, request: Request) -> Message:
    """Answer AddPartitionsToTxn.

    From version 4 on, it is for several transactional ids, and either adds or checks partitions.
    """
    body = request.body
    if request.version >= _FIRST_BATCHED_ADD:
        results = [
            {"transactional_id": wanted["transactional_id"], "topic_results": _add_partitions(state, request, wanted)}
            for wanted in body["transactions"]
        ]
        return {"results_by_transaction": results}
    names = ("transactional_id", "producer_id", "producer_epoch", "topics")
    wanted = {name: body[f"v3_and_below_{name}"] for name in names} | {"verify_only": False}
    return {"results_by_topic_v3_and_below": _add_partitions(state, request, wanted)}


def _add_partitions(state: BrokerState, request: Request, wanted: Message) -> list[Message]:
    partitions = [(topic["name"], index) for topic in wanted["topics"] for index in topic["partitions"]]
    codes = _codes_of_adding(state, request, wanted, partitions)
    return [
        {
            "name": topic["name"],
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": codes[topic["name"], index]}
                for index in topic["partitions"]
            ],
        }
        for topic in wanted["topics"]
    ]


def _codes_of_adding(
    state: BrokerState, request: Request, wanted: Message, partitions: list[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    missing = {partition for partition in partitions if not state.topics.has_partition(*partition)}
    if missing:
        # All of them are added, or no partition.
        return {
            partition: ErrorCode.unknown_topic_or_partition
            if partition in missing
            else ErrorCode.operation_not_attempted
            for partition in partitions
        }
    producer = Producer(wanted["producer_id"], wanted["producer_epoch"])
    try:
        if wanted["verify_only"]:
            known = state.transactions.partitions(wanted["transactional_id"], producer)
            return {
                partition: ErrorCode.none if partition in known else ErrorCode.transaction_abortable
                for partition in partitions
            }
        version = EPOCH_BUMPS if request.version >= _FIRST_BATCHED_ADD else 0
        state.transactions.add_partitions(wanted["transactional_id"], producer, partitions, version)
    except ApiError as error:
        return dict.fromkeys(partitions, _code_for(error, request.version >= 2))
    return dict.fromkeys(partitions, ErrorCode.none)


def add_offsets_to_txn(state: BrokerState, request: Request) -> Message:
    """Answer AddOffsetsToTxn, which announces offsets of a group in a transaction."""
    body = request.body
    producer = Producer(body["producer_id"], body["producer_epoch"])
    try:
        state.transactions.add_partitions(body["transactional_id"], producer, [_OFFSETS], 0)
    except ApiError as error:
        return {"error_code": _code_for(error, request.version >= 2)}
    return {"error_code": ErrorCode.none}


def txn_offset_commit(state: BrokerState, request: Request) -> Message:
    """Answer TxnOffsetCommit: offsets of a group that take effect when the transaction is committed."""
    body = request.body
    producer = Producer(body["producer_id"], body["producer_epoch"])

    def store(offsets: dict[TopicPartition, CommittedOffset]) -> None:
        if not offsets:
            return
        state.groups.check_member(
            body["group_id"],
            body.get("member_id", ""),
            body.get("group_instance_id"),
            body.get("generation_id_or_member_epoch", -1),
            offsets,
        )
        _check_offsets_added(state, request, producer)
        state.groups.offsets.commit_in_transaction(*producer, body["group_id"], offsets)

    return {"topics": commit_offsets(state, body["topics"], store)}


def _check_offsets_added(state: BrokerState, request: Request, producer: Producer) -> None:
    """Check that the offsets are in the open transaction of a producer.

    From version 5 on, add them to it.
    """
    transactional_id: str = request.body["transactional_id"]
    try:
        if request.version >= _FIRST_ADDING_OFFSET_COMMIT:
            state.transactions.add_partitions(transactional_id, producer, [_OFFSETS], EPOCH_BUMPS)
        elif _OFFSETS not in state.transactions.partitions(transactional_id, producer):
            raise _not_added(_OFFSETS, request.version >= _FIRST_ABORTABLE_OFFSET_COMMIT)
    except ApiError as error:
        match error.code:
            case ErrorCode.concurrent_transactions if request.version < _FIRST_ADDING_OFFSET_COMMIT:
                # Clients retry an offset commit after this error.
                raise ApiError(ErrorCode.coordinator_not_available, str(error)) from error
            case ErrorCode.producer_fenced:
                raise ApiError(ErrorCode.invalid_producer_epoch, str(error)) from error
            case _:
                raise


def end_txn(state: BrokerState, request: Request) -> Message:
    """Answer EndTxn: commit or abort.

    From version 5 on, the answer has the producer's epoch for the next transaction.
    """
    body = request.body
    version = EPOCH_BUMPS if request.version >= _FIRST_BUMPING_END else 0
    try:
        producer = state.transactions.end(
            body["transactional_id"], Producer(body["producer_id"], body["producer_epoch"]), body["committed"], version
        )
    except ApiError as error:
        return {"error_code": _code_for(error, request.version >= 2)}
    return {"error_code": ErrorCode.none, "producer_id": producer.producer_id, "producer_epoch": producer.epoch}


def check_transactional_produce(
    state: BrokerState, request: Request, batches: Mapping[TopicPartition, BatchHeader]
) -> dict[TopicPartition, ApiError]:
    """Check that partitions are in the open transaction of a producer.

    From Produce 12 on, add them to it.

    Args:
        state: the broker.
        request: a Produce request with a transactional id.
        batches: the headers of its transactional batches, by partition; the partitions exist.

    Returns:
        The partitions that must not be appended to, with the errors.
    """
    transactional_id: str = request.body["transactional_id"]
    producers = {Producer(header.producer_id, header.producer_epoch) for header in batches.values()}
    if len(producers) > 1:
        error = ApiError(ErrorCode.invalid_producer_id_mapping, "the records of one request are of several producers")
        return dict.fromkeys(batches, error)
    [producer] = producers
    try:
        if request.version >= _FIRST_ADDING_PRODUCE:
            state.transactions.add_partitions(transactional_id, producer, batches, EPOCH_BUMPS)
            return _check_first_sequences(state, batches)
        known = state.transactions.partitions(transactional_id, producer)
        return {
            partition: _not_added(partition, request.version >= _FIRST_ABORTABLE_PRODUCE)
            for partition in batches
            if partition not in known
        }
    except ApiError as error:
        return dict.fromkeys(batches, ApiError(_code_for_produce(error.code, request.version), str(error)))


def _check_first_sequences(
    state: BrokerState, batches: Mapping[TopicPartition, BatchHeader]
) -> dict[TopicPartition, ApiError]:
    """Reject later batches of producers that are unknown to a partition.

    Each transaction begins with sequence number 0, so an earlier batch is missing.
    """
    return {
        partition: ApiError(
            ErrorCode.out_of_order_sequence_number,
            f"producer {header.producer_id} began at {header.base_sequence} in {partition[0]}-{partition[1]}",
        )
        for partition, header in batches.items()
        if header.base_sequence != 0 and not state.topics.partition(*partition).producers.knows(header.producer_id)
    }


def _not_added(partition: TopicPartition, knows_abortable: bool) -> ApiError:
    code = ErrorCode.transaction_abortable if knows_abortable else ErrorCode.invalid_txn_state
    return ApiError(code, f"{partition[0]}-{partition[1]} was not added to the transaction")


def _code_for_produce(code: ErrorCode, version: int) -> ErrorCode:
    match code:
        case ErrorCode.producer_fenced:
            return ErrorCode.invalid_producer_epoch
        case ErrorCode.not_coordinator:
            # Clients retry a Produce after this error.
            return ErrorCode.not_enough_replicas
        case ErrorCode.concurrent_transactions if version < _FIRST_ADDING_PRODUCE:
            return ErrorCode.not_enough_replicas
        case _:
            return code


def write_txn_markers(state: BrokerState, request: Request) -> Message:
    """Answer WriteTxnMarkers, used by administrators to end abandoned transactions."""
    return {
        "markers": [
            {
                "producer_id": wanted["producer_id"],
                "topics": [
                    {
                        "name": topic["name"],
                        "partitions": [
                            {
                                "partition_index": index,
                                "error_code": _write_marker(state, wanted, (topic["name"], index)),
                            }
                            for index in topic["partition_indexes"]
                        ],
                    }
                    for topic in wanted["topics"]
                ],
            }
            for wanted in request.body["markers"]
        ]
    }


def _write_marker(state: BrokerState, wanted: Message, where: TopicPartition) -> ErrorCode:
    producer = Producer(wanted["producer_id"], wanted["producer_epoch"])
    marker = EndTransactionMarker(wanted["transaction_result"], wanted["coordinator_epoch"])
    try:
        state.topics.partition(*where).producers.check_marker(*producer, marker, wanted.get("transaction_version", 0))
        state.transactions.write_marker(where, producer, marker)
    except ApiError as error:
        return error.code
    return ErrorCode.none


def describe_producers(state: BrokerState, request: Request) -> Message:
    """Answer DescribeProducers with the producers known to partitions."""
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": LazyArray(topic["partition_indexes"], partial(_describe_partition, state, topic["name"])),
            }
            for topic in request.body["topics"]
        ]
    }


def _describe_partition(state: BrokerState, topic: str, index: int) -> Message:
    try:
        partition: Partition = state.topics.partition(topic, index)
    except ApiError as error:
        return {"partition_index": index, "error_code": error.code, "error_message": error.message}
    return {
        "partition_index": index,
        "active_producers": [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_timestamp,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": producer.first_open_offset,
            }
            for producer in partition.producers.all()
        ],
    }


def describe_transactions(state: BrokerState, request: Request) -> Message:
    """Answer DescribeTransactions."""
    return {"transaction_states": LazyArray(request.body["transactional_ids"], partial(_describe, state))}


def _describe(state: BrokerState, transactional_id: str) -> Message:
    try:
        transaction = state.transactions.of_id(transactional_id)
    except ApiError as error:
        return {"error_code": error.code, "transactional_id": transactional_id, "producer_id": NO_ID}
    return {
        "transactional_id": transactional_id,
        "transaction_state": transaction.state.label,
        "transaction_timeout": transaction.timeout_ms,
        "transaction_start_time": transaction.started_ms,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.epoch,
        "topics": _by_topic(transaction.partitions),
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> list[Message]:
    topics = groupby(sorted(partitions), key=lambda partition: partition[0])
    return [{"topic": topic, "partitions": [index for _, index in group]} for topic, group in topics]


def list_transactions(state: BrokerState, request: Request) -> Message:
    """Answer ListTransactions, filtered by state, producer id, duration and transactional id pattern."""
    body = request.body
    listed = {transaction.transactional_id: transaction for transaction in state.transactions.all()}
    pattern: str | None = body.get("transactional_id_pattern")
    if pattern:
        try:
            check_pattern(pattern)
        except ApiError as error:
            return {"error_code": error.code}
        listed = {name: listed[name] for name in sorted(matching(pattern, listed))}
    labels = {one.label for one in State}
    states, producer_ids = set(body["state_filters"]), set(body["producer_id_filters"])
    now_ms = state.transactions.now_ms()
    duration_ms: int = body.get("duration_filter", -1)
    return {
        "unknown_state_filters": sorted(states - labels),
        "transaction_states": [
            {
                "transactional_id": transaction.transactional_id,
                "producer_id": transaction.producer_id,
                "transaction_state": transaction.state.label,
            }
            for transaction in listed.values()
            if (not states or transaction.state.label in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            # As in Kafka, an id without an open transaction counts as a long one.
            and (duration_ms < 0 or now_ms - transaction.started_ms > duration_ms)
        ],
    }
