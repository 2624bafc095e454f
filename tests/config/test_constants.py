"""Kafka's constants of the configuration: their values are accepted, and prefixes make keys of clients."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config import StreamsConfig
from penstock.config.constants import ConfigConstants
from penstock.plan.optimize import optimizations


@pytest.mark.parametrize(
    ("key", "constant", "meant"),
    [
        (StreamsConfig.DSL_STORE_FORMAT_CONFIG, StreamsConfig.DSL_STORE_FORMAT_HEADERS, "headers"),
        (StreamsConfig.DSL_STORE_FORMAT_CONFIG, StreamsConfig.DSL_STORE_FORMAT_DEFAULT, "default"),
        (StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, StreamsConfig.ROCKS_DB, "rocksdb"),
        (StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, StreamsConfig.IN_MEMORY, "in_memory"),
        (StreamsConfig.DEFAULT_DSL_STORE_CONFIG, StreamsConfig.DEFAULT_DSL_STORE, None),
        (StreamsConfig.GROUP_PROTOCOL_CONFIG, StreamsConfig.DEFAULT_GROUP_PROTOCOL, "classic"),
        (StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2, "exactly_once_v2"),
        ("auto.offset.reset", "LATEST", "latest"),
    ],
)
def test_the_constants_of_the_configuration_are_accepted(key: str, constant: str, meant: str | None) -> None:
    config = StreamsConfig({key: constant}, environment={})
    assert meant is None or config[key] == meant


def in_any_case(*values: str) -> list[str]:
    return [changed for value in values for changed in (value, value.upper(), value.lower(), value.title())]


VALUES: dict[str, list[Any]] = {
    "processing.guarantee": [StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2],
    "topology.optimization": [
        StreamsConfig.NO_OPTIMIZATION,
        StreamsConfig.OPTIMIZE,
        StreamsConfig.REUSE_KTABLE_SOURCE_TOPICS,
        StreamsConfig.MERGE_REPARTITION_TOPICS,
        StreamsConfig.SINGLE_STORE_SELF_JOIN,
    ],
    "default.dsl.store": [StreamsConfig.ROCKS_DB, StreamsConfig.IN_MEMORY, StreamsConfig.DEFAULT_DSL_STORE],
    "dsl.store.suppliers.class": [StreamsConfig.ROCKS_DB, StreamsConfig.IN_MEMORY, StreamsConfig.DEFAULT_DSL_STORE],
    "dsl.store.format": [StreamsConfig.DSL_STORE_FORMAT_DEFAULT, StreamsConfig.DSL_STORE_FORMAT_HEADERS],
    "group.protocol": [StreamsConfig.DEFAULT_GROUP_PROTOCOL],
    "upgrade.from": [
        value
        for name, value in vars(ConfigConstants).items()
        if name.startswith("UPGRADE_FROM_") and not name.endswith("_CONFIG")
    ],
    "rack.aware.assignment.strategy": [
        StreamsConfig.RACK_AWARE_ASSIGNMENT_STRATEGY_NONE,
        StreamsConfig.RACK_AWARE_ASSIGNMENT_STRATEGY_MIN_TRAFFIC,
        StreamsConfig.RACK_AWARE_ASSIGNMENT_STRATEGY_BALANCE_SUBTOPOLOGY,
    ],
    "built.in.metrics.version": [StreamsConfig.METRICS_LATEST],
    "default.interactive.query.isolation.level": [StreamsConfig.DEFAULT_INTERACTIVE_QUERY_ISOLATION_LEVEL_DEFAULT],
    "max.task.idle.ms": [StreamsConfig.MAX_TASK_IDLE_MS_DISABLED],
    "state.cleanup.dir.max.age.ms": [StreamsConfig.STATE_CLEANUP_DIR_MAX_AGE_MS_DISABLED],
}
"""The constants that are values, by their keys."""


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in VALUES.items() for value in values])
def test_each_constant_that_is_a_value_passes_the_check_of_its_key(key: str, value: Any) -> None:
    config = StreamsConfig({key: value}, environment={})
    assert optimizations(config) <= {value, *VALUES["topology.optimization"]}


def test_all_constants_are_keys_or_prefixes_or_values() -> None:
    values = {value for each in VALUES.values() for value in each}
    others = {
        name
        for name, value in vars(ConfigConstants).items()
        if isinstance(value, str) and not name.startswith("_") and value not in values
    }
    keys = {name for name in others if not name.endswith("_PREFIX")}
    assert {name for name in keys if not name.endswith("_CONFIG")} == {"WINDOWED_INNER_CLASS_SERDE"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("group.protocol", value) for value in in_any_case("classic", "streams")),
        *(("dsl.store.format", value) for value in in_any_case("default", "headers")),
    ],
)
def test_kafka_takes_the_values_of_these_keys_in_any_case(key: str, value: str) -> None:
    assert StreamsConfig({key: value}, environment={})[key] == value.lower()


NAMED = {name.removesuffix("_CONFIG"): key for name, key in vars(ConfigConstants).items() if name.endswith("_CONFIG")}
NAMED_OTHERWISE = {
    "METADATA_MAX_AGE": "metadata.max.age.ms",
    "METRIC_REPORTER_CLASSES": "metric.reporters",
    "RECEIVE_BUFFER": "receive.buffer.bytes",
    "SEND_BUFFER": "send.buffer.bytes",
    "TRANSACTIONAL_STATE_STORES": "enable.transactional.statestores",
    "WINDOW_STORE_CHANGE_LOG_ADDITIONAL_RETENTION_MS": "windowstore.changelog.additional.retention.ms",
}
"""Kafka's own exceptions."""


def as_constant(key: str) -> str:
    return key.replace(".", "_").upper()


def test_a_constant_has_the_name_of_its_key_and_each_key_one() -> None:
    others = {
        name: key
        for name, key in NAMED.items()
        if name.removesuffix("_CLASS") != as_constant(key).removesuffix("_CLASS")
    }
    assert others == NAMED_OTHERWISE
    assert len(set(NAMED.values())) == len(NAMED)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (StreamsConfig.consumer_prefix("a.b"), "consumer.a.b"),
        (StreamsConfig.main_consumer_prefix("a.b"), "main.consumer.a.b"),
        (StreamsConfig.restore_consumer_prefix("a.b"), "restore.consumer.a.b"),
        (StreamsConfig.global_consumer_prefix("a.b"), "global.consumer.a.b"),
        (StreamsConfig.producer_prefix("a.b"), "producer.a.b"),
        (StreamsConfig.admin_client_prefix("a.b"), "admin.a.b"),
        (StreamsConfig.topic_prefix("a.b"), "topic.a.b"),
        (StreamsConfig.client_tag_prefix("a.b"), "client.tag.a.b"),
    ],
)
def test_a_prefix_makes_the_key_of_one_kind_of_client(key: str, expected: str) -> None:
    assert key == expected
    assert StreamsConfig({key: "x"}, environment={}).client_config() == {key: "x"}
