"""The APIs of configurations: of topics, of the broker and of groups."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from penstock_broker.process import BrokerProcess
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, PRODUCE
from tests.support.protocol_client import ProtocolClient, versions_of
from tests.support.record_batches import BatchRecord, encode_batch
from tests.support.topic_requests import create

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
OF_TOPIC, OF_BROKER, OF_ALL_BROKERS, OF_COMMAND_LINE, DEFAULT = range(1, 6)


def configured(client: ProtocolClient, name: str, **configs: str) -> Message:
    return create(client, name, 1, configs=[{"name": key, "value": value} for key, value in configs.items()])


def change(
    client: ProtocolClient, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> Message:
    entries = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": entries}
    body = {"resources": [resource], "validate_only": validate_only}
    answer: Message = client.call(INCREMENTAL_ALTER_CONFIGS, 1, body)["responses"][0]
    return answer


def described(client: ProtocolClient, kind: int, name: str, key: str) -> tuple[str, int]:
    wanted = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
    [entry] = client.call(DESCRIBE_CONFIGS, 4, {"resources": [wanted], "include_synonyms": True})["results"][0][
        "configs"
    ]
    return entry["value"], entry["config_source"]


def produce(client: ProtocolClient, topic: str, size: int) -> ErrorCode:
    records = bytes(encode_batch([BatchRecord(1000, b"k", b"v" * size)]))
    data = {"name": topic, "partition_data": [{"index": 0, "records": records}]}
    answer = client.call(PRODUCE, 11, {"acks": -1, "timeout": 1000, "topic_data": [data]})
    code: ErrorCode = answer["responses"][0]["partition_responses"][0]["error_code"]
    return code


def test_a_changed_limit_acts_at_once_and_a_deleted_one_no_longer(client: ProtocolClient, topic: str) -> None:
    assert produce(client, topic, 1000) == ErrorCode.none
    assert change(client, TOPIC, topic, ("max.message.bytes", SET, "500"))["error_code"] == ErrorCode.none
    assert described(client, TOPIC, topic, "max.message.bytes") == ("500", OF_TOPIC)
    assert produce(client, topic, 1000) == ErrorCode.message_too_large
    assert change(client, TOPIC, topic, ("max.message.bytes", DELETE, None))["error_code"] == ErrorCode.none
    assert described(client, TOPIC, topic, "max.message.bytes") == ("1048588", DEFAULT)
    assert produce(client, topic, 1000) == ErrorCode.none


def test_lists_are_appended_to_and_subtracted_from(client: ProtocolClient, topic: str) -> None:
    change(client, TOPIC, topic, ("cleanup.policy", APPEND, "compact"))
    assert described(client, TOPIC, topic, "cleanup.policy") == ("delete,compact", OF_TOPIC)
    change(client, TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete"))
    assert described(client, TOPIC, topic, "cleanup.policy") == ("compact", OF_TOPIC)


@pytest.mark.parametrize("version", [0, 1])
def test_every_version_of_incremental_alter_configs(client: ProtocolClient, topic: str, version: int) -> None:
    entry = {"name": "retention.ms", "config_operation": SET, "value": "5"}
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": [entry]}
    answer = client.call(INCREMENTAL_ALTER_CONFIGS, version, {"resources": [resource]})["responses"]
    assert [(one["error_code"], one["resource_name"]) for one in answer] == [(ErrorCode.none, topic)]
    assert described(client, TOPIC, topic, "retention.ms") == ("5", OF_TOPIC)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_alter_configs_replaces_all_values(client: ProtocolClient, topic: str, version: int) -> None:
    change(client, TOPIC, topic, ("retention.ms", SET, "5"))
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": [{"name": "segment.ms", "value": "7"}]}
    [answer] = client.call(ALTER_CONFIGS, version, {"resources": [resource]})["responses"]
    assert answer["error_code"] == ErrorCode.none
    assert described(client, TOPIC, topic, "segment.ms") == ("7", OF_TOPIC)
    # The broker of the test session keeps records for ever.
    assert described(client, TOPIC, topic, "retention.ms") == ("-1", OF_COMMAND_LINE)


def test_what_is_only_validated_changes_nothing(client: ProtocolClient, topic: str) -> None:
    answer = change(client, TOPIC, topic, ("segment.ms", SET, "7"), validate_only=True)
    assert answer["error_code"] == ErrorCode.none
    assert described(client, TOPIC, topic, "segment.ms") == ("604800000", DEFAULT)
    answer = change(client, TOPIC, topic, ("segment.ms", SET, "x"), validate_only=True)
    assert answer["error_code"] == ErrorCode.invalid_config


@pytest.mark.parametrize(
    ("key", "operation", "value", "code", "reason"),
    [
        ("retention.ms", SET, "x", ErrorCode.invalid_config, "Invalid value x for retention.ms"),
        ("retention", SET, "1", ErrorCode.invalid_config, "Unknown topic config name: retention"),
        ("retention.ms", SET, None, ErrorCode.invalid_request, "Null value not supported for: retention.ms"),
        ("retention.ms", APPEND, "1", ErrorCode.invalid_config, "Can't APPEND to key retention.ms"),
        ("retention.ms", 9, "1", ErrorCode.invalid_request, "Unknown config operation type id: 9"),
        ("compression.type", SET, "lz4", ErrorCode.invalid_config, "stores batches as producers compressed them"),
    ],
)
def test_a_refused_change_says_why_and_changes_nothing(
    client: ProtocolClient, topic: str, key: str, operation: int, value: str | None, code: ErrorCode, reason: str
) -> None:
    answer = change(client, TOPIC, topic, ("segment.ms", SET, "7"), (key, operation, value))
    assert answer["error_code"] == code
    assert reason in answer["error_message"]
    assert described(client, TOPIC, topic, "segment.ms") == ("604800000", DEFAULT)


def test_what_is_named_twice_or_is_missing_is_refused(client: ProtocolClient, topic: str) -> None:
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": []}
    answers = client.call(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource, resource]})["responses"]
    assert {one["error_code"] for one in answers} == {ErrorCode.invalid_request}
    twice = change(client, TOPIC, topic, ("segment.ms", SET, "7"), ("segment.ms", SET, "8"))
    assert twice["error_message"] == "Error due to duplicate config keys: segment.ms"
    missing = change(client, TOPIC, "missing", ("segment.ms", SET, "7"))
    assert missing["error_code"] == ErrorCode.unknown_topic_or_partition
    assert change(client, BROKER, "2")["error_code"] == ErrorCode.invalid_request
    assert change(client, 8, "1")["error_code"] == ErrorCode.invalid_request
    group = change(client, GROUP, "group", ("consumer.session.timeout.ms", SET, "50000"))
    assert "all groups have the broker's" in group["error_message"]
    internal = change(client, TOPIC, "__consumer_offsets", ("cleanup.policy", SET, "delete"))
    assert internal["error_code"] in (ErrorCode.invalid_topic_exception, ErrorCode.unknown_topic_or_partition)


def test_a_topic_with_a_refused_configuration_is_not_created_and_the_answer_says_why(client: ProtocolClient) -> None:
    answer = configured(client, f"refused-{uuid.uuid4()}", preallocate="true")
    assert answer["error_code"] == ErrorCode.invalid_config
    assert "it does not reserve space" in answer["error_message"]


def test_defaults_of_topics_change_at_run_time_and_survive_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with ProtocolClient(broker.bootstrap_servers) as client:
            configured(client, "topic")
            configured(client, "own", **{"max.message.bytes": "5000"})
            for name, value in (("", "700"), ("1", "500")):
                changed = change(client, BROKER, name, ("message.max.bytes", SET, value))
                assert changed["error_code"] == ErrorCode.none
        broker.kill()
        broker.start()
        with ProtocolClient(broker.bootstrap_servers) as client:
            assert described(client, BROKER, "1", "message.max.bytes") == ("500", OF_BROKER)
            assert described(client, BROKER, "", "message.max.bytes") == ("700", OF_ALL_BROKERS)
            assert described(client, TOPIC, "topic", "max.message.bytes") == ("500", OF_BROKER)
            assert produce(client, "topic", 1000) == ErrorCode.message_too_large
            assert produce(client, "own", 1000) == ErrorCode.none
            change(client, BROKER, "1", ("message.max.bytes", DELETE, None))
            assert described(client, TOPIC, "topic", "max.message.bytes") == ("700", OF_ALL_BROKERS)
            change(client, BROKER, "", ("message.max.bytes", DELETE, None))
            assert produce(client, "topic", 1000) == ErrorCode.none


def test_what_the_broker_cannot_change_at_run_time_is_refused(client: ProtocolClient) -> None:
    for name in ("num.partitions", "nonsense"):
        answer = change(client, BROKER, "1", (name, SET, "3"))
        assert answer["error_code"] == ErrorCode.invalid_request
        assert f"Cannot update these configs dynamically: {name}" in answer["error_message"]
    assert change(client, BROKER, "1", ("log.retention.ms", SET, "x"))["error_code"] == ErrorCode.invalid_config


def test_groups_have_the_configuration_of_the_broker(client: ProtocolClient) -> None:
    session = described(client, BROKER, "1", "group.consumer.session.timeout.ms")
    assert session == ("45000", OF_COMMAND_LINE)
    assert described(client, GROUP, "any", "consumer.session.timeout.ms") == session


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
