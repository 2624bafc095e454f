"""A real Kafka with logins, which allows each user what its ACLs grant.

It has a listener for each way to be known: `TLS` (the broker alone has a certificate), `MUTUAL` (clients have one too)
and `SASL` (over TLS; PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER with tokens that nobody signs). On the
listener without any security everybody may do everything, so that a test can set up what it needs.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.kafka import RealKafka
from tests.support.waiting import until

PASSWORD: Final = "its-password"
"""The password of every user."""

TOKEN_SECONDS: Final = 6
"""After how long the broker asks an OAUTHBEARER client to log in again."""

_DAY = datetime.timedelta(days=1)
_SECONDS = 60.0


class Acl(NamedTuple):
    """A right of a user. resource: a topic, a group, a transactional id or the prefix of some; operation: READ, ..."""

    operation: str
    kind: str
    resource: str
    prefixed: bool = False

    def binding(self, user: str) -> AclBinding:
        """Return the right as admin clients give it."""
        pattern = ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL
        operation, kind = AclOperation[self.operation], ResourceType[self.kind]
        return AclBinding(kind, self.resource, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


class Certificates:
    """An authority, and the certificates that it has signed, as files of PEM."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority")
        self.authority = directory / "authority.pem"
        certificate = self._signed(self._name, self._key.public_key(), x509.BasicConstraints(True, None))
        self.authority.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> Path:
        """Return a file of a new private key and its certificate for `name`, also at 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(_name(name), key.public_key(), x509.BasicConstraints(False, None))
        path = self._directory / f"{name}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        return path

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, constraints: x509.BasicConstraints
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(constraints, critical=True)
            .add_extension(address, critical=False)
            .sign(self._key, hashes.SHA256())
        )


class SecuredKafka:
    """A Kafka of one broker with listeners for each way to be known; a context manager that ends it.

    Args:
        directory: for certificates.
        users: those that may log in by PLAIN, with PASSWORD.
    """

    def __init__(self, directory: Path, users: Iterable[str]) -> None:
        self.certificates = Certificates(directory)
        broker = self.certificates.issue("broker")
        plain = "".join(f' user_{user}="{PASSWORD}"' for user in users)
        module = "org.apache.kafka.common.security"
        unsecured = f"{module}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
        settings = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "auto.create.topics.enable": "false",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.authority),
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/,DEFAULT",
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.sasl.plain.sasl.jaas.config": f"{module}.plain.PlainLoginModule required{plain};",
            "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
            "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
            "listener.name.sasl.oauthbearer.sasl.jaas.config": (
                f'{module}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
            ),
            "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": unsecured,
            "listener.name.sasl.oauthbearer.connections.max.reauth.ms": str(TOKEN_SECONDS * 1000),
        }
        listeners = {"TLS": "SSL", "MUTUAL": "SSL", "SASL": "SASL_SSL"}
        self._kafka = RealKafka(settings=settings, listeners=listeners)
        self._admin: AdminClient | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The address at which everybody may do everything."""
        return self._kafka.bootstrap_servers

    @property
    def admin(self) -> AdminClient:
        """A client that may do everything."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        return self._admin

    def __enter__(self) -> Self:
        self._kafka.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._admin = None
        self._kafka.close()

    def tls(self) -> dict[str, Any]:
        """Return the keys of a client that knows the broker by its certificate, and is nobody."""
        return {
            "bootstrap.servers": self._kafka.address("TLS"),
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.certificates.authority),
        }

    def mutual(self, user: str) -> dict[str, Any]:
        """Return the keys of a client that the broker knows by its certificate as `user`."""
        pem = str(self.certificates.issue(user))
        servers = self._kafka.address("MUTUAL")
        return {**self.tls(), "bootstrap.servers": servers, "ssl.certificate.location": pem, "ssl.key.location": pem}

    def sasl(self, mechanism: str, user: str, password: str = PASSWORD) -> dict[str, Any]:
        """Return the keys of a client that the broker knows by a password as `user`."""
        known = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
        servers = {"bootstrap.servers": self._kafka.address("SASL"), "security.protocol": "SASL_SSL"}
        return {**self.tls(), **servers, **known}

    def oauth(self, user: str) -> dict[str, Any]:
        """Return the keys of a client that the broker knows as `user` by a token, which expires in TOKEN_SECONDS."""
        return {
            **self.tls(),
            "bootstrap.servers": self._kafka.address("SASL"),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": f"principal={user} lifeSeconds={TOKEN_SECONDS}",
        }

    def add_scram_user(self, user: str) -> None:
        """Allow `user` to log in by SCRAM, with PASSWORD."""
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):  # a request takes a user once
            wanted = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            for future in self.admin.alter_user_scram_credentials([wanted], request_timeout=_SECONDS).values():
                future.result(_SECONDS)
        assert until(lambda: self._knows(user)), f"the broker does not know {user}"

    def _knows(self, user: str) -> bool:
        """Return whether the broker has learned that `user` may log in by SCRAM."""
        found: Any = self.admin.describe_user_scram_credentials([user], request_timeout=_SECONDS)
        try:
            return len(found[user].result(_SECONDS).scram_credential_infos) == 2
        except KafkaException:
            return False

    def allow(self, user: str, acls: Iterable[Acl]) -> None:
        """Give `user` these rights, and wait until the broker has learned of them."""
        wanted = [acl.binding(user) for acl in acls]
        for future in self.admin.create_acls(wanted).values():
            future.result(_SECONDS)
        assert until(lambda: self._rights().issuperset(wanted)), f"{user} does not have {wanted}"

    def _rights(self) -> set[AclBinding]:
        """Return the rights of all users of which the broker has learned."""
        every: Any = None  # which the stubs do not know
        everything = AclBindingFilter(
            ResourceType.ANY, every, ResourcePatternType.ANY, every, every, AclOperation.ANY, AclPermissionType.ANY
        )
        return set(self.admin.describe_acls(everything, request_timeout=_SECONDS).result(_SECONDS))

    def forbid(self, user: str, acl: Acl) -> None:
        """Take a right from `user`."""
        binding = acl.binding(user)
        pattern = AclBindingFilter(
            binding.restype,
            binding.name,
            binding.resource_pattern_type,
            binding.principal,
            binding.host,
            binding.operation,
            binding.permission_type,
        )
        for future in self.admin.delete_acls([pattern]).values():
            assert future.result(_SECONDS), f"{user} does not have {acl}"


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
