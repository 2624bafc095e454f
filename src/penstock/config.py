"""The configuration of an application: values by key, checked.

A key comes from the user's mapping, else from the environment (`application.id` as PENSTOCK_APPLICATION_ID,
`penstock.host` as PENSTOCK_HOST), else from its row in `config_keys`. Keys without a row are kept: clients take those
that they know (any librdkafka key). Nothing here opens anything.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.config_keys import KEYS
from penstock.errors import ConfigError

_log = logging.getLogger(__name__)

_SECRET_PARTS = (
    "password",
    "secret",
    "sasl.jaas",
    "sasl.username",
    "ssl.key",
    "token",
    "credential",
    "oauthbearer.client",
)

_RENAMED = {
    "default.deserialization.exception.handler": "deserialization.exception.handler",
    "default.production.exception.handler": "production.exception.handler",
}
"""Former names of keys, which hold where the new one is not set (KIP-1056)."""


def environment_name(key: str) -> str:
    """Return the environment variable of `key`: `application.id` -> PENSTOCK_APPLICATION_ID; the prefix penstock. is
    not doubled."""
    name = key.replace(".", "_").replace("-", "_").upper()
    return name if name.startswith("PENSTOCK_") else f"PENSTOCK_{name}"


def redacted(key: str, value: Any) -> str:
    """Return `value` as it may be shown: secrets (passwords, tokens, JAAS lines ...) as [hidden]."""
    return "[hidden]" if any(part in key.lower() for part in _SECRET_PARTS) else str(value)


_warned: set[str] = set()


def warn_without_meaning(key: str) -> None:
    """Say in the log, once in a process, that the configuration `key` changes nothing where the application runs."""
    if key not in _warned:
        _warned.add(key)
        _log.warning("The configuration %s has no meaning here and is left out.", key)


class StreamsConfig(Mapping[str, Any]):
    """The configuration of one application, checked (Kafka class: StreamsConfig). Reading a key that has a row and no
    value gives its default."""

    def __init__(self, values: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None) -> None:
        """Take `values` (dotted keys), then the environment (default: os.environ); raises ConfigError for a value that
        cannot be."""
        given = dict(values or {})
        surroundings = os.environ if environment is None else environment
        for old, new in _RENAMED.items():
            if old in given and new not in given:
                given[new] = given.pop(old)
        for name in KEYS:
            if name not in given and environment_name(name) in surroundings:
                given[name] = surroundings[environment_name(name)]
        self._given: dict[str, Any] = given
        self._values: dict[str, Any] = dict(given)
        for name, row in KEYS.items():
            value = given.get(name)
            self._values[name] = row.default if value is None else row.parse(name, value)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def given(self) -> Mapping[str, Any]:
        """Return the keys and values as the user gave them (mapping and environment)."""
        return dict(self._given)

    def overridden(self, values: Mapping[str, Any]) -> StreamsConfig:
        """Return this configuration with `values` before its own; raises ConfigError for a value that cannot be."""
        return StreamsConfig({**self._given, **values}, environment={}) if values else self

    def required(self, key: str) -> Any:
        """Return the value of `key`; raises ConfigError naming the key and its environment variable if it is not
        set."""
        value = self._values.get(key)
        if value is None:
            raise ConfigError(
                f"Missing required configuration {key!r}: set it in the config or as {environment_name(key)}."
            )
        return value

    def client_config(self) -> dict[str, Any]:
        """Return the keys that have no row (a client's own, such as security settings), and bootstrap.servers."""
        own = {key: value for key, value in self._given.items() if key not in KEYS}
        if self._values["bootstrap.servers"] is not None:
            own["bootstrap.servers"] = self._values["bootstrap.servers"]
        return own

    def client_id(self) -> str:
        """Return client.id, or the application.id."""
        return str(self._values["client.id"] or self._values["application.id"] or "")

    def checkpoint_directory(self) -> str:
        """Return penstock.checkpoint.dir, or <state.dir>/<application.id>/checkpoint."""
        chosen: str | None = self._values["penstock.checkpoint.dir"]
        return chosen or str(Path(self._values["state.dir"]) / self.required("application.id") / "checkpoint")

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={redacted(key, value)}" for key, value in sorted(self._given.items()))
        return f"StreamsConfig({shown})"
