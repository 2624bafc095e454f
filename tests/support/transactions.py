"""A producer of transactions that sends whatever a test wants, right or wrong, over a plain socket."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from tests.support.protocol_client import ProtocolClient
from tests.support.record_batches import BatchRecord, encode_batch

TRANSACTIONAL: Final = 0x10
WAIT_SECONDS: Final = 120
NOT_READY: Final = {
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
    ErrorCode.not_leader_or_follower,
    ErrorCode.concurrent_transactions,
}
"""What a broker answers that is not ready yet, or still ends a transaction."""


class Transactions:
    """A producer of transactions that sends what a test wants.

    Args:
        client: its connection.
        transactional_id: its id.

    Attributes:
        producer: its producer id and its epoch.
        sequences: the next sequence number of each partition.
    """

    def __init__(self, client: ProtocolClient, transactional_id: str) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.producer: tuple[int, int] = (-1, -1)
        self.sequences: dict[tuple[str, int], int] = {}

    def body(self, **fields: object) -> Message:
        """Return the fields that name the producer, and others."""
        producer_id, epoch = self.producer
        return {
            "transactional_id": self.transactional_id, "producer_id": producer_id, "producer_epoch": epoch
        } | fields  # fmt: skip

    def find_coordinator(self) -> None:
        """Wait until the broker coordinates the transactions of the id."""
        body = {"key_type": 1, "coordinator_keys": [self.transactional_id]}
        ready(lambda: self.client.call(FIND_COORDINATOR, 4, body)["coordinators"][0])

    def begin(self, version: int = 4, **fields: object) -> ErrorCode:
        """Get producer id and epoch, as a producer that starts."""
        body = self.body(producer_id=-1, producer_epoch=-1, transaction_timeout=60_000) | fields
        answer = ready(lambda: self.client.call(INIT_PRODUCER_ID, version, body))
        if answer["error_code"] == ErrorCode.none:
            self._continue_as(answer)
        return ErrorCode(answer["error_code"])

    def _continue_as(self, answer: Message) -> None:
        self.producer = (answer["producer_id"], answer["producer_epoch"])
        self.sequences.clear()

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[ErrorCode]:
        """Add partitions to the transaction, and return the error code of each, in their order."""
        topics = [{"name": topic, "partitions": list(partitions)}]
        if version < 4:
            body = {f"v3_and_below_{name}": value for name, value in self.body(topics=topics).items()}
        else:
            body = {"transactions": [self.body(topics=topics)]}

        def call() -> Message:
            answer = self.client.call(ADD_PARTITIONS_TO_TXN, version, body)
            results = answer["results_by_transaction"][0]["topic_results"] if version >= 4 else None
            [result] = results or answer["results_by_topic_v3_and_below"]
            by_index = {one["partition_index"]: one["partition_error_code"] for one in result["results_by_partition"]}
            return {"error_code": by_index[partitions[0]], "codes": [by_index[index] for index in partitions]}

        return [ErrorCode(code) for code in ready(call)["codes"]]

    def produce(self, topic: str, partition: int, *values: bytes, version: int = 11) -> ErrorCode:
        """Append records to the transaction."""
        producer_id, epoch = self.producer
        batch = encode_batch(
            [BatchRecord(1000, None, value) for value in values],
            attributes=TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self.sequences.get((topic, partition), 0),
        )
        data = {"name": topic, "partition_data": [{"index": partition, "records": bytes(batch)}]}
        body = {"transactional_id": self.transactional_id, "acks": -1, "timeout": 5000, "topic_data": [data]}

        def call() -> Message:
            answer: Message = self.client.call(PRODUCE, version, body)["responses"][0]["partition_responses"][0]
            return answer

        code = ErrorCode(ready(call)["error_code"])
        if code == ErrorCode.none:
            self.sequences[topic, partition] = self.sequences.get((topic, partition), 0) + len(values)
        return code

    def end(self, is_commit: bool = True, version: int = 4) -> ErrorCode:
        """End the transaction; with version 5 the producer goes on with the epoch of the answer."""
        answer = ready(lambda: self.client.call(END_TXN, version, self.body(committed=is_commit)))
        if version >= 5 and answer["error_code"] == ErrorCode.none:
            self._continue_as(answer)
        return ErrorCode(answer["error_code"])

    def add_offsets(self, group: str, version: int = 3) -> ErrorCode:
        """Add the offsets of a group to the transaction."""
        answer = ready(lambda: self.client.call(ADD_OFFSETS_TO_TXN, version, self.body(group_id=group)))
        return ErrorCode(answer["error_code"])

    def commit_offset(self, group: str, topic: str, offset: int, version: int = 3, **fields: object) -> ErrorCode:
        """Commit an offset of partition 0 in the transaction."""
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
        body = self.body(group_id=group, topics=[{"name": topic, "partitions": [partition]}]) | fields

        def call() -> Message:
            answer: Message = self.client.call(TXN_OFFSET_COMMIT, version, body)["topics"][0]["partitions"][0]
            return answer

        return ErrorCode(ready(call)["error_code"])


def ready(call: Callable[[], Message]) -> Message:
    """Return the answer of a call, repeated while the broker is not ready."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (answer := call())["error_code"] in NOT_READY and time.monotonic() < deadline:
        time.sleep(0.02)
    return answer
