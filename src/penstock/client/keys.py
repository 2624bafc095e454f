"""Checks that the configuration keys of an application exist.

They are for hosts that create no client, and for all keys at once if workers create clients later. librdkafka is loaded
only for keys that this module does not know.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock import extras
from penstock.client.settings import (
    ADMIN,
    CONSUMER,
    PRODUCER,
    keys_for_librdkafka,
    keys_of_unused_clients,
    keys_without_a_row,
)
from penstock.config import StreamsConfig, did_you_mean
from penstock.config.keys import KEYS
from penstock.errors import ConfigError

OF_LIBRDKAFKA = (
    "acks", "allow.auto.create.topics", "auto.commit.interval.ms", "batch.num.messages", "batch.size",
    "broker.address.family", "broker.address.ttl", "check.crcs", "client.dns.lookup", "client.rack",
    "compression.codec", "compression.level", "compression.type", "connections.max.idle.ms",
    "coordinator.query.interval.ms", "debug", "delivery.timeout.ms", "enable.gapless.guarantee", "enable.metrics.push",
    "enable.sasl.oauthbearer.unsecure.jwt", "enable.sparse.connections", "enable.ssl.certificate.verification",
    "fetch.error.backoff.ms", "fetch.max.bytes", "fetch.message.max.bytes", "fetch.min.bytes", "fetch.queue.backoff.ms",
    "fetch.wait.max.ms", "group.instance.id", "heartbeat.interval.ms", "https.ca.location", "https.ca.pem", "linger.ms",
    "log.connection.close", "log_level", "max.in.flight.requests.per.connection", "max.poll.interval.ms",
    "message.copy.max.bytes", "message.max.bytes", "message.send.max.retries", "message.timeout.ms",
    "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy", "oauth_cb", "partitioner",
    "plugin.library.paths", "queue.buffering.backpressure.threshold", "queue.buffering.max.kbytes",
    "queue.buffering.max.messages", "queue.buffering.max.ms", "queued.max.messages.kbytes", "queued.min.messages",
    "receive.message.max.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.required.acks",
    "request.timeout.ms", "retries", "retry.backoff.max.ms", "retry.backoff.ms", "sasl.kerberos.keytab",
    "sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.principal",
    "sasl.kerberos.service.name", "sasl.mechanism", "sasl.mechanisms", "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config", "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.method", "sasl.oauthbearer.scope", "sasl.oauthbearer.token.endpoint.url", "sasl.password",
    "sasl.username", "security.protocol", "session.timeout.ms", "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable", "socket.max.fails", "socket.nagle.disable", "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes", "socket.timeout.ms", "ssl.ca.certificate.stores", "ssl.ca.location", "ssl.ca.pem",
    "ssl.certificate.location", "ssl.certificate.pem", "ssl.cipher.suites", "ssl.crl.location", "ssl.curves.list",
    "ssl.endpoint.identification.algorithm", "ssl.engine.id", "ssl.engine.location", "ssl.key.location",
    "ssl.key.password", "ssl.key.pem", "ssl.providers", "ssl.sigalgs.list", "statistics.interval.ms",
    "sticky.partitioning.linger.ms", "topic.metadata.propagation.max.ms", "topic.metadata.refresh.interval.ms",
    "topic.metadata.refresh.sparse", "transaction.timeout.ms",
)  # fmt: skip
"""Known keys of librdkafka; it may have more."""


def check_client_keys(config: StreamsConfig, roles: Collection[str] = (CONSUMER, PRODUCER, ADMIN)) -> None:
    """Raise ConfigError for a key that Kafka Streams, Penstock and librdkafka do not have.

    It also logs a warning for client keys without effect. Values are not checked. roles: the clients of the host.
    """
    for role in roles:
        _check(role, keys_for_librdkafka(config, role))
    known, unused = {*keys_without_a_row()}, keys_of_unused_clients(config, roles)
    _check(CONSUMER, {written: key for written, key in unused.items() if key not in known})


def _check(role: str, keys: Mapping[str, str]) -> None:
    for written, key in keys.items():
        if key not in KEYS and key not in OF_LIBRDKAFKA and not _takes(role, key):
            raise unknown_key(written, key)


def unknown_key(written: str, key: str) -> ConfigError:
    """Return the error for a key that librdkafka does not have.

    Args:
        written: the key in the configuration.
        key: the key without the prefix of a client.
    """
    meant = did_you_mean(key, (*KEYS, *keys_without_a_row(), *OF_LIBRDKAFKA))
    return ConfigError(
        f"Unknown configuration {written}{meant or '.'} Kafka Streams, Penstock and the Kafka client, librdkafka, do "
        "not have this key; librdkafka's CONFIGURATION.md lists its keys."
    )


def _takes(role: str, key: str) -> bool:
    module = extras.load("penstock.client.confluent.keys", f"The configuration {key}")
    return bool(module.takes(role, key))
