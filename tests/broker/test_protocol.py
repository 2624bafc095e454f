"""The embedded broker on the wire: every version of every API, flow of a connection, and requests that are wrong."""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock_broker
from penstock_broker.apis import APIS
from penstock_broker.process import BrokerProcess
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.record_batches import TRANSACTIONAL
from tests.support.api_keys import (
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from tests.support.protocol_client import ProtocolClient, versions_of
from tests.support.record_batches import BatchRecord, encode_batch

RECORDS = bytes(encode_batch([BatchRecord(1000 + n, b"k", b"v%d" % n) for n in range(3)]))


@pytest.fixture
def client(embedded_broker: BrokerProcess) -> Iterator[ProtocolClient]:
    with ProtocolClient(embedded_broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def topic(client: ProtocolClient) -> str:
    name = f"topic-{uuid.uuid4()}"
    created = create(client, name, 2)
    assert created["error_code"] == ErrorCode.none
    return name


def create(client: ProtocolClient, name: str, partitions: int, version: int = 7, **settings: object) -> Message:
    wanted: Message = {"name": name, "num_partitions": partitions, "replication_factor": 1} | settings
    answer: Message = client.call(CREATE_TOPICS, version, {"topics": [wanted]})["topics"][0]
    return answer


def topic_id(client: ProtocolClient, name: str) -> uuid.UUID:
    found: uuid.UUID = client.call(METADATA, 12, {"topics": [{"name": name}]})["topics"][0]["topic_id"]
    return found


def produce(client: ProtocolClient, topic: str, version: int = 11, partition: int = 0, **settings: object) -> Message:
    data = {"name": topic, "partition_data": [{"index": partition, "records": RECORDS}]}
    body = {"acks": -1, "timeout": 1000, "topic_data": [data]} | settings
    answer: Message = client.call(PRODUCE, version, body)["responses"][0]["partition_responses"][0]
    return answer


def fetch_body(client: ProtocolClient, topic: str, offset: int, **settings: object) -> Message:
    wanted = {
        "topic": topic,
        "topic_id": topic_id(client, topic),
        "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}],
    }
    return {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "topics": [wanted]} | settings


def fetched(response: Message) -> Message:
    partition: Message = response["responses"][0]["partitions"][0]
    return partition


def is_closed(client: ProtocolClient) -> bool:
    try:
        client.receive_frame()
    except (ConnectionError, TimeoutError) as error:
        return not isinstance(error, TimeoutError)
    return False


def serves(broker: BrokerProcess) -> bool:
    with ProtocolClient(broker.bootstrap_servers) as other:
        return bool(other.call(METADATA, 12, {"topics": []})["brokers"])


def test_the_documented_versions_are_those_of_the_table() -> None:
    assert penstock_broker.__doc__ is not None
    documented = {(int(low), int(high)) for low, high in re.findall(r"[A-Z]\w+ (\d+)-(\d+)", penstock_broker.__doc__)}
    assert documented == {(api.min_version, api.max_version) for api in APIS.values()}
    with_names = re.findall(r"([A-Z]\w+) \d+-\d+", penstock_broker.__doc__)
    assert len(with_names) == len(APIS)


def test_the_advertised_versions_are_those_of_the_table(client: ProtocolClient) -> None:
    for version in versions_of(API_VERSIONS):
        answer = client.call(API_VERSIONS, version, {"client_software_name": "test", "client_software_version": "1"})
        found = {one["api_key"]: (one["min_version"], one["max_version"]) for one in answer["api_keys"]}
        assert found == {key: (api.advertised_min, api.max_version) for key, api in APIS.items()}
    assert found[PRODUCE] == (0, 12)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(client: ProtocolClient) -> None:
    client.send_frame(struct.pack(">hhih", API_VERSIONS, 99, 1, -1) + b"\x00\x01\x02")
    answer = client.receive_frame()
    assert struct.unpack_from(">ihi", answer) == (1, ErrorCode.unsupported_version, len(APIS))


@pytest.mark.parametrize("version", versions_of(PRODUCE))
def test_every_version_of_produce(client: ProtocolClient, topic: str, version: int) -> None:
    for expected in (0, 3, 6):
        answer = produce(client, topic, version)
        assert (answer["error_code"], answer["base_offset"]) == (ErrorCode.none, expected)


@pytest.mark.parametrize("version", versions_of(FETCH))
def test_every_version_of_fetch(client: ProtocolClient, topic: str, version: int) -> None:
    produce(client, topic)
    produce(client, topic)
    answer = fetched(client.call(FETCH, version, fetch_body(client, topic, 4)))
    assert (answer["error_code"], answer["high_watermark"], answer["last_stable_offset"]) == (0, 6, 6)
    expected = bytearray(RECORDS)
    struct.pack_into(">q", expected, 0, 3)
    struct.pack_into(">i", expected, 12, 0)
    assert answer["records"] == expected
    assert len(fetched(client.call(FETCH, version, fetch_body(client, topic, 0)))["records"]) == 2 * len(RECORDS)


@pytest.mark.parametrize("version", versions_of(LIST_OFFSETS))
def test_every_version_of_list_offsets(client: ProtocolClient, topic: str, version: int) -> None:
    produce(client, topic)

    def ask(timestamp: int, partition: int = 0) -> tuple[int, int, int]:
        wanted = {"name": topic, "partitions": [{"partition_index": partition, "timestamp": timestamp}]}
        answer = client.call(LIST_OFFSETS, version, {"replica_id": -1, "topics": [wanted]})["topics"][0]["partitions"][
            0
        ]
        return answer["error_code"], answer["offset"], answer["timestamp"]

    assert ask(-1) == (ErrorCode.none, 3, -1)
    assert ask(-2) == (ErrorCode.none, 0, -1)
    unsupported = (ErrorCode.unsupported_version, -1, -1)
    assert ask(-3) == ((ErrorCode.none, 2, 1002) if version >= 7 else unsupported)
    assert ask(-4) == ((ErrorCode.none, 0, -1) if version >= 8 else unsupported)
    assert ask(-5) == ((ErrorCode.none, -1, -1) if version >= 9 else unsupported)
    assert ask(-6) == unsupported
    assert ask(1001) == (ErrorCode.none, 1, 1001)
    assert ask(1003) == (ErrorCode.none, -1, -1)
    assert ask(-3, partition=1) == ((ErrorCode.none, -1, -1) if version >= 7 else unsupported)
    assert ask(-1, partition=2)[0] == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("version", versions_of(DELETE_RECORDS))
def test_every_version_of_delete_records(client: ProtocolClient, topic: str, version: int) -> None:
    produce(client, topic)

    def delete(offset: int, partition: int = 0, name: str = topic) -> tuple[int, int]:
        wanted = {"name": name, "partitions": [{"partition_index": partition, "offset": offset}]}
        answer = client.call(DELETE_RECORDS, version, {"topics": [wanted], "timeout": 1000})
        found = answer["topics"][0]["partitions"][0]
        return found["error_code"], found["low_watermark"]

    assert delete(1) == (ErrorCode.none, 1)
    assert delete(4) == (ErrorCode.offset_out_of_range, -1)
    assert delete(0, partition=2) == (ErrorCode.unknown_topic_or_partition, -1)
    assert produce(client, topic)["log_start_offset"] == 1
    assert delete(-1) == (ErrorCode.none, 6)
    answer = fetched(client.call(FETCH, 16, fetch_body(client, topic, 5)))
    assert (answer["error_code"], answer["high_watermark"]) == (ErrorCode.offset_out_of_range, 6)
    assert fetched(client.call(FETCH, 16, fetch_body(client, topic, 6)))["log_start_offset"] == 6


@pytest.mark.parametrize("version", versions_of(OFFSET_FOR_LEADER_EPOCH))
def test_every_version_of_offset_for_leader_epoch(client: ProtocolClient, topic: str, version: int) -> None:
    produce(client, topic)

    def end_of(epoch: int, partition: int = 0, current: int = -1) -> tuple[int, int, int]:
        wanted = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
        body = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [wanted]}]}
        found = client.call(OFFSET_FOR_LEADER_EPOCH, version, body)["topics"][0]["partitions"][0]
        return found["error_code"], found["leader_epoch"], found["end_offset"]

    assert end_of(0) == (ErrorCode.none, 0, 3)
    assert end_of(1) == (ErrorCode.none, -1, -1)
    assert end_of(0, partition=2) == (ErrorCode.unknown_topic_or_partition, -1, -1)
    assert end_of(0, current=1) == (ErrorCode.unknown_leader_epoch, -1, -1)


