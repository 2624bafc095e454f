"""TLS from librdkafka's keys: what each of them sets, and what cannot be followed."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from penstock.client.sockets.tls import tls_context
from penstock.errors import ConfigError
from tests.support.secured_kafka import Certificates


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def test_brokers_are_verified_by_their_certificate_and_name() -> None:
    context = tls_context({})
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize("algorithm", ["none", "None"])
def test_names_matter_unless_said_otherwise(algorithm: str) -> None:
    context = tls_context({"ssl.endpoint.identification.algorithm": algorithm})
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)


@pytest.mark.parametrize("value", [False, "false", "0"])
def test_brokers_are_not_verified_on_request(value: object) -> None:
    context = tls_context({"enable.ssl.certificate.verification": value})
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)


def test_only_the_given_authority_is_trusted(certificates: Certificates) -> None:
    text = certificates.authority.read_text(encoding="utf-8")
    for keys in ({"ssl.ca.location": str(certificates.authority)}, {"ssl.ca.pem": text}):
        assert [each["subject"] for each in tls_context(keys).get_ca_certs()] == [((("commonName", "authority"),),)]


@pytest.mark.parametrize(
    "key", ["ssl.keystore.location", "ssl.curves.list", "ssl.sigalgs.list", "ssl.engine.id", "ssl.providers"]
)
def test_a_key_without_a_counterpart_is_refused_without_its_value(key: str) -> None:
    with pytest.raises(ConfigError, match=f"Invalid configuration {key}") as refused:
        tls_context({key: "its-value"})
    assert "its-value" not in str(refused.value)


@pytest.mark.parametrize(
    "key", ["ssl.ca.location", "ssl.crl.location", "ssl.certificate.location", "ssl.cipher.suites"]
)
def test_what_cannot_be_used_is_named_without_its_value(key: str) -> None:
    with pytest.raises(ConfigError, match=f"Invalid configuration {key}: it cannot be used") as refused:
        tls_context({key: "its-value"})
    assert "its-value" not in str(refused.value)


def test_a_key_with_a_password_needs_it(certificates: Certificates, tmp_path: Path) -> None:
    path = certificates.issue("app")
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"its-password")
    locked = tmp_path / "locked.pem"
    locked.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret))
    keys = {"ssl.certificate.location": str(path), "ssl.key.location": str(locked)}
    tls_context({**keys, "ssl.key.password": "its-password"})
    for wrong in ({}, {"ssl.key.password": "another"}):
        with pytest.raises(ConfigError, match=r"ssl\.certificate\.location: it cannot be used"):
            tls_context({**keys, **wrong})
