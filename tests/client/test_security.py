"""Kafka's security keys in those of librdkafka."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.client.security import librdkafka_security
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
