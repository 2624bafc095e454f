"""The configuration APIs: DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.

Contains the values that a client may change for topics and for the broker, and the source of each value. Not here: the
keys of topics and the checks of their values (topic_config.py).

Rules: a change takes effect at once and is stored before it is answered. Of the broker's keys, only the topic defaults
can change at run time; all others need a restart, and a change is rejected with this reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Final

from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ApiError
from penstock_broker.state import NODE_ID, BrokerState, Request
from penstock_broker.topic_config import BROKER_KEYS, TOPIC_CONFIGS, ConfigType, check_topic_configs
from penstock_broker.topics import ALL_BROKERS
from penstock_broker.wire.codec import LazyArray, Message
from penstock_broker.wire.error_codes import ErrorCode


class _Source(IntEnum):
    """The source of a value."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    COMMAND_LINE = 4
    DEFAULT = 5


class _Resource(IntEnum):
    TOPIC = 2
    BROKER = 4
    GROUP = 32


class _Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def describe_configs(state: BrokerState, request: Request) -> Message:
    """Answer DescribeConfigs for topics, groups and the broker."""
    return {"results": LazyArray(request.body["resources"], partial(_describe, state))}


def _describe(state: BrokerState, resource: Message) -> Message:
    answer: Message = {"resource_type": resource["resource_type"], "resource_name": resource["resource_name"]}
    try:
        entries = _entries(state, resource)
    except ApiError as error:
        return answer | {"error_code": error.code, "error_message": error.message}
    keys: list[str] | None = resource["configuration_keys"]
    # Java's older admin client sends an empty list for all keys, and Kafka's brokers accept that.
    return answer | {"configs": [entry for entry in entries if not keys or entry["name"] in keys]}


def _entries(state: BrokerState, resource: Message) -> list[Message]:
    name: str = resource["resource_name"]
    match resource["resource_type"]:
        case _Resource.TOPIC:
            return topic_config_entries(state, state.topics.by_name(name).configs)
        case _Resource.GROUP:
            return [_static_entry(key, _group_key(key), state.config) for key in _GROUP_KEYS]
        case _Resource.BROKER if name == ALL_BROKERS:
            return [
                _entry(key, BROKER_KEYS[key], {_Source.ALL_BROKERS: {key: value}})
                for key, value in state.topics.dynamic_defaults(ALL_BROKERS).items()
            ]
        case _Resource.BROKER:
            _check_broker(name)
            entries = [_static_entry(key, broker_key, state.config) for key, broker_key in _STATIC_KEYS.items()]
            return entries + [
                _entry(key, topic_key, {source: of for source, of in _broker_layers(state).items() if key in of})
                for key, topic_key in BROKER_KEYS.items()
            ]
        case other:
            raise ApiError(ErrorCode.invalid_request, f"resources of type {other} have no configuration here")


def _check_broker(name: str) -> None:
    if name != str(NODE_ID):
        raise ApiError(ErrorCode.invalid_request, f"there is no broker {name!r}; the only one is {NODE_ID}")


def _broker_layers(state: BrokerState) -> dict[_Source, Mapping[str, str]]:
    """Return values by the broker's names of the keys, highest precedence first."""
    static = state.config.topic_defaults
    return {
        _Source.BROKER: state.topics.dynamic_defaults(str(NODE_ID)),
        _Source.ALL_BROKERS: state.topics.dynamic_defaults(ALL_BROKERS),
        _Source.COMMAND_LINE: {name: static[key] for name, key in BROKER_KEYS.items() if key in static},
        _Source.DEFAULT: {name: TOPIC_CONFIGS[key].default for name, key in BROKER_KEYS.items()},
    }


def topic_config_entries(state: BrokerState, configs: Mapping[str, str]) -> list[Message]:
    """Return the configuration of a topic, in the form of DescribeConfigs.

    Args:
        state: the broker.
        configs: the topic's own configuration.
    """
    layers = _broker_layers(state)
    broker_names = {key: name for name, key in BROKER_KEYS.items()}
    entries = []
    for key, known in TOPIC_CONFIGS.items():
        if known.is_internal and key not in configs:
            continue
        name = broker_names.get(key)
        of_broker = {source: values for source, values in layers.items() if name in values}
        if key in configs:
            entries.append(_entry(key, key, {_Source.TOPIC: configs}, name, of_broker))
        else:
            entries.append(_entry(key, key, {}, name, of_broker or {_Source.DEFAULT: {str(name): known.default}}))
    return entries


def _entry(
    name: str,
    topic_key: str,
    own: Mapping[_Source, Mapping[str, str]],
    broker_name: str | None = None,
    of_broker: Mapping[_Source, Mapping[str, str]] | None = None,
) -> Message:
    """Return one entry.

    Args:
        name: the name of the key.
        topic_key: the corresponding key of topics: the same key, or the one that it is the default of.
        own: values by the name of the key, highest precedence first.
        broker_name: the broker's name of the key.
        of_broker: values by that name, highest precedence first.
    """
    synonyms = [{"name": name, "value": values[name], "source": source} for source, values in own.items()]
    for source, values in (of_broker or {}).items():
        synonyms.append({"name": broker_name, "value": values[str(broker_name)], "source": source})
    return {
        "name": name,
        "value": synonyms[0]["value"],
        "read_only": False,
        "config_source": synonyms[0]["source"],
        "is_sensitive": False,
        "synonyms": synonyms,
        "config_type": TOPIC_CONFIGS[topic_key].type,
    }


