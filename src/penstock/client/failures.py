"""The errors of requests to brokers, with the same texts for all clients.

This module contains no client: those over librdkafka and those over Penstock's own sockets create their errors here.
Rule: errors never contain values of settings, because these may be secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from penstock.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerNotFoundError,
    ClusterAuthorizationError,
    CorruptRecordError,
    GroupAuthorizationError,
    KafkaError,
    OffsetOutOfRangeError,
    RetriableError,
    TopicAuthorizationError,
    TopicExistsError,
    TransactionalIdAuthorizationError,
    UnknownTopicOrPartitionError,
)

OFFSET_OUT_OF_RANGE: Final = 1
"""Kafka's error code for an offset outside of a partition."""

CORRUPT_MESSAGE: Final = 2
"""Kafka's error code for records with a wrong checksum or an unknown format."""

UNKNOWN_TOPIC_OR_PARTITION: Final = 3
"""Kafka's error code for a missing topic or partition."""

_TOPIC_ALREADY_EXISTS: Final = 36

FORBIDDEN: Final[Mapping[int, tuple[type[AuthorizationError], str]]] = {
    29: (TopicAuthorizationError, "topic"),
    30: (GroupAuthorizationError, "group"),
    31: (ClusterAuthorizationError, "cluster"),
    53: (TransactionalIdAuthorizationError, "transactional-id"),
}
"""Kafka's error codes for a missing permission: class of the error, and resource type."""


class Right(NamedTuple):
    """A permission that a call needs, as in ACLs. kind: topic, group, transactional-id or cluster."""

    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on the {self.kind.replace('-', ' ')} {self.name}".rstrip()


class Failures:
    """Creates the errors of one client.

    Args:
        settings: the settings of the client, under librdkafka's names.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self.servers = str(settings["bootstrap.servers"])

    @property
    def protocol(self) -> str:
        """The security.protocol, in upper case."""
        return str(self._settings.get("security.protocol", "PLAINTEXT")).upper()

    @property
    def mechanism(self) -> str:
        """The sasl.mechanism, in upper case."""
        return str(self._settings.get("sasl.mechanism", self._settings.get("sasl.mechanisms", "GSSAPI"))).upper()

    def login(self, doing: str, reason: str) -> AuthenticationError:
        """Return the error for a refused login, or for a certificate that one side rejects."""
        return AuthenticationError(
            f"Cannot log in at bootstrap.servers={self.servers} ({doing}): {reason}. Check {self._login()}."
        )

    def silence(self, doing: str, reason: str, waited: float) -> BrokerNotFoundError:
        """Return the error for brokers that do not answer. waited: the time of the wait, in seconds."""
        return BrokerNotFoundError(
            f"No broker of bootstrap.servers={self.servers} answered within {round(waited * 1000)} ms ({doing}): "
            f"{reason}. Check the address, that the broker runs, and that its listener uses "
            f"security.protocol={self.protocol}; `penstock broker` starts a broker on this machine."
        )

    def answer(self, code: int, reason: str, doing: str, *needs: Right, is_passing: bool = False) -> KafkaError:
        """Return the error for a response with an error code.

        Args:
            code: the error code of Kafka's protocol.
            reason: the meaning of the code, without a full stop.
            doing: the purpose of the request.
            needs: the permissions for the request.
            is_passing: whether the error is retriable.
        """
        if code in FORBIDDEN:
            return self._forbidden(code, reason, doing, needs)
        at = f"Request failed ({doing}) at bootstrap.servers={self.servers}: {reason}."
        if code == UNKNOWN_TOPIC_OR_PARTITION:
            return UnknownTopicOrPartitionError(
                f"{at} `penstock topics list` shows the topics, `penstock topics create` creates one."
            )
        if code == _TOPIC_ALREADY_EXISTS:
            return TopicExistsError(at)
        if code == OFFSET_OUT_OF_RANGE:
            return OffsetOutOfRangeError(
                f"Request failed ({doing}): {reason}. The records have been deleted by retention, or the topic was "
                "deleted and created again; start over with `penstock reset`, or with another application.id."
            )
        if code == CORRUPT_MESSAGE:
            return CorruptRecordError(
                f"A batch of records is damaged ({doing}) at bootstrap.servers={self.servers}: {reason}. Nothing after "
                "it is read. Check the disks of the brokers, and let an intact replica lead the partition or restore "
                "its log from a copy. consumer.check.crcs=false reads it without comparing checksums."
            )
        return RetriableError(at) if is_passing else KafkaError(at)

    def _forbidden(self, code: int, reason: str, doing: str, needs: tuple[Right, ...]) -> AuthorizationError:
        of_class, kind = FORBIDDEN[code]
        missing = next((right for right in needs if right.kind == kind), needs[0] if needs else None)
        right = f"the necessary operation on a {kind}" if missing is None else str(missing)
        grant = "" if missing is None else f" (kafka-acls --add --operation {missing.operation} {_option(missing)})"
        return of_class(
            f"Request failed ({doing}) at bootstrap.servers={self.servers}: the brokers do not allow {right} to the "
            f"user of {self._user()}: {reason}. Grant it{grant}, or log in as another user; "
            "docs/security.md lists the rights that an application needs."
        )

    def _user(self) -> str:
        """Return the configuration keys that identify this client to brokers."""
        if self.protocol.startswith("SASL"):
            return "the token (sasl.mechanism=OAUTHBEARER)" if self.mechanism == "OAUTHBEARER" else "sasl.username"
        known = [key for key in self._settings if key.startswith(("ssl.certificate", "ssl.keystore"))]
        return known[0] if known else f"no login (security.protocol={self.protocol})"

    def _login(self) -> str:
        """Return the configuration keys that may cause a refused login."""
        tls = "ssl.ca.location, and ssl.certificate.location with ssl.key.location if the broker requires them"
        if not self.protocol.startswith("SASL"):
            return f"security.protocol={self.protocol}, {tls}"
        known = "the token" if self.mechanism == "OAUTHBEARER" else "sasl.username and sasl.password"
        way = f"security.protocol={self.protocol}, sasl.mechanism={self.mechanism}, {known}"
        return f"{way}, {tls}" if self.protocol == "SASL_SSL" else way


def _option(right: Right) -> str:
    return "--cluster" if right.kind == "cluster" else f"--{right.kind} {right.name}"