@pytest.mark.parametrize("version", versions_of(PRODUCE))
def test_every_version_of_produce_names_the_records_that_are_refused(client: ProtocolClient, version: int) -> None:
    name = f"compacted-{uuid.uuid4()}"
    create(client, name, 1, configs=[{"name": "cleanup.policy", "value": "compact"}])
    records = bytes(encode_batch([BatchRecord(0, b"k", b"v"), BatchRecord(0, None, b"v")]))
    data = [{"name": name, "partition_data": [{"index": 0, "records": records}]}]
    answer = produce(client, name, version, topic_data=data)
    assert (answer["error_code"], answer["base_offset"]) == (ErrorCode.invalid_record, -1)
    if version >= 8:
        assert [one["batch_index"] for one in answer["record_errors"]] == [1]
        assert "compacted" in answer["error_message"]


def test_a_batch_of_a_transaction_that_is_cut_within_its_header_is_refused(client: ProtocolClient, topic: str) -> None:
    batch = encode_batch([BatchRecord(0, b"k", b"v")], attributes=TRANSACTIONAL, producer_id=7, base_sequence=0)
    data = [{"name": topic, "partition_data": [{"index": 0, "records": bytes(batch[:40])}]}]
    assert produce(client, topic, topic_data=data)["error_code"] == ErrorCode.corrupt_message


