"""Settings of each client, derived from the configuration of the application.

The functions are pure and never connect. Precedence, lowest first: Penstock's defaults for the role; keys without a
prefix, for every client; keys with the prefix of the role (`consumer.`, `producer.`, `admin.`), for that role only;
forced settings of the role. Keys of Kafka's Java clients are translated if librdkafka has them under another name;
those without effect are dropped, with one log line each. References to secrets are resolved here, at the last moment.
Messages never contain values of keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from penstock.client.security import JAVA_KEYS, librdkafka_security
from penstock.config import FORMER_NAMES, StreamsConfig, warn_without_effect
from penstock.config.kafka_keys import ASSIGNED_BY_SPARK
from penstock.config.keys import KEYS
from penstock.config_providers import is_of_providers, providers, resolved
from penstock.errors import ConfigError

CONSUMER, PRODUCER, ADMIN = "consumer", "producer", "admin"
RESTORE_CONSUMER = "restore.consumer"
"""The role of consumers of changelog topics: as CONSUMER, with additional keys."""

_PREFIXES: Mapping[str, tuple[str, ...]] = {
    CONSUMER: ("consumer.", "main.consumer."),
    RESTORE_CONSUMER: ("consumer.", "restore.consumer."),
    PRODUCER: ("producer.",),
    ADMIN: ("admin.",),
}
_UNUSED_PREFIXES: Mapping[str, str] = {
    "restore.consumer.": "the prefix consumer. sets up all that reads topics",
    "global.consumer.": "the prefix consumer. sets up the consumers of global stores too",
}
"""Prefixes of Kafka Streams' clients that not all hosts have.

The values are the reasons why these have no effect there.
"""

_OTHER_PREFIXES = (*_UNUSED_PREFIXES, "topic.", "client.tag.", "penstock.", "spark.")

_COMMON_DEFAULTS: Mapping[str, Any] = {
    "socket.nagle.disable": True,
    "socket.keepalive.enable": True,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "topic.metadata.refresh.sparse": True,
}

_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    CONSUMER: {
        # Pause before a full partition queue is checked again; librdkafka's 1000 ms would stall a reader.
        "fetch.queue.backoff.ms": 10,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 100,
        "fetch.message.max.bytes": 4 * 1024 * 1024,
        # fetch.max.bytes keeps librdkafka's default, which is between message.max.bytes and the next line.
        "queued.min.messages": 100_000,
        "queued.max.messages.kbytes": 32 * 1024,
        "allow.auto.create.topics": False,
        "check.crcs": True,  # as in Kafka's consumers; by default, librdkafka does not detect a flipped byte
        # A topic that the broker does not know is considered new for this long; librdkafka's default is 30 s.
        "topic.metadata.propagation.max.ms": 5_000,
    },
    PRODUCER: {
        "linger.ms": 5,
        "partitioner": "murmur2_random",  # Kafka's default; librdkafka's is CRC32
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 256 * 1024,
        # When the last broker goes away, librdkafka would drop all brokers and start over from bootstrap.servers. A
        # producer then loses its coordinators, and waits forever to commit offsets (librdkafka issue 5511).
        "metadata.recovery.strategy": "none",
        # delivery.timeout.ms keeps librdkafka's default, which is below transaction.timeout.ms.
    },
    ADMIN: {},
}

HURRIED: Mapping[str, Any] = {"retry.backoff.ms": 5}
"""Defaults of clients that wait for the end of a transaction.

While brokers complete it, which takes milliseconds, they refuse its committed offset and the offsets of the next one;
librdkafka's default is to ask again only after 100 ms.
"""

OF_KNOWN_TOPICS: Mapping[str, Any] = {"topic.metadata.propagation.max.ms": 3_000}
"""Defaults of producers that write only to topics listed by brokers.

A missing topic was deleted, but librdkafka would wait 30 s in case it is new.
"""

_FORCED: Mapping[str, Mapping[str, Any]] = {
    CONSUMER: {"enable.auto.commit": False, "enable.auto.offset.store": False, "auto.offset.reset": "error"},
    PRODUCER: {"enable.idempotence": True, "delivery.report.only.error": True},
    ADMIN: {},
}

_LIBRDKAFKA_NAMES: Mapping[str, str] = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""Keys of Kafka's Java clients with another name in librdkafka."""

_ALIASES: Mapping[str, str] = {"linger.ms": "queue.buffering.max.ms", "delivery.timeout.ms": "message.timeout.ms"}
"""Keys with a default in Penstock that have a second name in librdkafka.

If the user sets the second name, the default does not apply.
"""

