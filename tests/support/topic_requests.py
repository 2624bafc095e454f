"""Requests about one topic of an embedded broker."""

from __future__ import annotations

import uuid

from penstock_broker.wire.codec import Message
from tests.support.api_keys import CREATE_TOPICS, METADATA, PRODUCE
from tests.support.protocol_client import ProtocolClient
from tests.support.record_batches import BatchRecord, encode_batch

RECORDS = bytes(encode_batch([BatchRecord(1000 + n, b"k", b"v%d" % n) for n in range(3)]))
"""A batch of three records."""


def create(client: ProtocolClient, name: str, partitions: int, version: int = 7, **settings: object) -> Message:
    """Create a topic, and return its part of the answer."""
    wanted: Message = {"name": name, "num_partitions": partitions, "replication_factor": 1} | settings
    answer: Message = client.call(CREATE_TOPICS, version, {"topics": [wanted]})["topics"][0]
    return answer


def topic_id(client: ProtocolClient, name: str) -> uuid.UUID:
    """Return the id of a topic."""
    found: uuid.UUID = client.call(METADATA, 12, {"topics": [{"name": name}]})["topics"][0]["topic_id"]
    return found


def produce(client: ProtocolClient, topic: str, version: int = 11, partition: int = 0, **settings: object) -> Message:
    """Append RECORDS to a partition, and return its part of the answer."""
    data = {"name": topic, "partition_data": [{"index": partition, "records": RECORDS}]}
    body = {"acks": -1, "timeout": 1000, "topic_data": [data]} | settings
    answer: Message = client.call(PRODUCE, version, body)["responses"][0]["partition_responses"][0]
    return answer


def fetch_body(client: ProtocolClient, topic: str, offset: int, **settings: object) -> Message:
    """Return a Fetch of the first partition of a topic."""
    wanted = {
        "topic": topic,
        "topic_id": topic_id(client, topic),
        "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}],
    }
    return {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "topics": [wanted]} | settings


def fetched(response: Message) -> Message:
    """Return the first partition of the answer to a Fetch."""
    partition: Message = response["responses"][0]["partitions"][0]
    return partition
