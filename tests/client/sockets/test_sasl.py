"""The exchanges of logins, against the examples of their specifications."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from penstock.client.sockets.sasl import mechanism, oauthbearer, plain, scram
from penstock.client.sockets.tokens import Token
from penstock.errors import AuthenticationError, ConfigError

NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
"""The example of RFC 7677: user `user`, password `pencil`."""


def test_plain_sends_user_and_password() -> None:
    exchange = plain("alice", "secret")
    assert next(exchange) == b"\0alice\0secret"
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_scram_is_that_of_the_specification() -> None:
    exchange = scram("sha256", "user", "pencil", NONCE)
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.send(CHALLENGE) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        exchange.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_scram_refuses_a_broker_that_does_not_know_the_password() -> None:
    exchange = scram("sha256", "user", "pencil", NONCE)
    next(exchange)
    exchange.send(CHALLENGE)
    with pytest.raises(AuthenticationError, match="does not know the password"):
        exchange.send(b"v=" + base64.b64encode(hmac.digest(b"wrong", b"", hashlib.sha256)))


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        CHALLENGE.replace(b"4096", b"1"),
        CHALLENGE.replace(b"4096", b"2000000000"),
        CHALLENGE.replace(b"4096", b"many"),
        CHALLENGE.replace(b"W22", b"*"),
        b"e=other-error",
        b"\xff",
    ],
)
def test_scram_refuses_a_challenge_that_breaks_the_protocol(challenge: bytes) -> None:
    exchange = scram("sha256", "user", "pencil", NONCE)
    next(exchange)
    with pytest.raises(AuthenticationError, match="challenge of SCRAM"):
        exchange.send(challenge)


def test_scram_escapes_names() -> None:
    assert next(scram("sha512", "a=b,c", "x", "n")) == b"n,,n=a=3Db=2Cc,r=n"


def test_a_token_goes_with_its_extensions_and_a_refusal_is_acknowledged() -> None:
    exchange = oauthbearer(Token("t0k", 1.0, {"logicalCluster": "lkc"}))
    assert next(exchange) == b"n,,\x01auth=Bearer t0k\x01logicalCluster=lkc\x01\x01"
    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"


def test_a_mechanism_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"sasl\.mechanism.*GSSAPI"):
        mechanism({}, 1000)
    with pytest.raises(ConfigError, match=r"sasl\.password"):
        mechanism({"sasl.mechanisms": "PLAIN", "sasl.username": "u"}, 1000)