_OF_CONSUMERS = frozenset(
    (
        "auto.commit.interval.ms",
        "check.crcs",
        "coordinator.query.interval.ms",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "group.instance.id",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "session.timeout.ms",
    )
)
_OF_PRODUCERS = frozenset(
    (
        "acks",
        "batch.num.messages",
        "batch.size",
        "compression.codec",
        "compression.level",
        "compression.type",
        "delivery.timeout.ms",
        "enable.gapless.guarantee",
        "linger.ms",
        "message.send.max.retries",
        "message.timeout.ms",
        "partitioner",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "request.required.acks",
        "request.timeout.ms",
        "retries",
        "sticky.partitioning.linger.ms",
        "transaction.timeout.ms",
    )
)
_OF_OTHERS: Mapping[str, frozenset[str]] = {
    CONSUMER: _OF_PRODUCERS,
    PRODUCER: _OF_CONSUMERS,
    # librdkafka creates an admin client as a producer; its statistics would pile up unread
    ADMIN: _OF_CONSUMERS | {"statistics.interval.ms"},
}
"""Keys of librdkafka without meaning for a role, for which it logs a warning.

These clients do not receive them from keys without a prefix.
"""

_SERDES = "operators that read and write topics take serdes, or set default.key.serde and default.value.serde"
_JAVA_CLASS = "it names a Java class"
_PARTITIONER = "librdkafka has one partitioner for all records; see sticky.partitioning.linger.ms"
_COMPRESSION = "librdkafka has one key for all codecs; set compression.level"

_WITHOUT_EFFECT: Mapping[str, str] = {
    "allow.os.group.write.access": "only the user may read the directories; see docs/security.md",
    "auto.include.jmx.reporter": "there is no JMX; see metrics() and penstock.metrics.prometheus.port",
    "buffer.memory": "set queue.buffering.max.kbytes",
    "built.in.metrics.version": "the metrics have one version",
    "cache.max.bytes.buffering": "statestore.cache.max.bytes is set too",
    "compression.gzip.level": _COMPRESSION,
    "compression.lz4.level": _COMPRESSION,
    "compression.zstd.level": _COMPRESSION,
    "default.api.timeout.ms": "each call to the brokers has its own timeout",
    "default.client.supplier": f"{_JAVA_CLASS}; the keys of librdkafka set up the clients",
    "default.deserialization.exception.handler": "deserialization.exception.handler is set too",
    "default.dsl.store": "dsl.store.suppliers.class is set too",
    "default.production.exception.handler": "production.exception.handler is set too",
    "exclude.internal.topics": "a pattern matches no internal topic",
    "group.remote.assignor": "no consumer group assigns partitions",
    "interceptor.classes": f"{_JAVA_CLASS}; set processor.wrapper.class to see the records of processors",
    "key.deserializer": _SERDES,
    "key.serializer": _SERDES,
    "max.block.ms": "set delivery.timeout.ms",
    "max.poll.records": "set penstock.batch.max.bytes",
    "metadata.max.idle.ms": "librdkafka forgets no topic that it uses",
    "metric.reporters": f"{_JAVA_CLASS}; see metrics() and penstock.metrics.prometheus.port",
    "partitioner.adaptive.partitioning.enable": _PARTITIONER,
    "partitioner.availability.timeout.ms": _PARTITIONER,
    "partitioner.class": f"{_JAVA_CLASS}; pass a StreamPartitioner to Produced",
    "partitioner.ignore.keys": _PARTITIONER,
    "rack.aware.assignment.non_overlap_cost": ASSIGNED_BY_SPARK,
    "rack.aware.assignment.strategy": ASSIGNED_BY_SPARK,
    "rack.aware.assignment.traffic_cost": ASSIGNED_BY_SPARK,
    "socket.connection.setup.timeout.max.ms": "set socket.connection.setup.timeout.ms",
    "task.assignor.class": ASSIGNED_BY_SPARK,
    "transaction.two.phase.commit.enable": "transactions end with their epoch",
    "value.deserializer": _SERDES,
    "value.serializer": _SERDES,
    "zookeeper.connect": "Penstock only contacts brokers; set bootstrap.servers",
    "window.size.ms": "pass it to WindowedSerdes.time_windowed",
    "windowed.inner.class.serde": "pass it to WindowedSerdes.time_windowed",
}
"""Keys of Kafka Streams and of the Java clients without effect, with reason and alternative.

librdkafka does not have them. For keys in the table, see `ConfigKey.without_effect`.
"""

_OF_NO_CLIENT: Mapping[str, str] = dict.fromkeys(
    (
        *(key for key, row in KEYS.items() if row.without_effect),
        *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
    ),
    "set it without a prefix",
)
"""Keys that no client has, and that have no effect with the prefix of a client."""

_NOT_THE_USERS: Mapping[str, str] = {
    "enable.auto.commit": "positions are committed with the epoch",
    "enable.auto.offset.store": "positions are committed with the epoch",
    "enable.idempotence": "producers are always idempotent",
    "enable.partition.eof": "Penstock sets it if necessary",
    "group.id": "the group is named after the application; set application.id",
    "isolation.level": "only committed records are read",
    "partition.assignment.strategy": "no consumer group assigns partitions",
    "transactional.id": "it consists of the application.id and the partition of the sink",
}
"""Keys that Penstock sets itself, as Kafka Streams does, with the reason."""


