"""The errors of calls to brokers, in one wording for all clients.

Here is no client: the clients over librdkafka and those over Penstock's own sockets report here what went wrong. Rule:
values of settings are never reported, because they may be secrets.
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
"""Code of Kafka's protocol for an offset that a partition does not have."""

CORRUPT_MESSAGE: Final = 2
"""Code of Kafka's protocol for records that do not match their checksum, or have no format that is known."""

UNKNOWN_TOPIC_OR_PARTITION: Final = 3
"""Code of Kafka's protocol for a missing topic or partition."""

_TOPIC_ALREADY_EXISTS: Final = 36

FORBIDDEN: Final[Mapping[int, tuple[type[AuthorizationError], str]]] = {
    29: (TopicAuthorizationError, "topic"),
    30: (GroupAuthorizationError, "group"),
    31: (ClusterAuthorizationError, "cluster"),
    53: (TransactionalIdAuthorizationError, "transactional-id"),
}
"""Codes of Kafka's protocol for a missing right: the error, and the kind of resource."""


class Right(NamedTuple):
    """A right that a call needs, as ACLs have it. kind: topic, group, transactional-id or cluster."""

    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on the {self.kind.replace('-', ' ')} {self.name}".rstrip()


class Failures:
    """Makes the errors of one client.

    Args:
        settings: what the client was made with, under librdkafka's names.
        timeout_ms: the bound (ms) of one call.
    """

    def __init__(self, settings: Mapping[str, Any], timeout_ms: int) -> None:
        self._settings = settings
        self._timeout_ms = timeout_ms
        self.servers = str(settings["bootstrap.servers"])

    @property
    def protocol(self) -> str:
        """The security.protocol, in capitals."""
        return str(self._settings.get("security.protocol", "PLAINTEXT")).upper()

    @property
    def mechanism(self) -> str:
        """The sasl.mechanism, in capitals."""
        return str(self._settings.get("sasl.mechanism", self._settings.get("sasl.mechanisms", "GSSAPI"))).upper()

    def login(self, doing: str, reason: str) -> AuthenticationError:
        """Return the error of a refused login, or of a certificate that one side does not accept."""
        return AuthenticationError(
            f"Cannot log in at bootstrap.servers={self.servers} ({doing}): {reason}. Check {self._login()}."
        )

    def silence(self, doing: str, reason: str) -> BrokerNotFoundError:
        """Return the error of brokers that do not answer."""
        return BrokerNotFoundError(
            f"No broker of bootstrap.servers={self.servers} answered within {self._timeout_ms} ms ({doing}): "
            f"{reason}. Check the address, that the broker runs, and that its listener uses "
            f"security.protocol={self.protocol}; `penstock broker` starts a broker on this machine."
        )

    def answer(self, code: int, reason: str, doing: str, *needs: Right, is_passing: bool = False) -> KafkaError:
        """Return the error for an answer with an error code.

        Args:
            code: the code of Kafka's protocol.
            reason: what it means, without a full stop.
            doing: what was asked for.
            needs: the rights for it.
            is_passing: whether the same call may succeed a moment later.
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
        """Return the keys by which brokers know this client."""
        if self.protocol.startswith("SASL"):
            return "the token (sasl.mechanism=OAUTHBEARER)" if self.mechanism == "OAUTHBEARER" else "sasl.username"
        known = [key for key in self._settings if key.startswith(("ssl.certificate", "ssl.keystore"))]
        return known[0] if known else f"no login (security.protocol={self.protocol})"

    def _login(self) -> str:
        """Return what may be wrong where a login is refused."""
        tls = "ssl.ca.location, and ssl.certificate.location with ssl.key.location if the broker requires them"
        if not self.protocol.startswith("SASL"):
            return f"security.protocol={self.protocol}, {tls}"
        known = "the token" if self.mechanism == "OAUTHBEARER" else "sasl.username and sasl.password"
        way = f"security.protocol={self.protocol}, sasl.mechanism={self.mechanism}, {known}"
        return f"{way}, {tls}" if self.protocol == "SASL_SSL" else way


def _option(right: Right) -> str:
    return "--cluster" if right.kind == "cluster" else f"--{right.kind} {right.name}"
