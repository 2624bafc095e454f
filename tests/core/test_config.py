"""Keys, their defaults and environment variables, and what values cannot be."""

from __future__ import annotations

import pytest

from penstock.config import StreamsConfig, environment_name
from penstock.config_keys import KEYS
from penstock.errors import ConfigError
from penstock.serdes import Serdes, StringSerde


def test_a_key_comes_from_the_mapping_then_the_environment_then_its_row() -> None:
    environment = {"PENSTOCK_APPLICATION_ID": "from-environment", "PENSTOCK_STATE_DIR": "there"}
    config = StreamsConfig({"application.id": "from-mapping"}, environment)
    assert (config["application.id"], config["state.dir"], config["penstock.poll.ms"]) == ("from-mapping", "there", 100)


def test_keys_of_penstock_are_not_prefixed_twice() -> None:
    assert environment_name("penstock.spark.master") == "PENSTOCK_SPARK_MASTER"
    assert environment_name("application.id") == "PENSTOCK_APPLICATION_ID"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("processing.guarantee", "sometimes"),
        ("penstock.batch.max.bytes", "many"),
        ("penstock.batch.max.bytes", 3),
        ("statestore.cache.max.bytes", True),
        ("default.key.serde", "string"),
        ("default.timestamp.extractor", 5),
        ("application.id", 5),
    ],
)
def test_a_wrong_value_is_refused_with_its_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=key):
        StreamsConfig({key: value}, {})


def test_a_missing_key_is_named_with_its_environment_variable() -> None:
    with pytest.raises(ConfigError, match=r"'application\.id'.*PENSTOCK_APPLICATION_ID"):
        StreamsConfig({}, {}).required("application.id")


def test_a_serde_may_be_given_as_a_class() -> None:
    assert isinstance(StreamsConfig({"default.key.serde": StringSerde}, {})["default.key.serde"], StringSerde)


def test_secrets_are_not_shown() -> None:
    shown = repr(StreamsConfig({"sasl.password": "hunter2", "ssl.key.pem": "PRIVATE", "client.id": "me"}, {}))
    assert "hunter2" not in shown
    assert "PRIVATE" not in shown
    assert "client.id=me" in shown


def test_keys_of_clients_pass_through() -> None:
    config = StreamsConfig(
        {"bootstrap.servers": "a:1", "security.protocol": "SSL", "default.key.serde": Serdes.string()}, {}
    )
    assert config.client_config() == {"bootstrap.servers": "a:1", "security.protocol": "SSL"}


def test_every_row_says_what_it_does_and_its_default_is_valid() -> None:
    for name, row in KEYS.items():
        assert row.importance in ("high", "medium", "low"), name
        assert row.doc.endswith("."), name
        if row.default is not None:
            assert row.parse(name, row.default) == row.default
