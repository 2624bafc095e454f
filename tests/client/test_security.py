"""Kafka's security keys in those of librdkafka, and secrets that stand elsewhere."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock.client.security import librdkafka_security
from penstock.client.settings import ADMIN, PRODUCER, client_settings
from penstock.config import StreamsConfig
from penstock.errors import ConfigError

SECURITY = "org.apache.kafka.common.security"
HANDLER = f"{SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (
            {"sasl.jaas.config": f'{SECURITY}.plain.PlainLoginModule required username="u" password="p;\\"=x";'},
            {"sasl.username": "u", "sasl.password": 'p;"=x'},
        ),
        (
            {"sasl.jaas.config": f"{SECURITY}.scram.ScramLoginModule required\n username=u\n password='p' ;"},
            {"sasl.username": "u", "sasl.password": "'p'"},
        ),
        (
            {
                "sasl.jaas.config": f'{SECURITY}.oauthbearer.OAuthBearerLoginModule required clientId="c" '
                'clientSecret="s" scope="a b" extension_lkc="x";',
                "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
                "sasl.login.callback.handler.class": HANDLER,
            },
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
                "sasl.oauthbearer.client.id": "c",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "a b",
                "sasl.oauthbearer.extensions": "lkc=x",
            },
        ),
        (
            {"sasl.jaas.config": 'com.sun.security.auth.module.Krb5LoginModule required keyTab="/k" principal="p@R";'}
            | {"sasl.kerberos.service.name": "kafka"},
            {
                "sasl.kerberos.keytab": "/k",
                "sasl.kerberos.principal": "p@R",
                "sasl.kerberos.service.name": "kafka",
            },
        ),
        ({"ssl.truststore.location": "/ca.pem"}, {"ssl.ca.location": "/ca.pem"}),
        (
            {"ssl.truststore.location": "/ca", "ssl.truststore.type": "pem", "ssl.truststore.password": "x"},
            {"ssl.ca.location": "/ca"},
        ),
        ({"ssl.truststore.certificates": "PEM"}, {"ssl.ca.pem": "PEM"}),
        (
            {"ssl.keystore.location": "/me.pem", "ssl.key.password": "x"},
            {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem", "ssl.key.password": "x"},
        ),
        (
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "x"},
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "x"},
        ),
        (
            {"ssl.keystore.key": "KEY", "ssl.keystore.certificate.chain": "CHAIN", "ssl.keystore.type": "PEM"},
            {"ssl.key.pem": "KEY", "ssl.certificate.pem": "CHAIN"},
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        ({"sasl.login.refresh.window.factor": "0.8"}, {}),
        (
            {"sasl.jaas.config": f'{SECURITY}.plain.PlainLoginModule required username="u" password="p";'}
            | {"sasl.username": "stands"},
            {"sasl.username": "stands", "sasl.password": "p"},
        ),
    ],
)
def test_keys_of_java_clients_are_translated(given: dict[str, Any], made: dict[str, Any]) -> None:
    assert librdkafka_security(given) == made


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"ssl.truststore.location": "/trust.jks"}, r"ssl\.truststore\.location.*type JKS.*ssl\.ca\.location"),
        ({"ssl.truststore.location": "/t.p12"}, r"type PKCS12.*ssl\.ca\.location"),
        ({"ssl.keystore.location": "/me.jks"}, r"ssl\.certificate\.location and ssl\.key\.location"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, r"ssl\.enabled\.protocols.*MinProtocol"),
        ({"sasl.login.callback.handler.class": "my.Handler"}, "oauth_cb"),
        ({"sasl.jaas.config": 'my.Module required password="hunter2";'}, "the login module Module.*sasl.username"),
        ({"sasl.jaas.config": 'PlainLoginModule required password="hunter2";'}, "it has no username"),
        ({"sasl.jaas.config": "hunter2"}, "is not of the form"),
        ({"sasl.jaas.config": "com.sun.Krb5LoginModule required useTicketCache=true;"}, r"sasl\.kerberos\.keytab"),
    ],
)
def test_what_librdkafka_cannot_do_is_refused_by_the_key_that_does_it(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as refused:
        librdkafka_security(given)
    assert "hunter2" not in str(refused.value)


def config_of(**values: Any) -> StreamsConfig:
    keys = {key.replace("__", "."): value for key, value in values.items()}
    return StreamsConfig({"application.id": "app", "bootstrap.servers": "x:1", **keys}, environment={})


def test_secrets_stand_in_the_environment_or_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secrets.properties").write_text("# a comment\nuser = me\npass\\:word: hunter=2\n")
    (tmp_path / "token").write_text("from a mount\n")
    monkeypatch.setenv("APP_PASSWORD", "hunter2")
    config = config_of(
        sasl__password="${env:APP_PASSWORD}",
        sasl__username=f"${{file:{tmp_path}/secrets.properties:user}}",
        ssl__key__password=f"${{directory:{tmp_path}:token}}",
        producer__client__rack="${vault:kept:as-it-is}",
    )
    made = client_settings(config, PRODUCER)
    assert (made["sasl.password"], made["sasl.username"]) == ("hunter2", "me")
    assert made["ssl.key.password"] == "from a mount"
    assert made["client.rack"] == "${vault:kept:as-it-is}"
    assert b"hunter2" not in pickle.dumps(config)
    assert "hunter2" not in f"{config!r}{config.client_config()}"


def test_a_reference_within_a_line_of_jaas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APP_PASSWORD", "hunter2")
    line = 'PlainLoginModule required username="me" password="${env:APP_PASSWORD}";'
    assert client_settings(config_of(sasl__jaas__config=line), ADMIN)["sasl.password"] == "hunter2"


def test_providers_have_the_names_that_the_configuration_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APP_PASSWORD", "hunter2")
    keys = {
        "config.providers": "surroundings",
        "config.providers.surroundings.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    }
    made = client_settings(config_of(sasl__password="${surroundings:APP_PASSWORD}", **keys), ADMIN)
    assert made["sasl.password"] == "hunter2"
    assert not [key for key in made if key.startswith("config.")]
    keys["config.providers.surroundings.class"] = "my.Provider"
    with pytest.raises(ConfigError, match=r"config\.providers\.surroundings\.class"):
        client_settings(config_of(**keys), ADMIN)


@pytest.mark.parametrize("reference", ["${env:NOT_SET}", "${file:/nowhere/file:key}", "${directory:/nowhere:name}"])
def test_what_is_not_there_is_named_by_its_reference(reference: str) -> None:
    with pytest.raises(ConfigError) as refused:
        client_settings(config_of(sasl__password=reference), ADMIN)
    assert reference in str(refused.value)
    assert "sasl.password" in str(refused.value)