@pytest.mark.parametrize("version", versions_of(PRODUCE))
def test_every_version_of_produce_gives_the_time_of_the_append(client: ProtocolClient, version: int) -> None:
    name = f"append-time-{uuid.uuid4()}"
    create(client, name, 1, configs=[{"name": "message.timestamp.type", "value": "LogAppendTime"}])
    time = produce(client, name, version)["log_append_time"]
    [[found]] = [
        one["partitions"]
        for one in client.call(
            LIST_OFFSETS,
            9,
            {"replica_id": -1, "topics": [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -3}]}]},
        )["topics"]
    ]
    assert (found["offset"], found["timestamp"]) == (0, time)
    assert time > 1_000_000_000_000


@pytest.mark.parametrize("version", [11, 16])
def test_a_partition_that_is_fetched_twice_is_answered_once_as_it_was_wanted_last(
    client: ProtocolClient, topic: str, version: int
) -> None:
    produce(client, topic)
    body = fetch_body(client, topic, 0)
    [wanted] = body["topics"]
    body["topics"] = [fetch_body(client, topic, 7)["topics"][0], wanted | {"partitions": wanted["partitions"] * 2}]
    [answer] = client.call(FETCH, version, body)["responses"]
    assert [(one["error_code"], len(one["records"])) for one in answer["partitions"]] == [(0, len(RECORDS))]


@pytest.mark.parametrize("version", versions_of(METADATA))
def test_every_version_of_metadata(client: ProtocolClient, topic: str, version: int) -> None:
    answer = client.call(METADATA, version, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})
    assert [broker["host"] for broker in answer["brokers"]] == ["127.0.0.1"]
    [found] = answer["topics"]
    assert (found["name"], [one["partition_index"] for one in found["partitions"]]) == (topic, [0, 1])
    everything = client.call(METADATA, version, {"topics": [] if version == 0 else None})
    assert topic in [one["name"] for one in everything["topics"]]
    illegal = client.call(METADATA, version, {"topics": [{"name": "a b"}]})["topics"][0]
    assert illegal["error_code"] == ErrorCode.invalid_topic_exception
    if version >= 4:
        missing = {"topics": [{"name": "no-such-topic"}], "allow_auto_topic_creation": False}
        assert (
            client.call(METADATA, version, missing)["topics"][0]["error_code"] == ErrorCode.unknown_topic_or_partition
        )


def test_a_missing_topic_is_created_where_the_request_allows_it(client: ProtocolClient) -> None:
    name = f"auto-{uuid.uuid4()}"
    answer = client.call(METADATA, 12, {"topics": [{"name": name}], "allow_auto_topic_creation": True})
    assert [len(one["partitions"]) for one in answer["topics"]] == [1]


def test_a_topic_is_found_by_its_id(client: ProtocolClient, topic: str) -> None:
    wanted = topic_id(client, topic)
    assert client.call(METADATA, 12, {"topics": [{"topic_id": wanted, "name": None}]})["topics"][0]["name"] == topic
    unknown = client.call(METADATA, 12, {"topics": [{"topic_id": uuid.uuid4(), "name": None}]})["topics"][0]
    assert unknown["error_code"] == ErrorCode.unknown_topic_id


