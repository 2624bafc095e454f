"""Keys, their defaults and environment variables, and what values cannot be."""

from __future__ import annotations

import pytest

from penstock.config import StreamsConfig, environment_name, redacted, streams_config
from penstock.errors import ConfigError
from penstock.serdes import Serdes


def test_a_key_comes_from_the_mapping_then_the_environment_then_its_row() -> None:
    environment = {"PENSTOCK_APPLICATION_ID": "from-environment", "PENSTOCK_STATE_DIR": "there"}
    found = StreamsConfig({"application.id": "from-mapping"}, environment)
    assert (found["application.id"], found["state.dir"], found["penstock.poll.ms"]) == ("from-mapping", "there", 100)


def test_keys_of_penstock_are_not_prefixed_twice() -> None:
    assert environment_name("penstock.spark.master") == "PENSTOCK_SPARK_MASTER"
    assert environment_name("application.id") == "PENSTOCK_APPLICATION_ID"


@pytest.mark.parametrize(
    ("given", "environment", "bytes_"),
    [
        ({"cache.max.bytes.buffering": 0}, {}, 0),
        ({"cache.max.bytes.buffering": "7"}, {}, 7),
        ({"cache.max.bytes.buffering": 0, "statestore.cache.max.bytes": 5}, {}, 5),
        ({"cache.max.bytes.buffering": 0}, {"PENSTOCK_STATESTORE_CACHE_MAX_BYTES": "5"}, 0),
        ({}, {"PENSTOCK_CACHE_MAX_BYTES_BUFFERING": "3"}, 3),
        ({}, {"PENSTOCK_CACHE_MAX_BYTES_BUFFERING": "3", "PENSTOCK_STATESTORE_CACHE_MAX_BYTES": "5"}, 5),
    ],
)
def test_the_deprecated_size_of_the_cache_holds_where_the_new_one_is_not_set(
    given: dict[str, object], environment: dict[str, str], bytes_: int
) -> None:
    assert StreamsConfig(given, environment)["statestore.cache.max.bytes"] == bytes_


def test_an_override_under_a_deprecated_name_goes_before_the_application() -> None:
    application = StreamsConfig({"statestore.cache.max.bytes": 5}, {})
    assert application.overridden({"cache.max.bytes.buffering": 0})["statestore.cache.max.bytes"] == 0


@pytest.mark.parametrize(("value", "meant"), [("rocksDB", "rocksdb"), ("in_memory", "in_memory")])
def test_the_deprecated_kind_of_the_stores_of_the_dsl_holds(value: str, meant: str) -> None:
    assert StreamsConfig({"default.dsl.store": value}, {})["dsl.store.suppliers.class"] == meant
    both = StreamsConfig({"default.dsl.store": value, "dsl.store.suppliers.class": "rocksdb"}, {})
    assert both["dsl.store.suppliers.class"] == "rocksdb"


def test_a_deprecated_name_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    streams_config._warned.clear()
    for _ in range(2):
        StreamsConfig({"cache.max.bytes.buffering": 0}, {})
    assert [record.getMessage() for record in caplog.records] == [
        "The configuration cache.max.bytes.buffering is deprecated; set statestore.cache.max.bytes instead."
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("processing.guarantee", "sometimes"),
        ("penstock.batch.max.bytes", "many"),
        ("penstock.batch.max.bytes", 3),
        ("statestore.cache.max.bytes", True),
        ("default.key.serde", "strings"),
        ("default.timestamp.extractor", 5),
        ("application.id", 5),
    ],
)
def test_a_wrong_value_is_refused_with_its_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=key):
        StreamsConfig({key: value}, {})


def test_a_wrong_value_names_the_environment_variable_that_sets_it() -> None:
    environment = {"PENSTOCK_NUM_STREAM_THREADS": "many"}
    with pytest.raises(
        ConfigError, match=r"'many' for configuration num\.stream\.threads.*PENSTOCK_NUM_STREAM_THREADS"
    ):
        StreamsConfig({}, environment)
    with pytest.raises(ConfigError) as caught:
        StreamsConfig({"num.stream.threads": "some"}, environment)
    assert "PENSTOCK" not in str(caught.value)


