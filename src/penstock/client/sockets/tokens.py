"""Tokens for OAUTHBEARER, with the same sources as in librdkafka.

They come from the user's function, from an HTTP server, or are unsigned, for tests. Rule: a token is requested again
only when it is about to expire. Errors never contain tokens or secrets.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from penstock.client.sockets.tls import trusted_by
from penstock.errors import AuthenticationError, ConfigError

_RENEWED_AT: Final = 0.8
"""Fraction of its lifetime after which a token is replaced, as in librdkafka."""

_LARGEST_ANSWER: Final = 1024 * 1024


class Token(NamedTuple):
    """A token. expires_s: seconds since the epoch; extensions: sent to the broker with the token."""

    value: str
    expires_s: float
    extensions: Mapping[str, str]


TokenSource = Callable[[], Token]
"""Returns a valid token."""


def token_source(settings: Mapping[str, Any], timeout_ms: int) -> TokenSource:
    """Return the token source of a client.

    Args:
        settings: the settings of the client, under librdkafka's names.
        timeout_ms: the timeout (ms) of an HTTP request.

    Raises:
        ConfigError: no source is configured, or Penstock's own connections do not have it.
    """
    text = str(settings.get("sasl.oauthbearer.config", ""))
    if (given := settings.get("oauth_cb")) is not None:
        return _kept(lambda: _of_function(given, text))
    if str(settings.get("sasl.oauthbearer.method", "default")).lower() == "oidc":
        return _kept(_server(settings, timeout_ms))
    if str(settings.get("enable.sasl.oauthbearer.unsecure.jwt", False)).lower() in ("true", "1"):
        claims = dict(part.partition("=")[::2] for part in text.split())
        if "principal" not in claims:
            raise ConfigError("Invalid configuration sasl.oauthbearer.config: expected principal=NAME in it.")
        return _kept(lambda: unsecured_token(claims, time.time()))
    raise ConfigError(
        "Missing required configuration 'oauth_cb': sasl.mechanism=OAUTHBEARER needs a function that returns tokens, "
        "or sasl.oauthbearer.method=oidc with sasl.oauthbearer.token.endpoint.url."
    )


def _kept(ask: TokenSource) -> TokenSource:
    kept: list[tuple[Token, float]] = []

    def token() -> Token:
        if not kept or time.monotonic() >= kept[0][1] or time.time() >= kept[0][0].expires_s:
            found = ask()
            kept[:] = [(found, time.monotonic() + (found.expires_s - time.time()) * _RENEWED_AT)]
        return kept[0][0]

    return token


def _of_function(function: Callable[[str], Any], text: str) -> Token:
    """Return the result of the user's `oauth_cb`.

    It has a token, its expiry (s), and optionally a principal and extensions.
    """
    found = function(text)
    try:
        value, expires_s, *others = found
        extensions = others[1] if len(others) > 1 else None
        return Token(str(value), float(expires_s), dict(extensions or {}))
    except (TypeError, ValueError):
        raise ConfigError(
            "Invalid configuration oauth_cb: it must return (token, expiry in seconds since the epoch), or these with "
            f"a principal and a dict of extensions, and returned {type(found).__name__}."
        ) from None


def unsecured_token(claims: Mapping[str, str], now_s: float) -> Token:
    """Return a token without a signature, for tests.

    Args:
        claims: the parts of sasl.oauthbearer.config.
        now_s: the current time, in seconds since the epoch.

    Raises:
        ConfigError: lifeSeconds is not a number.
    """
    try:
        expires_s = now_s + int(claims.get("lifeSeconds", "3600"))
    except ValueError:
        raise ConfigError(
            "Invalid configuration sasl.oauthbearer.config: lifeSeconds must be a number of seconds."
        ) from None
    body: dict[str, Any] = {
        claims.get("principalClaimName", "sub"): claims["principal"], "iat": round(now_s, 3), "exp": round(expires_s, 3)
    }  # fmt: skip
    if scope := claims.get("scope"):
        body[claims.get("scopeClaimName", "scope")] = scope.split(",")
    extensions = {name.removeprefix("extension_"): v for name, v in claims.items() if name.startswith("extension_")}
    return Token(f"{_part({'alg': 'none'})}.{_part(body)}.", expires_s, extensions)


def _part(content: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def _server(settings: Mapping[str, Any], timeout_ms: int) -> TokenSource:
    """Return the source of tokens from a server (OpenID Connect, client credentials)."""
    if settings.get("sasl.oauthbearer.grant.type", "client_credentials") != "client_credentials":
        raise ConfigError(
            "Invalid configuration sasl.oauthbearer.grant.type: Penstock's own connections only have "
            "client_credentials."
        )
    url, user, secret = (
        _required(settings, f"sasl.oauthbearer.{name}") for name in ("token.endpoint.url", "client.id", "client.secret")
    )
    if not url.startswith(("https://", "http://")):
        raise ConfigError("Invalid configuration sasl.oauthbearer.token.endpoint.url: expected an address of http(s).")
    fields = {"grant_type": "client_credentials", "scope": settings.get("sasl.oauthbearer.scope")}
    body = urllib.parse.urlencode({name: value for name, value in fields.items() if value}).encode()
    basic = base64.b64encode(f"{urllib.parse.quote(user)}:{urllib.parse.quote(secret)}".encode()).decode()
    headers = {"Authorization": f"Basic {basic}", "Accept": "application/json"}
    extensions = dict(
        each.strip().partition("=")[::2]
        for each in str(settings.get("sasl.oauthbearer.extensions", "")).split(",")
        if each
    )
    context = ssl.create_default_context()
    trusted_by(context, settings.get("https.ca.location"), settings.get("https.ca.pem"), "https.ca.location")

    def ask() -> Token:
        request = urllib.request.Request(url, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout_ms / 1000, context=context) as answer:
                value = str(json.loads(answer.read(_LARGEST_ANSWER))["access_token"])
            return Token(value, _expiry(value), extensions)
        except urllib.error.HTTPError as error:
            reason = f"it answered {error.code} {error.reason}"
        except OSError as error:
            reason = str(getattr(error, "reason", error))
        except (KeyError, TypeError, ValueError):
            reason = "its answer has no access_token that is a JWT with the claim exp"
        raise AuthenticationError(f"the server of sasl.oauthbearer.token.endpoint.url gave no token: {reason}")

    return ask


def _expiry(value: str) -> float:
    payload = value.split(".")[1] if value.count(".") == 2 else ""
    return float(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"])


def _required(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key)
    if not value:
        raise ConfigError(f"Missing required configuration {key!r}: sasl.oauthbearer.method=oidc needs it.")
    return str(value)