@pytest.mark.parametrize("version", versions_of(OFFSET_COMMIT))
def test_every_version_of_offset_commit(client: ProtocolClient, topic: str, version: int) -> None:
    group = f"group-{uuid.uuid4()}"

    def commit(offset: int, **settings: object) -> int:
        wanted = {"partition_index": 1, "committed_offset": offset, "committed_metadata": "note"} | settings
        named = {"name": topic, "topic_id": topic_id(client, topic), "partitions": [wanted]}
        body = {"group_id": group, "topics": [named]} | settings
        code: int = client.call(OFFSET_COMMIT, version, body)["topics"][0]["partitions"][0]["error_code"]
        return code

    assert commit(4) == ErrorCode.none
    assert commit(5) == ErrorCode.none
    assert commit(6, partition_index=9) == ErrorCode.unknown_topic_or_partition
    assert commit(6, member_id="someone", generation_id_or_member_epoch=3) == ErrorCode.unknown_member_id
    assert commit(6, generation_id_or_member_epoch=3) == ErrorCode.unknown_member_id
    missing = ErrorCode.group_id_not_found if version >= 9 else ErrorCode.illegal_generation
    assert commit(6, generation_id_or_member_epoch=3, group_id=f"new-{group}") == missing
    assert commit(6, committed_metadata="x" * 5000) == ErrorCode.offset_metadata_too_large
    assert commit(6, group_id="") == ErrorCode.none
    assert positions(client, 7, group, topic) == [(0, -1, ""), (1, 5, "note")]


def positions(client: ProtocolClient, version: int, group: str, topic: str | None) -> list[tuple[int, int, str]]:
    named = {"name": topic, "topic_id": topic_id(client, topic or ""), "partition_indexes": [0, 1]}
    topics = None if topic is None else [named]
    wanted = {"group_id": group, "topics": topics}
    answer = client.call(OFFSET_FETCH, version, wanted if version < 8 else {"groups": [wanted]})
    found = answer["groups"][0] if version >= 8 else answer
    partitions = [one for topic in found["topics"] for one in topic["partitions"]]
    assert all(one["error_code"] == ErrorCode.none for one in partitions)
    return [(one["partition_index"], one["committed_offset"], one["metadata"]) for one in partitions]


@pytest.mark.parametrize("version", versions_of(OFFSET_FETCH))
def test_every_version_of_offset_fetch(client: ProtocolClient, topic: str, version: int) -> None:
    group = f"group-{uuid.uuid4()}"
    wanted = {"partition_index": 1, "committed_offset": 8, "committed_metadata": None}
    client.call(OFFSET_COMMIT, 9, {"group_id": group, "topics": [{"name": topic, "partitions": [wanted]}]})
    assert positions(client, version, group, topic) == [(0, -1, ""), (1, 8, "")]
    if version >= 2:
        assert positions(client, version, group, None) == [(1, 8, "")]


def test_offsets_of_an_unknown_topic_id_are_refused(client: ProtocolClient) -> None:
    wanted = {"topic_id": uuid.uuid4(), "partition_indexes": [0]}
    answer = client.call(OFFSET_FETCH, 10, {"groups": [{"group_id": "any", "topics": [wanted]}]})
    [found] = answer["groups"][0]["topics"][0]["partitions"]
    assert (found["error_code"], found["committed_offset"]) == (ErrorCode.unknown_topic_id, -1)
    wanted = {"topic_id": uuid.uuid4(), "partitions": [{"partition_index": 0, "committed_offset": 1}]}
    answer = client.call(OFFSET_COMMIT, 10, {"group_id": "any", "topics": [wanted]})
    assert answer["topics"][0]["partitions"][0]["error_code"] == ErrorCode.unknown_topic_id


def test_offset_delete(client: ProtocolClient, topic: str) -> None:
    def delete(group: str) -> Message:
        wanted = {"name": topic, "partitions": [{"partition_index": index} for index in (0, 1)]}
        return client.call(OFFSET_DELETE, 0, {"group_id": group, "topics": [wanted]})

    group = f"group-{uuid.uuid4()}"
    assert delete(group)["error_code"] == ErrorCode.group_id_not_found
    assert delete("")["error_code"] == ErrorCode.invalid_group_id
    wanted = {"partition_index": 1, "committed_offset": 8, "committed_metadata": None}
    client.call(OFFSET_COMMIT, 9, {"group_id": group, "topics": [{"name": topic, "partitions": [wanted]}]})
    [answer] = delete(group)["topics"]
    assert [(one["partition_index"], one["error_code"]) for one in answer["partitions"]] == [(0, 0), (1, 0)]
    assert positions(client, 7, group, topic) == [(0, -1, ""), (1, -1, "")]


