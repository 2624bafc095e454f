"""The APIs for topics and the cluster.

These are Metadata, DescribeTopicPartitions, DescribeCluster, CreateTopics, DeleteTopics, CreatePartitions and
DescribeLogDirs.

Rules: a handler takes the state and a request and returns the response as a message. An error of one topic is reported
for that topic and does not affect the others.
"""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from functools import lru_cache, partial
from typing import Final, NamedTuple

from penstock_broker.authorized_operations import ON_CLUSTER, ON_TOPIC
from penstock_broker.config_apis import topic_config_entries
from penstock_broker.errors import ApiError
from penstock_broker.metadata_store import TopicRow
from penstock_broker.state import NODE_ID, BrokerState, Request
from penstock_broker.topics import Topic, check_replication_factor
from penstock_broker.wire.codec import Encoded, LazyArray, Message, encoded_element
from penstock_broker.wire.error_codes import ErrorCode

METADATA: Final = 3
"""The key of the API Metadata."""

_NO_TOPIC_ID: Final = uuid.UUID(int=0)

_MOST_ENCODED: Final = 4_000
"""Maximum topics to keep encoded for the next list of all topics."""

_MOST_PARTITIONS: Final = 2_000
"""Maximum partitions per DescribeTopicPartitions answer, like Kafka's `max.request.partition.size.limit`."""


def metadata(state: BrokerState, request: Request) -> Message:
    """Answer Metadata with the broker and the requested topics, creating them if allowed."""
    wanted: list[Message] | None = request.body["topics"]
    operations = ON_TOPIC if request.body.get("include_topic_authorized_operations") else None
    topics: LazyArray[Topic] | LazyArray[Topic | Message]
    # Version 0 has no null: an empty list requests all topics there.
    if wanted is None or (request.version == 0 and not wanted):
        topics = LazyArray(state.topics.all(), partial(_listed_topic, request.version, operations))
    else:
        may_create = state.config.auto_create_topics and request.body.get("allow_auto_topic_creation", True)
        # As in Kafka, a topic that is requested twice is answered once.
        distinct = {(topic["name"], topic.get("topic_id", _NO_TOPIC_ID)): None for topic in wanted}
        found = [_wanted_topic(state, *names, may_create) for names in distinct]
        topics = LazyArray(found, partial(_topic_metadata, operations))
    return {
        "brokers": [{"node_id": NODE_ID, "host": state.host, "port": state.port}],
        "cluster_id": state.cluster_id,
        "controller_id": NODE_ID,
        "topics": topics,
        **_on_cluster(request),
    }


def _on_cluster(request: Request) -> Message:
    is_wanted = request.body.get("include_cluster_authorized_operations")
    return {"cluster_authorized_operations": ON_CLUSTER} if is_wanted else {}


def _wanted_topic(state: BrokerState, name: str | None, topic_id: uuid.UUID, may_create: bool) -> Topic | Message:
    """Return a topic, or the answer with the reason why it does not exist."""
    try:
        return state.topics.by_id(topic_id) if name is None else _find_or_create(state, name, may_create)
    except ApiError as error:
        # Versions before 12 have no null here, and always ask by name.
        return {"error_code": error.code, "name": name, "topic_id": topic_id}


def _find_or_create(state: BrokerState, name: str, may_create: bool) -> Topic:
    try:
        return state.topics.by_name(name)
    except ApiError as error:
        if error.code != ErrorCode.unknown_topic_or_partition or not may_create:
            raise
    return state.topics.create(name, None, {})


def _topic_metadata(operations: int | None, topic: Topic | Message) -> Message:
    return _described(_Shape.of(topic), operations) if isinstance(topic, Topic) else topic


def _listed_topic(version: int, operations: int | None, topic: Topic) -> Encoded:
    """Return an element of a list of all topics, which clients request often; few topics change in between."""
    return _encoded(version, operations, _Shape.of(topic))


class _Shape(NamedTuple):
    """The attributes of a topic in a response of Metadata."""

    name: str
    topic_id: bytes
    is_internal: bool
    leader_epochs: tuple[int, ...]

    @classmethod
    def of(cls, topic: Topic) -> _Shape:
        epochs = tuple([partition.leader_epochs.current for partition in topic.partitions])
        return cls(topic.name, topic.topic_id.bytes, topic.is_internal, epochs)


