"""From the application's configuration to that of each client: prefixes, defaults, what is forced and what is left out.

Pure functions; nothing here connects. Rules, in rising order of precedence: Penstock's defaults for the role; keys
without a prefix, for every client; keys with the prefix of the role (`consumer.`, `producer.`, `admin.`), for it alone;
what the role forces. Keys of Kafka's Java clients that librdkafka has under another name are translated, those that
have no meaning to it are left out and named once in the log. References to secrets are looked up here, at the last
moment. Values of keys never stand in a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.client.security import librdkafka_security
from penstock.config import StreamsConfig, warn_without_meaning
from penstock.config_providers import is_of_providers, providers, resolved
from penstock.errors import ConfigError

CONSUMER, PRODUCER, ADMIN = "consumer", "producer", "admin"

_PREFIXES: Mapping[str, tuple[str, ...]] = {
    CONSUMER: ("consumer.", "main.consumer."),
    PRODUCER: ("producer.",),
    ADMIN: ("admin.",),
}
_OTHER_PREFIXES = ("restore.consumer.", "global.consumer.", "topic.", "client.tag.", "penstock.", "spark.")

_COMMON_DEFAULTS: Mapping[str, Any] = {
    "socket.nagle.disable": True,
    "socket.keepalive.enable": True,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "topic.metadata.refresh.sparse": True,
}

_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    CONSUMER: {
        # A partition whose queue is full is looked at again after this time; librdkafka's 1000 ms would stall a reader.
        "fetch.queue.backoff.ms": 10,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 100,
        "fetch.message.max.bytes": 4 * 1024 * 1024,
        # fetch.max.bytes is left to librdkafka, which keeps it between message.max.bytes and the next line.
        "queued.min.messages": 100_000,
        "queued.max.messages.kbytes": 32 * 1024,
        "allow.auto.create.topics": False,
        # So long is a topic that the broker does not know taken for a new one; librdkafka's own bound is 30 s.
        "topic.metadata.propagation.max.ms": 5_000,
    },
    PRODUCER: {
        "linger.ms": 5,
        "partitioner": "murmur2_random",  # Kafka's own; librdkafka's default is CRC32
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 256 * 1024,
        # Where the last broker goes, librdkafka would forget all that it knows and begin anew from bootstrap.servers. A
        # producer then loses its coordinators, and waits without an end to commit offsets (librdkafka issue 5511).
        "metadata.recovery.strategy": "none",
        # delivery.timeout.ms is left to librdkafka, which keeps it under transaction.timeout.ms.
    },
    ADMIN: {},
}

HURRIED: Mapping[str, Any] = {"retry.backoff.ms": 5}
"""Defaults of clients that wait for a transaction. While brokers complete it, which takes milliseconds, they refuse its
committed offset and the offsets of the next one, and librdkafka would ask again after 100 ms only."""

_FORCED: Mapping[str, Mapping[str, Any]] = {
    CONSUMER: {"enable.auto.commit": False, "enable.auto.offset.store": False, "auto.offset.reset": "error"},
    PRODUCER: {"enable.idempotence": True, "delivery.report.only.error": True},
    ADMIN: {},
}

_LIBRDKAFKA_NAMES: Mapping[str, str] = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""Keys of Kafka's Java clients that mean the same in librdkafka under another name."""

_ALIASES: Mapping[str, str] = {"linger.ms": "queue.buffering.max.ms"}
"""Keys with a default above that librdkafka also takes under a second name: where the user gives that, it stands."""

_WITHOUT_MEANING = frozenset(
    (
        "acceptable.recovery.lag", "buffered.records.per.partition", "built.in.metrics.version",
        "cache.max.bytes.buffering", "commit.interval.ms", "default.client.supplier",
        "default.deserialization.exception.handler", "default.dsl.store", "default.production.exception.handler",
        "enable.metrics.push", "group.protocol", "interceptor.classes", "key.deserializer", "key.serializer",
        "max.poll.records", "max.warmup.replicas", "metric.reporters",
        "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms", "num.standby.replicas",
        "num.stream.threads", "poll.ms", "probing.rebalance.interval.ms", "rack.aware.assignment.strategy",
        "rack.aware.assignment.tags", "state.cleanup.delay.ms",
        "task.assignor.class", "task.timeout.ms", "value.deserializer", "value.serializer", "window.size.ms",
        "windowed.inner.class.serde", "windowstore.changelog.additional.retention.ms",
    )
)  # fmt: skip
"""Keys without a row of their own, of Kafka Streams and of the Java clients, that librdkafka does not know and that
change nothing here."""

_NOT_THE_USERS = frozenset(
    ("group.id", "enable.auto.commit", "enable.auto.offset.store", "isolation.level", "transactional.id",
     "enable.idempotence", "partition.assignment.strategy", "enable.partition.eof")
)  # fmt: skip
"""Keys that Penstock sets itself, as Kafka Streams does."""


def client_settings(
    config: StreamsConfig,
    role: str,
    forced: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what a client of librdkafka is to be made with.

    Args:
        config: the application's configuration.
        role: CONSUMER, PRODUCER or ADMIN.
        forced: keys that this client needs whatever the user gave.
        defaults: of this client, over those of its role.

    Raises:
        ConfigError: bootstrap.servers is not set, librdkafka cannot do what a key of a Java client asks for, or nothing
            stands where a reference points to.
    """
    known = providers(config.client_config())
    servers = resolved("bootstrap.servers", config["bootstrap.servers"], known)
    if not servers:
        raise ConfigError(
            "Missing required configuration 'bootstrap.servers': set it in the config or as "
            "PENSTOCK_BOOTSTRAP_SERVERS, such as localhost:9092; `penstock broker` starts a broker on this machine."
        )
    given = _of_the_user(config, role, known)
    settings: dict[str, Any] = {**_COMMON_DEFAULTS, **_DEFAULTS[role], **(defaults or {})}
    for key, alias in _ALIASES.items():
        if alias in given:
            settings.pop(key, None)
    settings.update(given)
    settings.update(_FORCED[role])
    settings.update(forced or {})
    settings["bootstrap.servers"] = servers
    if role == CONSUMER:  # librdkafka wants a group even where partitions are assigned and nothing is committed
        settings.setdefault("group.id", config["application.id"] or "penstock")
    settings["client.id"] = f"{config['client.id'] or config['application.id'] or 'penstock'}-{role}"
    return settings


def _of_the_user(config: StreamsConfig, role: str, known: Mapping[str, str]) -> dict[str, Any]:
    """Return the user's keys for `role`, those with its prefix over those without one, under librdkafka's names and
    with what their references stand for. known: the providers of these."""
    every_prefix = (*(prefix for prefixes in _PREFIXES.values() for prefix in prefixes), *_OTHER_PREFIXES)
    given = config.client_config()
    chosen = {key: value for key, value in given.items() if not key.startswith(every_prefix)}
    for prefix in _PREFIXES[role]:
        chosen.update({key[len(prefix) :]: value for key, value in given.items() if key.startswith(prefix)})
    result: dict[str, Any] = {}
    for key, value in chosen.items():
        if is_of_providers(key):
            continue
        if key in _WITHOUT_MEANING or key in _NOT_THE_USERS:
            warn_without_meaning(key)
        elif value is not None:
            result[_LIBRDKAFKA_NAMES.get(key, key)] = resolved(key, value, known)
    return librdkafka_security(result)