@pytest.mark.parametrize("version", versions_of(FIND_COORDINATOR))
def test_every_version_of_find_coordinator(client: ProtocolClient, version: int) -> None:
    groups = client.call(FIND_COORDINATOR, version, {"key": "g", "key_type": 0, "coordinator_keys": ["g"]})
    found = groups["coordinators"][0] if version >= 4 else groups
    assert (found["error_code"], found["node_id"], found["host"]) == (ErrorCode.none, 1, "127.0.0.1")
    for key_type, code in ((1, ErrorCode.none), (2, ErrorCode.invalid_request)) if version >= 1 else ():
        body = {"key": "t", "key_type": key_type, "coordinator_keys": ["t"]}
        answer = client.call(FIND_COORDINATOR, version, body)
        found = answer["coordinators"][0] if version >= 4 else answer
        assert (found["error_code"], found["node_id"]) == (code, 1 if code == ErrorCode.none else -1)


@pytest.mark.parametrize("version", versions_of(INIT_PRODUCER_ID))
def test_every_version_of_init_producer_id(client: ProtocolClient, version: int) -> None:
    body: Message = {"transactional_id": None, "transaction_timeout": 1000}
    first, second = (client.call(INIT_PRODUCER_ID, version, body) for _ in range(2))
    assert first["error_code"] == second["error_code"] == ErrorCode.none
    assert 0 <= first["producer_id"] < second["producer_id"]


@pytest.mark.parametrize("version", versions_of(CREATE_TOPICS))
def test_every_version_of_create_topics(client: ProtocolClient, version: int) -> None:
    name = f"made-{uuid.uuid4()}"
    assert create(client, name, 2, version, configs=[{"name": "retention.ms", "value": "5"}])["error_code"] == 0
    assert create(client, name, 2, version)["error_code"] == ErrorCode.topic_already_exists
    assert create(client, name.replace("-", "."), 2, version)["error_code"] == ErrorCode.none
    assert create(client, name.replace("-", "_"), 2, version)["error_code"] == ErrorCode.invalid_topic_exception
    assigned = [{"partition_index": 0, "broker_ids": [1]}, {"partition_index": 1, "broker_ids": [1]}]
    by_hand = create(client, f"{name}-a", -1, version, replication_factor=-1, assignments=assigned)
    assert by_hand["error_code"] == ErrorCode.none
    assigned[0]["broker_ids"] = [1, 2]
    by_hand = create(client, f"{name}-b", -1, version, replication_factor=-1, assignments=assigned)
    assert by_hand["error_code"] == ErrorCode.invalid_replica_assignment
    body = {"topics": [{"name": f"{name}-c", "num_partitions": 1, "replication_factor": 1}], "validate_only": True}
    for _ in range(2):
        [checked] = client.call(CREATE_TOPICS, version, body)["topics"]
        assert checked["error_code"] == ErrorCode.none
        if version >= 5:
            assert (checked["num_partitions"], checked["replication_factor"]) == (1, 1)
            assert "retention.ms" in [entry["name"] for entry in checked["configs"]]
    twice = client.call(CREATE_TOPICS, version, {"topics": body["topics"] * 2})["topics"]
    assert [one["error_code"] for one in twice] == [ErrorCode.invalid_request] * 2
    assert create(client, f"{name}-d", 1_000_000, version)["error_code"] == ErrorCode.policy_violation


@pytest.mark.parametrize("version", versions_of(DELETE_TOPICS))
def test_every_version_of_delete_topics(client: ProtocolClient, topic: str, version: int) -> None:
    body = {"topic_names": [topic], "topics": [{"name": topic}], "timeout": 1000}
    codes = [client.call(DELETE_TOPICS, version, body)["responses"][0]["error_code"] for _ in range(2)]
    assert codes == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]


