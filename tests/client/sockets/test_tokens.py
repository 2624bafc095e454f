"""Tokens: where they come from, and how long they are kept."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs

import pytest

from penstock.client.sockets.tokens import token_source, unsecured_token
from penstock.errors import AuthenticationError, ConfigError


def claims_of(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return found


def test_a_function_is_asked_again_when_its_token_is_about_to_expire() -> None:
    asked: list[str] = []

    def ask(text: str) -> tuple[str, float]:
        asked.append(text)
        return f"token-{len(asked)}", time.time() + (-1 if len(asked) == 1 else 3600)

    source = token_source({"oauth_cb": ask, "sasl.oauthbearer.config": "mine"}, 1000)
    assert [source().value for _ in range(3)] == ["token-1", "token-2", "token-2"]
    assert asked == ["mine", "mine"]


def test_a_function_may_give_extensions() -> None:
    source = token_source({"oauth_cb": lambda _: ("t", time.time() + 9, "user", {"a": "b"})}, 1000)
    assert source().extensions == {"a": "b"}


def test_a_function_that_returns_something_else_is_named() -> None:
    with pytest.raises(ConfigError, match=r"oauth_cb.*returned str"):
        token_source({"oauth_cb": lambda _: "token"}, 1000)()


@pytest.mark.parametrize("leap_s", [86_400, -86_400])
def test_a_token_is_replaced_in_time_though_the_clock_leapt_when_it_came(
    monkeypatch: pytest.MonkeyPatch, leap_s: int
) -> None:
    now, ahead, asked = time.time(), 0.0, 0

    def ask(_: str) -> tuple[str, float]:
        nonlocal asked
        asked += 1
        return str(asked), now + 60 * asked

    monkeypatch.setattr(time, "time", lambda: now + ahead)
    source = token_source({"oauth_cb": ask}, 1000)
    ahead = leap_s
    source()
    ahead = 61
    assert source().expires_s > time.time()


def test_an_unsecured_token_has_the_claims_of_librdkafka() -> None:
    given = {"principal": "alice", "scope": "a,b", "lifeSeconds": "60", "extension_x": "y"}
    token = unsecured_token(given, 1000.0)
    assert claims_of(token.value) == {"sub": "alice", "iat": 1000.0, "exp": 1060.0, "scope": ["a", "b"]}
    assert token.value.endswith(".")
    assert (token.expires_s, token.extensions) == (1060.0, {"x": "y"})


def test_a_missing_source_is_named() -> None:
    with pytest.raises(ConfigError, match="oauth_cb"):
        token_source({}, 1000)
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.token\.endpoint\.url"):
        token_source({"sasl.oauthbearer.method": "oidc"}, 1000)
    with pytest.raises(ConfigError, match="principal=NAME"):
        token_source({"enable.sasl.oauthbearer.unsecure.jwt": "true"}, 1000)


class Answers(BaseHTTPRequestHandler):
    """A server of tokens: knows one client, and notes what it was asked."""

    asked: ClassVar[list[dict[str, list[str]]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append(parse_qs(body))
        if self.headers["Authorization"] != "Basic " + base64.b64encode(b"me:its-secret").decode():
            self.send_error(401, "Unauthorized")
            return
        token = unsecured_token({"principal": "alice"}, time.time()).value
        answer = json.dumps({"access_token": token} if self.path == "/token" else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing to standard error."""


@pytest.fixture
def server() -> Iterator[str]:
    Answers.asked.clear()
    with HTTPServer(("127.0.0.1", 0), Answers) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def oidc(server: str, path: str = "/token", secret: str = "its-secret") -> dict[str, Any]:
    return {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": f"{server}{path}",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": secret,
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "a=b,c=d",
    }


def test_a_server_gives_tokens(server: str) -> None:
    source = token_source(oidc(server), 20_000)
    token = source()
    assert claims_of(token.value)["sub"] == "alice"
    assert token.extensions == {"a": "b", "c": "d"}
    assert source() is token
    assert Answers.asked == [{"grant_type": ["client_credentials"], "scope": ["kafka"]}]


def test_a_server_that_gives_no_token_is_reported_without_the_secret(server: str) -> None:
    with pytest.raises(AuthenticationError, match="401 Unauthorized") as refused:
        token_source(oidc(server, secret="wrong-one"), 20_000)()
    assert "wrong-one" not in str(refused.value)
    with pytest.raises(AuthenticationError, match="no access_token"):
        token_source(oidc(server, "/other"), 20_000)()
