"""The keys of HTTP servers: by default, none runs, and none can be reached from other machines."""

from __future__ import annotations

import pytest
from penstock.config.http_keys import HTTP_KEYS

from penstock.config import StreamsConfig
from penstock.errors import ConfigError


def keys_with(ending: str) -> list[str]:
    return [key.name for key in HTTP_KEYS if key.name.endswith(ending)]


def test_by_default_no_server_runs_or_is_open_to_other_machines() -> None:
    config = StreamsConfig({}, environment={})
    assert {config[name] for name in keys_with(".port")} == {None}
    assert {config[name] for name in keys_with(".host")} == {"127.0.0.1"}
    assert config["penstock.ui.control"] is False


def test_each_port_has_an_address() -> None:
    assert [name.removesuffix(".port") for name in keys_with(".port")] == [
        name.removesuffix(".host") for name in keys_with(".host")
    ]


@pytest.mark.parametrize("name", keys_with(".port"))
def test_a_port_may_be_any_free_one(name: str) -> None:
    assert StreamsConfig({name: "0"}, environment={})[name] == 0
    with pytest.raises(ConfigError, match=f"{name}: expected 0 or more"):
        StreamsConfig({name: -1}, environment={})


@pytest.mark.parametrize("name", ["penstock.http.max.connections", "penstock.http.timeout.ms"])
def test_a_server_without_connections_or_time_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: expected 1 or more"):
        StreamsConfig({name: 0}, environment={})
