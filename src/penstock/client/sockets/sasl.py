"""The logins of a connection: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER, without sockets.

A login is an exchange: a generator that yields the messages of the client and receives those of the broker. Rule: with
SCRAM, a broker that cannot prove its knowledge of the password is refused. Errors never contain values of settings.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

from penstock.client.sockets.tokens import Token, token_source
from penstock.errors import AuthenticationError, ConfigError

Exchange = Generator[bytes, bytes, None]
"""One login: yields the messages of the client, receives those of the broker."""

_MOST_ITERATIONS: Final = 1_000_000
"""Maximum for SCRAM: the broker determines the number of hashes that the client computes."""

_LEAST_ITERATIONS: Final = 4_096


class Mechanism:
    """A SASL mechanism.

    Args:
        name: its name in SaslHandshake.
        begin: starts a login.
    """

    def __init__(self, name: str, begin: Callable[[], Exchange]) -> None:
        self.name = name
        self.begin = begin


def mechanism(settings: Mapping[str, Any], timeout_ms: int) -> Mechanism:
    """Return the configured SASL mechanism of a client.

    Args:
        settings: the settings of the client, under librdkafka's names.
        timeout_ms: the timeout (ms) of a request for a token.

    Raises:
        ConfigError: Penstock's own connections do not have the mechanism, or a key is missing.
    """
    name = str(settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "GSSAPI"))).upper()
    match name:
        case "PLAIN":
            user, password = _credentials(settings)
            return Mechanism(name, lambda: plain(user, password))
        case "SCRAM-SHA-256" | "SCRAM-SHA-512":
            user, password = _credentials(settings)
            algorithm = name.removeprefix("SCRAM-").replace("-", "").lower()
            return Mechanism(name, lambda: scram(algorithm, user, password, secrets.token_urlsafe(24)))
        case "OAUTHBEARER":
            token = token_source(settings, timeout_ms)
            return Mechanism(name, lambda: oauthbearer(token()))
        case _:
            raise ConfigError(
                f"Invalid configuration sasl.mechanism: Penstock's own connections do not have {name}; they log in by "
                "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."
            )


def _credentials(settings: Mapping[str, Any]) -> tuple[str, str]:
    for key in ("sasl.username", "sasl.password"):
        if settings.get(key) is None:
            raise ConfigError(f"Missing required configuration {key!r}: sasl.mechanism needs it.")
    return str(settings["sasl.username"]), str(settings["sasl.password"])


def plain(user: str, password: str) -> Exchange:
    """Log in by PLAIN (RFC 4616)."""
    yield f"\0{user}\0{password}".encode()


def oauthbearer(token: Token) -> Exchange:
    """Log in with a token (RFC 7628)."""
    extensions = "".join(f"{name}={value}\x01" for name, value in token.extensions.items())
    refusal = yield f"n,,\x01auth=Bearer {token.value}\x01{extensions}\x01".encode()
    if refusal:
        # The broker has sent its reason, and expects one more message before it ends the login.
        yield b"\x01"


def scram(algorithm: str, user: str, password: str, nonce: str) -> Exchange:
    """Log in by SCRAM (RFC 5802).

    Args:
        algorithm: sha256 or sha512.
        user: the name of the user.
        password: the password of the user.
        nonce: a random text for this login.

    Raises:
        AuthenticationError: the broker violates the protocol, or does not know the password.
    """
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    text = (yield f"n,,{first}".encode()).decode("utf-8", "replace")
    challenge = _attributes(text)
    try:
        salt, iterations = base64.b64decode(challenge["s"], validate=True), int(challenge["i"])
        agreed = challenge["r"]
    except (KeyError, ValueError) as error:
        raise AuthenticationError(f"the broker's challenge of SCRAM cannot be read ({type(error).__name__})") from None
    if not agreed.startswith(nonce) or not _LEAST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
        raise AuthenticationError(
            f"the broker's challenge of SCRAM is refused: its nonce must begin with that of the client, and its "
            f"iterations lie between {_LEAST_ITERATIONS} and {_MOST_ITERATIONS}"
        )
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    last = f"c=biws,r={agreed}"
    signed = f"{first},{text},{last}".encode()
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), signed, algorithm)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    answer = _attributes((yield f"{last},p={proof}".encode()).decode("utf-8", "replace"))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm)
    if not hmac.compare_digest(answer.get("v", ""), base64.b64encode(expected).decode()):
        raise AuthenticationError("the broker does not know the password (its signature of SCRAM is wrong)")


def _attributes(text: str) -> dict[str, str]:
    parts = (part.partition("=") for part in text.split(","))
    return {key: value for key, _, value in parts}