@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_variable_sets_nothing(value: str) -> None:
    config = StreamsConfig({}, {"PENSTOCK_NUM_STREAM_THREADS": value, "PENSTOCK_APPLICATION_ID": value})
    assert config["num.stream.threads"] == 1
    assert config["application.id"] is None


@pytest.mark.parametrize("variable", ["PENSTOCK_UI_PORT", "PENSTOCK_METRICS_PROMETHEUS_PORT"])
def test_the_address_of_a_service_in_kubernetes_is_no_port(variable: str, caplog: pytest.LogCaptureFixture) -> None:
    config = StreamsConfig({}, {variable: "tcp://10.0.0.7:80", "PENSTOCK_UI_PORT_80_TCP_PORT": "80"})
    assert config["penstock.ui.port"] is None
    assert config["penstock.metrics.prometheus.port"] is None
    assert caplog.messages == [
        f"{variable}=tcp://10.0.0.7:80 is ignored: Kubernetes sets it for a service of that name."
    ]


def test_a_misspelt_variable_is_named_with_the_one_that_is_meant(caplog: pytest.LogCaptureFixture) -> None:
    StreamsConfig({}, {"PENSTOCK_BOOTSTRAP_SERVER": "kafka:9092", "PENSTOCK_ELSEWHERE": "1"})
    [message] = caplog.messages
    assert message.endswith("PENSTOCK_BOOTSTRAP_SERVER is ignored: did you mean PENSTOCK_BOOTSTRAP_SERVERS?")


def test_a_missing_key_is_named_with_its_environment_variable() -> None:
    with pytest.raises(ConfigError, match=r"'application\.id'.*PENSTOCK_APPLICATION_ID"):
        StreamsConfig({}, {}).required("application.id")


def test_secrets_are_not_shown() -> None:
    shown = repr(StreamsConfig({"sasl.password": "hunter2", "ssl.key.pem": "PRIVATE", "client.id": "me"}, {}))
    assert "hunter2" not in shown
    assert "PRIVATE" not in shown
    assert "client.id=me" in shown


def test_keys_of_clients_pass_through() -> None:
    found = StreamsConfig(
        {"bootstrap.servers": "a:1", "security.protocol": "SSL", "default.key.serde": Serdes.string()}, {}
    )
    assert found.client_config() == {"bootstrap.servers": "a:1", "security.protocol": "SSL"}


def test_names_and_directories_follow_the_application_unless_they_are_set() -> None:
    given = {"application.id": "app", "state.dir": "/state"}
    config = StreamsConfig(given, environment={})
    assert (config.client_id(), config.checkpoint_directory()) == ("app", "/state/app/checkpoint")
    own = config.overridden({"client.id": "me", "penstock.checkpoint.dir": "/checkpoint"})
    assert (own.client_id(), own.checkpoint_directory()) == ("me", "/checkpoint")
    assert config.overridden({}) is config


@pytest.mark.parametrize(
    ("key", "is_hidden"),
    [
        ("ssl.keystore.key", True),
        ("SASL.JAAS.config", True),
        ("basic.auth.user.info", True),
        ("ssl.ca.location", False),
        ("application.id", False),
    ],
)
def test_a_secret_is_hidden_by_its_key(key: str, is_hidden: bool) -> None:
    assert redacted(key, 5) == ("[hidden]" if is_hidden else "5")


def test_an_unknown_key_of_penstock_is_refused_with_the_one_that_is_meant() -> None:
    with pytest.raises(
        ConfigError, match=r"^Unknown configuration penstock\.ui\.prot: did you mean penstock\.ui\.port\?"
    ):
        StreamsConfig({"penstock.ui.prot": 1}, environment={})