@dataclass(frozen=True, slots=True)
class _StaticKey:
    """A key of the broker that only its command line sets."""

    type: ConfigType
    value: Callable[[BrokerConfig], object]


_STATIC_KEYS: Final[Mapping[str, _StaticKey]] = {
    "auto.create.topics.enable": _StaticKey(ConfigType.BOOLEAN, lambda config: str(config.auto_create_topics).lower()),
    "broker.id": _StaticKey(ConfigType.INT, lambda config: NODE_ID),
    "connections.max.idle.ms": _StaticKey(ConfigType.LONG, lambda config: config.connections_max_idle_ms),
    "default.replication.factor": _StaticKey(ConfigType.INT, lambda config: 1),
    "group.consumer.heartbeat.interval.ms": _StaticKey(
        ConfigType.INT, lambda config: config.group_consumer_heartbeat_interval_ms
    ),
    "group.consumer.session.timeout.ms": _StaticKey(
        ConfigType.INT, lambda config: config.group_consumer_session_timeout_ms
    ),
    "group.initial.rebalance.delay.ms": _StaticKey(
        ConfigType.INT, lambda config: config.group_initial_rebalance_delay_ms
    ),
    "group.max.session.timeout.ms": _StaticKey(ConfigType.INT, lambda config: config.group_max_session_timeout_ms),
    "group.max.size": _StaticKey(ConfigType.INT, lambda config: config.group_max_size),
    "group.min.session.timeout.ms": _StaticKey(ConfigType.INT, lambda config: config.group_min_session_timeout_ms),
    "group.streams.heartbeat.interval.ms": _StaticKey(
        ConfigType.INT, lambda config: config.group_streams_heartbeat_interval_ms
    ),
    "group.streams.initial.rebalance.delay.ms": _StaticKey(
        ConfigType.INT, lambda config: config.group_streams_initial_rebalance_delay_ms
    ),
    "group.streams.num.standby.replicas": _StaticKey(ConfigType.INT, lambda config: 0),
    "group.streams.session.timeout.ms": _StaticKey(
        ConfigType.INT, lambda config: config.group_streams_session_timeout_ms
    ),
    "log.cleaner.backoff.ms": _StaticKey(ConfigType.LONG, lambda config: config.log_cleaner_backoff_ms),
    "log.cleaner.dedupe.buffer.size": _StaticKey(ConfigType.LONG, lambda config: config.log_cleaner_dedupe_buffer_size),
    "log.dirs": _StaticKey(ConfigType.LIST, lambda config: config.data_dir),
    "log.flush.scheduler.interval.ms": _StaticKey(
        ConfigType.LONG, lambda config: config.log_flush_scheduler_interval_ms
    ),
    "log.initial.task.delay.ms": _StaticKey(ConfigType.LONG, lambda config: config.log_initial_task_delay_ms),
    "log.retention.check.interval.ms": _StaticKey(
        ConfigType.LONG, lambda config: config.log_retention_check_interval_ms
    ),
    "max.connections": _StaticKey(ConfigType.INT, lambda config: config.max_connections),
    "num.partitions": _StaticKey(ConfigType.INT, lambda config: config.num_partitions),
    "offsets.retention.check.interval.ms": _StaticKey(
        ConfigType.LONG, lambda config: config.offsets_retention_check_interval_ms
    ),
    "offsets.retention.minutes": _StaticKey(ConfigType.INT, lambda config: config.offsets_retention_minutes),
    "quota.window.num": _StaticKey(ConfigType.INT, lambda config: config.quota_window_num),
    "quota.window.size.seconds": _StaticKey(ConfigType.INT, lambda config: config.quota_window_size_seconds),
    "socket.request.max.bytes": _StaticKey(ConfigType.INT, lambda config: config.max_request_bytes),
    "transaction.max.timeout.ms": _StaticKey(ConfigType.INT, lambda config: config.transaction_max_timeout_ms),
    "transactional.id.expiration.ms": _StaticKey(ConfigType.INT, lambda config: config.transactional_id_expiration_ms),
}

_GROUP_KEYS: Final = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "streams.heartbeat.interval.ms",
    "streams.initial.rebalance.delay.ms",
    "streams.num.standby.replicas",
    "streams.session.timeout.ms",
)


def _group_key(name: str) -> _StaticKey:
    return _STATIC_KEYS[f"group.{name}"]


def _static_entry(name: str, key: _StaticKey, config: BrokerConfig) -> Message:
    return {
        "name": name,
        "value": str(key.value(config)),
        "read_only": True,
        "config_source": _Source.COMMAND_LINE,
        "is_sensitive": False,
        "config_type": key.type,
    }