@pytest.mark.parametrize("version", versions_of(CREATE_PARTITIONS))
def test_every_version_of_create_partitions(client: ProtocolClient, topic: str, version: int) -> None:
    def grow(count: int, **settings: object) -> int:
        wanted: Message = {"name": topic, "count": count, "assignments": None} | settings
        answer = client.call(CREATE_PARTITIONS, version, {"topics": [wanted], "timeout": 1} | settings)
        code: int = answer["results"][0]["error_code"]
        return code

    assert grow(4, validate_only=True) == ErrorCode.none
    assert grow(4) == ErrorCode.none
    assert grow(4) == ErrorCode.invalid_partitions
    assert grow(5, assignments=[{"broker_ids": [7]}]) == ErrorCode.invalid_replica_assignment
    assert produce(client, topic, partition=3)["error_code"] == ErrorCode.none


@pytest.mark.parametrize("version", versions_of(DESCRIBE_CONFIGS))
def test_every_version_of_describe_configs(client: ProtocolClient, version: int) -> None:
    name = f"configured-{uuid.uuid4()}"
    create(client, name, 1, configs=[{"name": "retention.ms", "value": "5"}])

    def describe(kind: int, resource: str, keys: list[str] | None = None) -> Message:
        wanted = {"resource_type": kind, "resource_name": resource, "configuration_keys": keys}
        answer: Message = client.call(DESCRIBE_CONFIGS, version, {"resources": [wanted]})["results"][0]
        return answer

    [one] = describe(2, name, ["retention.ms"])["configs"]
    assert (one["name"], one["value"], one["config_source"]) == ("retention.ms", "5", 1)
    assert len(describe(2, name)["configs"]) > 20
    assert describe(4, "1")["error_code"] == ErrorCode.none
    assert describe(4, "2")["error_code"] == ErrorCode.invalid_request
    assert describe(2, "missing")["error_code"] == ErrorCode.unknown_topic_or_partition
    assert describe(8, "1")["error_code"] == ErrorCode.invalid_request


@pytest.mark.parametrize("version", versions_of(DESCRIBE_CLUSTER))
def test_every_version_of_describe_cluster(client: ProtocolClient, version: int) -> None:
    answer = client.call(DESCRIBE_CLUSTER, version, {})
    assert [one["broker_id"] for one in answer["brokers"]] == [1]
    assert answer["cluster_id"] == client.call(METADATA, 12, {"topics": []})["cluster_id"]


def test_a_refused_produce_says_why(client: ProtocolClient, topic: str) -> None:
    assert produce(client, topic, acks=2)["error_code"] == ErrorCode.invalid_required_acks
    assert produce(client, topic, partition=5)["error_code"] == ErrorCode.unknown_topic_or_partition
    assert produce(client, "no-such-topic")["error_code"] == ErrorCode.unknown_topic_or_partition


def test_acks_0_has_no_answer_and_the_records_are_there(client: ProtocolClient, topic: str) -> None:
    data = {"name": topic, "partition_data": [{"index": 0, "records": RECORDS}]}
    client.send(PRODUCE, 11, {"acks": 0, "timeout": 1000, "topic_data": [data]})
    assert produce(client, topic)["base_offset"] == 3


def test_requests_in_one_go_are_answered_in_order(client: ProtocolClient, topic: str) -> None:
    body = fetch_body(client, topic, 0, max_wait=200)
    client.send(FETCH, 16, body)
    client.send(LIST_OFFSETS, 9, {"replica_id": -1, "topics": []})
    first, second = client.receive_frame(), client.receive_frame()
    assert struct.unpack_from(">i", second)[0] == struct.unpack_from(">i", first)[0] + 1


