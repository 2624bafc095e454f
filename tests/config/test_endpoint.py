"""The address of `application.server`, as Kafka checks it."""

from __future__ import annotations

import pytest

from penstock.config import StreamsConfig
from penstock.config.endpoint import endpoint, host_and_port
from penstock.errors import ConfigError

KEY = StreamsConfig.APPLICATION_SERVER_CONFIG


@pytest.mark.parametrize(
    ("given", "host", "port"),
    [
        ("localhost:80", "localhost", 80),
        ("10.0.0.1:8080", "10.0.0.1", 8080),
        ("my_host-1.example.com:0", "my_host-1.example.com", 0),
        ("[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
        ("::1:80", "::1", 80),
        ("http://localhost:80", "localhost", 80),
        ("localhost:2147483647", "localhost", 2147483647),
    ],
)
def test_an_endpoint_is_taken_unchanged(given: str, host: str, port: int) -> None:
    assert StreamsConfig({KEY: given}, environment={})[KEY] == given
    assert host_and_port(given) == (host, port)


@pytest.mark.parametrize("blank", ["", "  ", "\t"])
def test_a_blank_endpoint_is_as_if_it_were_not_set(blank: str) -> None:
    assert StreamsConfig({KEY: blank}, environment={})[KEY] is None


@pytest.mark.parametrize(
    "wrong",
    ["localhost", "localhost:", ":80", "[]:80", "a b:80", "host:port", "host:-1", "host:80/", "h:2147483648", "h:٣"],
)
def test_any_other_text_is_refused_with_the_key(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"for configuration application\.server: expected host:port"):
        StreamsConfig({KEY: wrong}, environment={})


def test_an_endpoint_is_a_text() -> None:
    with pytest.raises(ConfigError, match=r"Invalid value 80 for configuration k: expected a string"):
        endpoint("k", 80)
