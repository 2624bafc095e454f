"""The configuration keys specific to this host, and keys without effect on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.client.keys import check_client_keys
from penstock.client.settings import (
    ADMIN,
    CONSUMER,
    PRODUCER,
    RESTORE_CONSUMER,
    client_settings,
)
from penstock.config import StreamsConfig, warn_of_keys_without_effect, warn_without_effect
from penstock.config.definition import THREADS
from penstock.config.kafka_keys import EXACTLY_ONCE_V2
from penstock.errors import ConfigError, TopologyError
from penstock.plan.subtopology import BuiltTopology, SourceSpec
from penstock.state.open import ROCKSDB

_ASSIGNOR = "all instances compute the assignment by the assignor of Penstock"
_RACKS = "active tasks are assigned without regard to racks, standby tasks by rack.aware.assignment.tags"
CLIENT_KEYS_WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "group.remote.assignor": "it belongs to group.protocol=consumer",
    "max.poll.records": "set buffered.records.per.partition",
    "partition.assignment.strategy": _ASSIGNOR,
    "rack.aware.assignment.non_overlap_cost": _RACKS,
    "rack.aware.assignment.strategy": _RACKS,
    "rack.aware.assignment.traffic_cost": _RACKS,
    "task.assignor.class": _ASSIGNOR,
    "transactional.id": "it consists of the application.id and the id of this process",
}
"""Keys of Kafka Streams and its clients without a row and without effect here, with the reason and the alternative."""

_BY_BROKERS = "the brokers assign the tasks; set group.protocol=classic for it"
_STICKY = "the assignor of the brokers makes no warm-up copies; set group.protocol=classic for it"
_WITHOUT_EFFECT_ON_STREAMS: Final[Mapping[str, str]] = {
    "acceptable.recovery.lag": _STICKY,
    "heartbeat.interval.ms": "set streams.heartbeat.interval.ms of the group (kafka-configs.sh --entity-type groups)",
    "max.warmup.replicas": _STICKY,
    "num.standby.replicas": "set streams.num.standby.replicas of the group (kafka-configs.sh --entity-type groups)",
    "probing.rebalance.interval.ms": _STICKY,
    "rack.aware.assignment.tags": _BY_BROKERS,
    "session.timeout.ms": "set streams.session.timeout.ms of the group (kafka-configs.sh --entity-type groups)",
}
"""Keys without effect with group.protocol=streams: the reason, and the alternative."""

_COMMIT_INTERVAL_MS: Final = 30_000
_EXACTLY_ONCE_COMMIT_INTERVAL_MS: Final = 100


def check_keys(config: StreamsConfig) -> None:
    """Warn of keys without effect here. Raises ConfigError for unknown keys and invalid combinations."""
    warn_of_keys_without_effect(config, THREADS)
    for key, why in CLIENT_KEYS_WITHOUT_EFFECT.items():
        if key in config.given():
            warn_without_effect(key, why)
    check_client_keys(config, (CONSUMER, RESTORE_CONSUMER, PRODUCER, ADMIN))
    if config["penstock.state.base"] != ROCKSDB and "rocksdb.config.setter" in config.given():
        warn_without_effect(
            "rocksdb.config.setter", "the stores do not use RocksDB; set penstock.state.base=rocksdb too"
        )
    if config["penstock.state.shared"] and config["penstock.state.base"] == ROCKSDB:
        raise ConfigError(
            "penstock.state.shared needs penstock.state.base=lmdb: only one process at a time opens a base that is "
            "RocksDB, and RocksDB shares files between tasks only in one process. Remove one of both keys."
        )
    if config["penstock.state.remote.dir"] is None:
        if "penstock.state.remote.interval.ms" in config.given():
            warn_without_effect("penstock.state.remote.interval.ms", "set penstock.state.remote.dir too")
    elif config["penstock.state.base"] == ROCKSDB:
        raise ConfigError(
            "penstock.state.remote.dir needs penstock.state.base=lmdb: only one process at a time reads a base that is "
            "RocksDB. Remove one of both keys."
        )


def uses_streams_protocol(config: StreamsConfig) -> bool:
    """Return whether the brokers assign the tasks (group.protocol=streams)."""
    return bool(config["group.protocol"] == "streams")


def check_group_protocol(topology: BuiltTopology, config: StreamsConfig) -> None:
    """Check that group.protocol=streams supports the topology and the keys, and warn of keys without effect. Raises
    ConfigError for an unsupported key, TopologyError for a source with a pattern."""
    if not uses_streams_protocol(config):
        return
    settings = client_settings(config, CONSUMER)
    if config["partition.grouper"] is not None:
        raise ConfigError(
            "Brokers make the tasks of group.protocol=streams from the numbers of the partitions: set "
            "group.protocol=classic, or remove partition.grouper from the configuration."
        )
    for spec in topology.subtopologies:
        for node in spec.nodes:
            if isinstance(node, SourceSpec) and node.pattern is not None:
                raise TopologyError(
                    f"The source {node.name} reads the topics of a pattern, {node.pattern.pattern!r}, which brokers do "
                    "not support for group.protocol=streams: name the topics, or set group.protocol=classic."
                )
    for key, why in _WITHOUT_EFFECT_ON_STREAMS.items():
        if key in config.given() or key in settings:
            warn_without_effect(key, why)


def commit_interval_ms(config: StreamsConfig) -> int:
    """Return commit.interval.ms (ms). The default is that of Kafka Streams for the guarantee."""
    given: int | None = config["commit.interval.ms"]
    if given is not None:
        return given
    exactly_once = config["processing.guarantee"] == EXACTLY_ONCE_V2
    return _EXACTLY_ONCE_COMMIT_INTERVAL_MS if exactly_once else _COMMIT_INTERVAL_MS
