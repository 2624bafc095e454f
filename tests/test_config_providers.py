"""References to the environment and to files in values of configuration keys."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock.client.settings import ADMIN, PRODUCER, client_settings
from penstock.config import StreamsConfig
from penstock.config_providers import PROVIDERS, is_of_providers, providers, resolved
from penstock.errors import ConfigError


def config_of(**values: Any) -> StreamsConfig:
    keys = {key.replace("__", "."): value for key, value in values.items()}
    return StreamsConfig({"application.id": "app", "bootstrap.servers": "x:1", **keys}, environment={})


def test_secrets_stand_in_the_environment_or_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secrets.properties").write_text("# a comment\nuser = me\npass\\:word: hunter=2\n")
    (tmp_path / "token").write_text("from a mount\n")
    monkeypatch.setenv("APP_PASSWORD", "hunter2")
    config = config_of(
        sasl__password="${env:APP_PASSWORD}",
        sasl__username=f"${{file:{tmp_path}/secrets.properties:user}}",
        ssl__key__password=f"${{directory:{tmp_path}:token}}",
        producer__client__rack="${vault:kept:as-it-is}",
    )
    made = client_settings(config, PRODUCER)
    assert (made["sasl.password"], made["sasl.username"]) == ("hunter2", "me")
    assert made["ssl.key.password"] == "from a mount"
    assert made["client.rack"] == "${vault:kept:as-it-is}"
    assert b"hunter2" not in pickle.dumps(config)
    assert "hunter2" not in f"{config!r}{config.client_config()}"


def test_a_reference_within_a_line_of_jaas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APP_PASSWORD", "hunter2")
    line = 'PlainLoginModule required username="me" password="${env:APP_PASSWORD}";'
    assert client_settings(config_of(sasl__jaas__config=line), ADMIN)["sasl.password"] == "hunter2"


def test_providers_have_the_names_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APP_PASSWORD", "hunter2")
    keys = {
        "config.providers": "surroundings",
        "config.providers.surroundings.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    }
    made = client_settings(config_of(sasl__password="${surroundings:APP_PASSWORD}", **keys), ADMIN)
    assert made["sasl.password"] == "hunter2"
    assert not [key for key in made if key.startswith("config.")]
    keys["config.providers.surroundings.class"] = "my.Provider"
    with pytest.raises(ConfigError, match=r"config\.providers\.surroundings\.class"):
        client_settings(config_of(**keys), ADMIN)


@pytest.mark.parametrize("reference", ["${env:NOT_SET}", "${file:/nowhere/file:key}", "${directory:/nowhere:name}"])
def test_a_missing_value_is_named_by_its_reference(reference: str) -> None:
    with pytest.raises(ConfigError) as refused:
        client_settings(config_of(sasl__password=reference), ADMIN)
    assert reference in str(refused.value)
    assert "sasl.password" in str(refused.value)


@pytest.mark.parametrize(
    "value", [None, 5, True, b"${env:SET}", "plain", "${", "${env}", "${vault:path:key}", "$env:SET"]
)
def test_a_value_without_a_known_reference_is_kept(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SET", "hunter2")
    assert resolved("k", value) == value


def test_each_reference_of_a_value_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "${env:TWO}")
    monkeypatch.setenv("TWO", "")
    assert resolved("k", "a ${env:ONE} b ${env:TWO}${env:ONE} ${no:ONE}") == "a ${env:TWO} b ${env:TWO} ${no:ONE}"


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("k=v", "k", "v"),
        ("  k : v = w", "k", "v = w"),
        ("k v", "k", "v"),
        ("k=", "k", ""),
        ("a\\=b=c\\:d", "a=b", "c:d"),
        ("k=ä", "k", "ä"),
        ("k=first\nk=last", "k", "last"),
    ],
)
def test_a_line_of_a_properties_file_has_key_and_value(tmp_path: Path, line: str, key: str, value: str) -> None:
    (tmp_path / "p").write_text(f"# k=comment\n! k=comment\n\n{line}\n", encoding="utf-8")
    assert resolved("x", f"${{file:{tmp_path}/p:{key}}}") == value


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("k=a\\nb\\tc", "a\nb\tc"),
        ("k=gr\\u00fcn", "gr\u00fcn"),
        ("k=trailing  ", "trailing  "),
        ("k", ""),
        ("k=one,\\\n    two", "one,two"),
        ("k=back\\\\\nnext=line", "back\\"),
    ],
)
def test_a_properties_file_is_read_as_by_java(tmp_path: Path, line: str, value: str) -> None:
    (tmp_path / "p").write_text(f"{line}\nlast=1\n", encoding="utf-8")
    assert resolved("x", f"${{file:{tmp_path}/p:k}}") == value


def test_a_missing_key_of_a_file_has_no_value(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("# k=comment\nkey=v\n")
    with pytest.raises(ConfigError, match=r"Invalid configuration x: \$\{file:.*/p:k\} has no value\. Set it, or"):
        resolved("x", f"${{file:{tmp_path}/p:k}}")


@pytest.mark.parametrize(
    ("text", "value"), [("a b", "a b"), ("ä\n", "ä"), ("x\r\n\n", "x"), ("a\nb\n", "a\nb"), ("", "")]
)
def test_a_file_of_a_directory_is_its_value_without_newlines_at_the_end(tmp_path: Path, text: str, value: str) -> None:
    (tmp_path / "secret").write_bytes(text.encode())
    assert resolved("k", f"${{directory:{tmp_path}:secret}}") == value
    assert resolved("k", f"${{dir:{tmp_path}:secret}}") == value


def test_a_provider_without_a_class_has_the_one_of_its_name() -> None:
    assert providers({}) == PROVIDERS
    assert providers({"config.providers": " env , "}) == PROVIDERS
    swapped = {"config.providers": "env,more", "config.providers.env.class": "FileConfigProvider"}
    given_classes = {**swapped, "config.providers.more.class": "a.b.DirectoryConfigProvider"}
    assert providers(given_classes) == {**PROVIDERS, "env": "file", "more": "directory"}
    classes = "DirectoryConfigProvider, EnvVarConfigProvider, FileConfigProvider"
    with pytest.raises(ConfigError, match=rf"config\.providers\.more\.class: it must be one of {classes}\."):
        providers(swapped)


def test_only_keys_of_providers_configure_providers() -> None:
    keys = ["config.providers", "config.providers.env.class", "config.provider", "config.providersx"]
    assert [is_of_providers(key) for key in keys] == [True, True, False, False]
