"""The keys of Penstock: their names, their hosts, and servers that no other machine can reach by default."""

from __future__ import annotations

import pytest

from penstock.config import StreamsConfig
from penstock.config.definition import SPARK, THREADS
from penstock.config.penstock_keys import PENSTOCK_KEYS
from penstock.errors import ConfigError


def keys_with(ending: str) -> list[str]:
    return [key.name for key in PENSTOCK_KEYS if key.name.endswith(ending)]


def test_the_names_have_the_prefix_of_penstock() -> None:
    assert [key.name for key in PENSTOCK_KEYS if not key.name.startswith("penstock.")] == []


def test_each_key_has_an_effect_on_a_host() -> None:
    assert [key.name for key in PENSTOCK_KEYS if {SPARK, THREADS} <= key.without_effect.keys()] == []
    assert [key.name for key in PENSTOCK_KEYS if ".spark." in key.name and THREADS not in key.without_effect] == []


def test_by_default_no_server_runs_or_is_open_to_other_machines() -> None:
    config = StreamsConfig({}, environment={})
    assert {config[name] for name in keys_with(".port")} == {None}
    assert {config[name.replace(".port", ".host")] for name in keys_with(".port")} == {"127.0.0.1"}
    assert config["penstock.ui.control"] is False


@pytest.mark.parametrize("name", keys_with(".port"))
def test_a_port_may_be_any_free_one(name: str) -> None:
    assert StreamsConfig({name: "0"}, environment={})[name] == 0
    with pytest.raises(ConfigError, match=f"{name}: expected 0 or more"):
        StreamsConfig({name: -1}, environment={})


@pytest.mark.parametrize("name", ["penstock.http.max.connections", "penstock.http.timeout.ms"])
def test_a_server_without_connections_or_time_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: expected 1 or more"):
        StreamsConfig({name: 0}, environment={})