@lru_cache(maxsize=_MOST_ENCODED)
def _encoded(version: int, operations: int | None, shape: _Shape) -> Encoded:
    return encoded_element(METADATA, version, "topics", _described(shape, operations))


def _described(shape: _Shape, operations: int | None) -> Message:
    authorized: Message = {} if operations is None else {"topic_authorized_operations": operations}
    return authorized | {
        "error_code": ErrorCode.none,
        "name": shape.name,
        "topic_id": uuid.UUID(bytes=shape.topic_id),
        "is_internal": shape.is_internal,
        "partitions": [
            {
                "error_code": ErrorCode.none,
                "partition_index": index,
                "leader_id": NODE_ID,
                "leader_epoch": epoch,
                "replica_nodes": [NODE_ID],
                "isr_nodes": [NODE_ID],
            }
            for index, epoch in enumerate(shape.leader_epochs)
        ],
    }


def describe_topic_partitions(state: BrokerState, request: Request) -> Message:
    """Answer DescribeTopicPartitions (KIP-966) with topics sorted by name.

    The answer begins at the cursor of the previous one, and has a cursor for the next one if there are more partitions
    than its limit.
    """
    wanted = {topic["name"] for topic in request.body["topics"]}
    cursor = request.body["cursor"] or {"topic_name": "", "partition_index": 0}
    if cursor["partition_index"] < 0:
        return {"topics": [{"error_code": ErrorCode.invalid_request, "name": name} for name in sorted(wanted)]}
    names = sorted(wanted or (topic.name for topic in state.topics.all()))
    room = max(1, min(request.body["response_partition_limit"], _MOST_PARTITIONS))
    topics: list[Message] = []
    for name in names:
        if name < cursor["topic_name"]:
            continue
        if room <= 0:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
        found = _wanted_topic(state, name, _NO_TOPIC_ID, False)
        topic = {**_topic_metadata(None, found), "topic_authorized_operations": ON_TOPIC}
        topics.append(topic)
        partitions = topic.get("partitions", [])
        first = cursor["partition_index"] if name == cursor["topic_name"] else 0
        end = first + room
        topic["partitions"] = [
            {**partition, "eligible_leader_replicas": [], "last_known_elr": []} for partition in partitions[first:end]
        ]
        room -= len(topic["partitions"])
        if end < len(partitions):
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": end}}
    return {"topics": topics}


def describe_cluster(state: BrokerState, request: Request) -> Message:
    """Answer DescribeCluster."""
    if request.body.get("endpoint_type", 1) != 1:
        return {
            "error_code": ErrorCode.unsupported_endpoint_type,
            "error_message": "this broker has no controller endpoint",
        }
    return {
        "cluster_id": state.cluster_id,
        "controller_id": NODE_ID,
        "brokers": [{"broker_id": NODE_ID, "host": state.host, "port": state.port}],
        **_on_cluster(request),
    }


def create_topics(state: BrokerState, request: Request) -> Message:
    """Answer CreateTopics."""
    wanted: list[Message] = request.body["topics"]
    times = Counter(topic["name"] for topic in wanted)
    created = [_create_topic(state, request, topic, times) for topic in wanted]
    return {"topics": LazyArray(created, partial(_created_topic, state))}


def _create_topic(state: BrokerState, request: Request, wanted: Message, times: Counter[str]) -> TopicRow | Message:
    """Create a topic, and return it, or the answer with the reason of the failure."""
    name: str = wanted["name"]
    try:
        if times[name] > 1:
            raise ApiError(
                ErrorCode.invalid_request, f"topic {name[:260]!r} appears {times[name]} times in one request"
            )
        partitions = _partition_count(request, wanted)
        configs = {config["name"]: config["value"] for config in wanted["configs"]}
        created = state.topics.check_new(name, partitions, configs)
        if not request.body["validate_only"]:
            state.topics.create_checked(created)
        return created
    except ApiError as error:
        return {"name": name, "error_code": error.code, "error_message": error.message}