def incremental_alter_configs(state: BrokerState, request: Request) -> Message:
    """Answer IncrementalAlterConfigs: set, delete, append to or subtract from single values."""
    return _alter(state, request, _incremented)


def alter_configs(state: BrokerState, request: Request) -> Message:
    """Answer AlterConfigs: replace all values of a resource."""
    return _alter(state, request, _replaced)


_Change = Callable[[Message, Mapping[str, str], Mapping[str, str]], dict[str, str | None]]
"""Computes new values of a resource.

The arguments are the request, the resource's own values, and its values with defaults.
"""


def _alter(state: BrokerState, request: Request, change: _Change) -> Message:
    resources: list[Message] = request.body["resources"]
    times = Counter((one["resource_type"], one["resource_name"]) for one in resources)
    responses = []
    for resource in resources:
        kind, name = resource["resource_type"], resource["resource_name"]
        answer: Message = {"resource_type": kind, "resource_name": name}
        try:
            if times[kind, name] > 1:
                raise ApiError(ErrorCode.invalid_request, "Each resource must appear at most once.")
            _alter_resource(state, resource, change, request.body["validate_only"])
        except ApiError as error:
            answer |= {"error_code": error.code, "error_message": error.message}
        responses.append(answer)
    return {"responses": responses}


def _alter_resource(state: BrokerState, resource: Message, change: _Change, validate_only: bool) -> None:
    _check_entries(resource["configs"])
    name: str = resource["resource_name"]
    match resource["resource_type"]:
        case _Resource.TOPIC:
            topic = state.topics.by_name(name)
            topic.check_not_internal()
            present = {**state.topics.default_configs, **topic.configs}
            configs = check_topic_configs(change(resource, topic.configs, present), state.topics.default_configs)
            if not validate_only:
                state.topics.set_configs(topic, configs)
        case _Resource.BROKER:
            if name != ALL_BROKERS:
                _check_broker(name)
            _check_dynamic({entry["name"] for entry in resource["configs"]})
            defaults = {key: state.topics.default_configs.get(of, "") for key, of in BROKER_KEYS.items()}
            configs = _check_broker_configs(change(resource, state.topics.dynamic_defaults(name), defaults))
            if not validate_only:
                state.topics.set_dynamic_defaults(name, configs)
        case _Resource.GROUP:
            raise ApiError(
                ErrorCode.invalid_request,
                f"the configuration of group {name!r} cannot be changed: all groups have the broker's",
            )
        case other:
            raise ApiError(ErrorCode.invalid_request, f"resources of type {other} have no configuration here")


def _check_entries(entries: list[Message]) -> None:
    names = Counter(entry["name"] for entry in entries)
    twice = sorted(name for name, times in names.items() if times > 1)
    if twice:
        raise ApiError(ErrorCode.invalid_request, f"Error due to duplicate config keys: {', '.join(twice)}")
    without = sorted(
        entry["name"]
        for entry in entries
        if entry["value"] is None and entry.get("config_operation") != _Operation.DELETE
    )
    if without:
        raise ApiError(ErrorCode.invalid_request, f"Null value not supported for: {', '.join(without)}")


def _check_dynamic(names: set[str]) -> None:
    fixed = sorted(names - set(BROKER_KEYS))
    if fixed:
        known = "; the broker's command line sets them" if set(fixed) <= set(_STATIC_KEYS) else ""
        raise ApiError(ErrorCode.invalid_request, f"Cannot update these configs dynamically: {', '.join(fixed)}{known}")


def _check_broker_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    for name, value in configs.items():
        check_topic_configs({BROKER_KEYS[name]: value}, {})
    return {name: value for name, value in configs.items() if value is not None}


def _replaced(resource: Message, own: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str | None]:
    return {entry["name"]: entry["value"] for entry in resource["configs"]}


def _incremented(resource: Message, own: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str | None]:
    changed: dict[str, str | None] = dict(own)
    for entry in resource["configs"]:
        name, value = entry["name"], entry["value"]
        match entry["config_operation"]:
            case _Operation.SET:
                changed[name] = value
            case _Operation.DELETE:
                changed.pop(name, None)
            case _Operation.APPEND | _Operation.SUBTRACT as operation:
                known = TOPIC_CONFIGS.get(BROKER_KEYS.get(name, name))
                if known is None or known.type != ConfigType.LIST:
                    raise ApiError(
                        ErrorCode.invalid_config,
                        f"Can't {_Operation(operation).name} to key {name} because its type is not LIST.",
                    )
                before = [each.strip() for each in present.get(name, known.default).split(",") if each.strip()]
                given = [each.strip() for each in value.split(",")]
                if operation == _Operation.APPEND:
                    after = before + [each for each in given if each not in before]
                else:
                    after = [each for each in before if each not in given]
                changed[name] = ",".join(after)
            case other:
                raise ApiError(ErrorCode.invalid_request, f"Unknown config operation type id: {other}")
    return changed