def client_settings(
    config: StreamsConfig,
    role: str,
    forced: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the settings of a client of librdkafka.

    Args:
        config: the configuration of the application.
        role: CONSUMER, RESTORE_CONSUMER, PRODUCER or ADMIN.
        forced: settings that this client requires, overriding the user's keys.
        defaults: default settings of this client, overriding those of its role.

    Raises:
        ConfigError: bootstrap.servers is missing, librdkafka does not support a key of a Java client, or a reference
            has no target.
    """
    known = providers(config.client_config())
    servers = resolved("bootstrap.servers", config["bootstrap.servers"], known)
    if not servers:
        raise ConfigError(
            "Missing required configuration 'bootstrap.servers': set it in the config or as "
            "PENSTOCK_BOOTSTRAP_SERVERS, such as localhost:9092; `penstock broker` starts a broker on this machine."
        )
    given = _of_the_user(config, role, known)
    kind = _kind_of(role)
    settings: dict[str, Any] = {**_COMMON_DEFAULTS, **_DEFAULTS[kind], **(defaults or {})}
    for key, alias in _ALIASES.items():
        if alias in given:
            settings.pop(key, None)
    settings.update(given)
    settings.update(_FORCED[kind])
    settings.update(forced or {})
    settings["bootstrap.servers"] = servers
    if kind == CONSUMER:  # librdkafka requires a group even for assigned partitions without commits
        settings.setdefault("group.id", config["application.id"] or "penstock")
    settings["client.id"] = client_id(config, kind)
    return settings


def _kind_of(role: str) -> str:
    return CONSUMER if role == RESTORE_CONSUMER else role


def client_id(config: StreamsConfig, role: str) -> str:
    """Return the `client.id` of the clients of a role."""
    return f"{config['client.id'] or config['application.id'] or 'penstock'}-{role}"


def keys_without_a_row() -> Iterator[str]:
    """Yield the keys of Kafka Streams and the Java clients missing from the table."""
    for keys in (_WITHOUT_EFFECT, _NOT_THE_USERS, _LIBRDKAFKA_NAMES, JAVA_KEYS):
        yield from keys


def ignored_keys() -> Mapping[str, str]:
    """Return the keys of Kafka Streams and the Java clients without effect, with the reason.

    Keys in the table are excluded.
    """
    return {
        key: why
        for key, why in {**_WITHOUT_EFFECT, **_NOT_THE_USERS}.items()
        if key not in KEYS and key not in FORMER_NAMES
    }


def client_defaults() -> Mapping[str, Mapping[str, Any]]:
    """Return, by role, the keys of librdkafka with a default of Penstock."""
    return {role: {**_COMMON_DEFAULTS, **defaults} for role, defaults in _DEFAULTS.items()}


def keys_for_librdkafka(config: StreamsConfig, role: str) -> dict[str, str]:
    """Return the user's keys for `role` that librdkafka receives, with their names there.

    It warns of keys without effect, and resolves no secrets.
    """
    return {
        written: _LIBRDKAFKA_NAMES.get(key, key)
        for key, (written, _) in _chosen(config, role).items()
        if key not in JAVA_KEYS
    }


def keys_of_unused_clients(config: StreamsConfig, roles: Collection[str]) -> dict[str, str]:
    """Return the user's keys for clients that a host lacks, with their names in librdkafka.

    It warns that they have no effect. roles: the clients of the host.
    """
    result = {}
    used = {prefix for role in roles for prefix in _PREFIXES[role]}
    for written in config.client_config():
        for prefix, why in _UNUSED_PREFIXES.items():
            if prefix not in used and written.startswith(prefix):
                warn_without_effect(written, why)
                key = written.removeprefix(prefix)
                result[written] = _LIBRDKAFKA_NAMES.get(key, key)
    return result


def _chosen(config: StreamsConfig, role: str) -> dict[str, tuple[str, Any]]:
    """Return the user's keys for `role`; keys with its prefix override those without.

    The result maps each key without its prefix to the key as written and its value. Keys without effect are dropped
    with a warning.
    """
    every_prefix = (*(prefix for prefixes in _PREFIXES.values() for prefix in prefixes), *_OTHER_PREFIXES)
    given = config.client_config()
    chosen = {key: (key, value) for key, value in given.items() if not key.startswith(every_prefix)}
    for prefix in _PREFIXES[role]:
        of_role = {key: value for key, value in given.items() if key.startswith(prefix)}
        chosen.update({key[len(prefix) :]: (key, value) for key, value in of_role.items()})
    result = {}
    for key, (written, value) in chosen.items():
        if is_of_providers(key):
            continue
        why = _WITHOUT_EFFECT.get(key) or _NOT_THE_USERS.get(key) or _OF_NO_CLIENT.get(key)
        if why is not None:
            warn_without_effect(written, why)
        elif value is not None:
            result[key] = (written, value)
    return result


def _of_the_user(config: StreamsConfig, role: str, known: Mapping[str, str]) -> dict[str, Any]:
    """Return the user's keys for `role` under librdkafka's names, with their references resolved.

    known: the providers of the references.
    """
    result = {}
    for key, (written, value) in _chosen(config, role).items():
        name = _LIBRDKAFKA_NAMES.get(key, key)
        if key != written or name not in _OF_OTHERS[_kind_of(role)]:
            result[name] = resolved(key, value, known)
    return librdkafka_security(result)