def _created_topic(state: BrokerState, created: TopicRow | Message) -> Message:
    if not isinstance(created, TopicRow):
        return created
    return {
        "name": created.name,
        "topic_id": created.topic_id,
        "num_partitions": created.partitions,
        "replication_factor": 1,
        "configs": [
            {key: entry[key] for key in ("name", "value", "read_only", "config_source", "is_sensitive")}
            for entry in topic_config_entries(state, created.configs)
        ],
    }


def _partition_count(request: Request, wanted: Message) -> int | None:
    assignments: list[Message] = wanted["assignments"]
    if assignments:
        if wanted["num_partitions"] != -1 or wanted["replication_factor"] != -1:
            raise ApiError(
                ErrorCode.invalid_request, "with an assignment of replicas, both numbers of the topic must be -1"
            )
        if sorted(one["partition_index"] for one in assignments) != list(range(len(assignments))):
            raise ApiError(ErrorCode.invalid_replica_assignment, "the assigned partitions are not 0, 1, 2 and so on")
        _check_replicas([one["broker_ids"] for one in assignments])
        return len(assignments)
    check_replication_factor(wanted["replication_factor"])
    count: int = wanted["num_partitions"]
    return None if count == -1 else count


def _check_replicas(assignments: list[list[int]]) -> None:
    if any(brokers != [NODE_ID] for brokers in assignments):
        raise ApiError(ErrorCode.invalid_replica_assignment, f"the only broker that can hold a partition is {NODE_ID}")


def delete_topics(state: BrokerState, request: Request) -> Message:
    """Answer DeleteTopics."""
    by_name = [{"name": name, "topic_id": _NO_TOPIC_ID} for name in request.body.get("topic_names", [])]
    wanted: list[Message] = request.body.get("topics", by_name)
    return {"responses": [_delete_topic(state, topic["name"], topic["topic_id"]) for topic in wanted]}


def _delete_topic(state: BrokerState, name: str | None, topic_id: uuid.UUID) -> Message:
    try:
        topic = state.topics.by_name(name) if name is not None else state.topics.by_id(topic_id)
        state.topics.delete(topic)
        state.groups.on_topic_deleted(topic.name)
    except ApiError as error:
        return {"name": name, "topic_id": topic_id, "error_code": error.code, "error_message": error.message}
    return {"name": topic.name, "topic_id": topic.topic_id}


def create_partitions(state: BrokerState, request: Request) -> Message:
    """Answer CreatePartitions."""
    results = []
    for wanted in request.body["topics"]:
        answer: Message = {"name": wanted["name"]}
        try:
            topic = state.topics.by_name(wanted["name"])
            assignments: list[Message] | None = wanted["assignments"]
            if assignments is not None:
                if len(assignments) != wanted["count"] - len(topic.partitions):
                    raise ApiError(ErrorCode.invalid_replica_assignment, "each new partition needs an assignment")
                _check_replicas([one["broker_ids"] for one in assignments])
            state.topics.check_growth(topic, wanted["count"])
            if not request.body["validate_only"]:
                state.topics.grow(topic, wanted["count"])
        except ApiError as error:
            answer |= {"error_code": error.code, "error_message": error.message}
        results.append(answer)
    return {"results": results}


def describe_log_dirs(state: BrokerState, request: Request) -> Message:
    """Answer DescribeLogDirs with the size of each log in the data directory."""
    wanted: list[Message] | None = request.body["topics"]
    partitions = None if wanted is None else {topic["topic"]: set(topic["partitions"]) for topic in wanted}
    try:
        disk = shutil.disk_usage(state.config.data_dir)
        space: Message = {"total_bytes": disk.total, "usable_bytes": disk.free}
    except OSError:
        space = {"error_code": ErrorCode.kafka_storage_error}
    topics = [topic for topic in state.topics.all() if partitions is None or topic.name in partitions]
    found = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": partition.index, "partition_size": partition.log.segments.size, "offset_lag": 0}
                for partition in topic.partitions
                if partitions is None or partition.index in partitions[topic.name]
            ],
        }
        for topic in topics
    ]
    return {"results": [space | {"log_dir": str(state.config.data_dir), "topics": found}]}