@pytest.mark.parametrize("piece", [7, 3_000, 1 << 20])
def test_requests_of_all_sizes_are_answered_in_order_however_they_arrive(
    client: ProtocolClient, topic: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = bytearray()
    monkeypatch.setattr(client, "send_frame", lambda content: sent.extend(struct.pack(">i", len(content)) + content))
    sizes = (10, 16_100, 16_300, 20_000, 70_000, 10)
    for size in sizes:
        records = bytes(encode_batch([BatchRecord(1000, b"k", b"v" * size)]))
        data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
        client.send(PRODUCE, 11, {"acks": -1, "timeout": 1000, "topic_data": data})
    monkeypatch.undo()
    for at in range(0, len(sent), piece):
        client.socket.sendall(sent[at : at + piece])
    numbers = [struct.unpack_from(">i", client.receive_frame())[0] for _ in sizes]
    assert numbers == list(range(numbers[0], numbers[0] + len(sizes)))
    assert fetched(client.call(FETCH, 16, fetch_body(client, topic, 0)))["high_watermark"] == len(sizes)


def test_a_waiting_fetch_ends_when_its_bytes_are_there(
    embedded_broker: BrokerProcess, client: ProtocolClient, topic: str
) -> None:
    client.send(FETCH, 16, fetch_body(client, topic, 0, max_wait=15_000, min_bytes=2 * len(RECORDS)))
    with ProtocolClient(embedded_broker.bootstrap_servers) as other:
        produce(other, topic)
        produce(other, topic)
    assert len(fetched(client.receive(FETCH, 16))["records"]) == 2 * len(RECORDS)


def test_a_waiting_fetch_counts_the_bytes_of_all_partitions(
    embedded_broker: BrokerProcess, client: ProtocolClient
) -> None:
    name = f"topic-{uuid.uuid4()}"
    create(client, name, 3)
    body = fetch_body(client, name, 0, max_wait=15_000, min_bytes=3 * len(RECORDS))
    [wanted] = body["topics"][0]["partitions"]
    body["topics"][0]["partitions"] = [wanted | {"partition": number} for number in range(3)]
    client.send(FETCH, 16, body)
    with ProtocolClient(embedded_broker.bootstrap_servers) as other:
        for partition in (2, 0, 2):
            produce(other, name, partition=partition)
    answers = client.receive(FETCH, 16)["responses"][0]["partitions"]
    assert [len(one["records"]) for one in answers] == [len(RECORDS), 0, 2 * len(RECORDS)]
    assert [one["high_watermark"] for one in answers] == [3, 0, 6]


def test_a_waiting_fetch_ends_when_its_topic_is_deleted(
    embedded_broker: BrokerProcess, client: ProtocolClient, topic: str
) -> None:
    client.send(FETCH, 16, fetch_body(client, topic, 0, max_wait=15_000))
    with ProtocolClient(embedded_broker.bootstrap_servers) as other:
        other.call(DELETE_TOPICS, 6, {"topics": [{"name": topic}]})
    assert fetched(client.receive(FETCH, 16))["error_code"] == ErrorCode.unknown_topic_or_partition


def test_faults_of_a_fetch(client: ProtocolClient, topic: str) -> None:
    assert fetched(client.call(FETCH, 16, fetch_body(client, topic, 9)))["error_code"] == ErrorCode.offset_out_of_range
    assert fetched(client.call(FETCH, 16, fetch_body(client, topic, -1)))["error_code"] == ErrorCode.offset_out_of_range
    body = fetch_body(client, topic, 0)
    body["topics"][0]["partitions"][0]["current_leader_epoch"] = 5
    assert fetched(client.call(FETCH, 16, body))["error_code"] == ErrorCode.unknown_leader_epoch
    body["topics"][0]["topic_id"] = uuid.uuid4()
    assert fetched(client.call(FETCH, 16, body))["error_code"] == ErrorCode.unknown_topic_id
    answer = client.call(FETCH, 16, fetch_body(client, topic, 0, session_id=3))
    assert answer["error_code"] == ErrorCode.fetch_session_id_not_found


def test_the_first_batch_comes_even_where_it_is_larger_than_asked(client: ProtocolClient, topic: str) -> None:
    for _ in range(3):
        produce(client, topic)
    body = fetch_body(client, topic, 0, max_bytes=1)
    assert len(fetched(client.call(FETCH, 16, body))["records"]) == len(RECORDS)
    body = fetch_body(client, topic, 0)
    body["topics"][0]["partitions"][0]["partition_max_bytes"] = 2 * len(RECORDS) + 1
    assert 0 < len(fetched(client.call(FETCH, 16, body))["records"]) <= 2 * len(RECORDS)


def test_only_the_first_batch_of_a_response_may_be_larger_than_it(client: ProtocolClient, topic: str) -> None:
    """librdkafka takes no response that exceeds its `fetch.max.bytes` by more than the first batch does."""
    for partition in (0, 1):
        produce(client, topic, partition=partition)
    # What is left out is there: the response waits for nothing more.
    sizes = {"max_bytes": len(RECORDS) + 1, "min_bytes": len(RECORDS) + 1, "max_wait": 60_000}
    body = fetch_body(client, topic, 0, **sizes)
    body["topics"][0]["partitions"].append(body["topics"][0]["partitions"][0] | {"partition": 1})
    [answer] = client.call(FETCH, 16, body)["responses"]
    assert [len(partition["records"] or b"") for partition in answer["partitions"]] == [len(RECORDS), 0]


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, 2**31 - 1, 101 * 1024 * 1024])
def test_a_frame_of_an_impossible_size_closes_its_connection_only(
    embedded_broker: BrokerProcess, client: ProtocolClient, size: int
) -> None:
    client.socket.sendall(struct.pack(">i", size))
    assert is_closed(client)
    assert serves(embedded_broker)


@pytest.mark.parametrize(
    ("key", "version"), [(99, 0), (-1, 0), (METADATA, 99), (METADATA, -1), (PRODUCE, 2), (76, 0), (88, 0)]
)
def test_an_api_that_is_not_served_closes_the_connection(
    embedded_broker: BrokerProcess, client: ProtocolClient, key: int, version: int
) -> None:
    client.send_frame(struct.pack(">hhih", key, version, 1, -1) + b"\x00" * 20)
    assert is_closed(client)
    assert serves(embedded_broker)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    api=st.sampled_from(sorted(set(APIS) - {PRODUCE})),
    data=st.data(),
    garbage=st.binary(max_size=80),
    count=st.sampled_from([b"", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff" * 12]),
)
def test_garbage_never_stops_the_broker(
    embedded_broker: BrokerProcess, api: int, data: st.DataObject, garbage: bytes, count: bytes
) -> None:
    version = data.draw(st.sampled_from(versions_of(api)))
    with ProtocolClient(embedded_broker.bootstrap_servers) as client:
        client.send_frame(client.header(api, version) + count + garbage)
    assert serves(embedded_broker)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(garbage=st.binary(max_size=200), at=st.integers(0, 1000), version=st.sampled_from(versions_of(PRODUCE)))
def test_damaged_records_never_stop_the_broker_nor_enter_the_log(
    embedded_broker: BrokerProcess, client: ProtocolClient, topic: str, garbage: bytes, at: int, version: int
) -> None:
    damaged = bytearray(RECORDS)
    at %= len(damaged)
    damaged[at : at + len(garbage)] = garbage
    data = {"name": topic, "partition_data": [{"index": 0, "records": bytes(damaged)}]}
    answer = client.call(PRODUCE, version, {"acks": -1, "timeout": 1, "topic_data": [data]})["responses"][0]
    # The first 16 bytes are the broker's to write, and nothing checks them.
    if answer["partition_responses"][0]["error_code"] == ErrorCode.none:
        assert bytes(damaged[17:]) == RECORDS[17:]
    assert serves(embedded_broker)


def test_a_client_that_leaves_in_the_middle_of_a_frame_or_a_wait_is_forgotten(
    embedded_broker: BrokerProcess, topic: str
) -> None:
    for _ in range(20):
        with ProtocolClient(embedded_broker.bootstrap_servers) as client:
            client.socket.sendall(struct.pack(">i", 50_000_000) + b"half")
        with ProtocolClient(embedded_broker.bootstrap_servers) as client:
            client.send(FETCH, 16, fetch_body(client, topic, 0, max_wait=60_000))
    with ProtocolClient(embedded_broker.bootstrap_servers) as client:
        assert produce(client, topic)["error_code"] == ErrorCode.none


def test_a_client_that_does_not_read_does_not_hold_up_others(
    embedded_broker: BrokerProcess, client: ProtocolClient, topic: str
) -> None:
    big = bytes(encode_batch([BatchRecord(0, None, b"x" * 900_000)]))
    for _ in range(30):
        data = {"name": topic, "partition_data": [{"index": 0, "records": big}]}
        client.call(PRODUCE, 11, {"acks": -1, "timeout": 1, "topic_data": [data]})
    body = fetch_body(client, topic, 0, max_bytes=1 << 25)
    body["topics"][0]["partitions"][0]["partition_max_bytes"] = 1 << 25
    with ProtocolClient(embedded_broker.bootstrap_servers) as slow:
        for _ in range(20):
            slow.send(FETCH, 16, body)
        assert serves(embedded_broker)
        sizes = [len(slow.receive_frame()) for _ in range(20)]
    assert sizes == [sizes[0]] * 20
    assert sizes[0] > 7_000_000
