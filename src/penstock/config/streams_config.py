"""The configuration of an application: validated values by key.

The value of a key comes from the user's mapping, else from the environment (`application.id` as
PENSTOCK_APPLICATION_ID, `penstock.host` as PENSTOCK_HOST), else from its row in `config.keys`. Keys without a row are
kept for the clients, which use those that they know (any librdkafka key). Nothing here opens anything.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from penstock.config.constants import ConfigConstants
from penstock.config.isolation_level import IsolationLevel
from penstock.config.keys import KEYS
from penstock.errors import ConfigError

_log = logging.getLogger(__name__)

_SECRET_PARTS = (
    "password",
    "secret",
    "sasl.jaas",
    "sasl.username",
    "ssl.key",
    "keystore.key",
    "user.info",
    "token",
    "credential",
    "oauthbearer.client",
)

_OWN_PREFIX = "penstock."

_OF_KUBERNETES = re.compile("(tcp|udp|sctp)://")
"""The prefix of addresses that Kubernetes sets in <SERVICE>_PORT of all pods in a namespace."""

_MISSPELT = 0.9
"""The minimum similarity of a misspelt variable to a known one, from 0 to 1: a letter or two are wrong."""

FORMER_NAMES = {
    "cache.max.bytes.buffering": "statestore.cache.max.bytes",  # KIP-770
    "default.deserialization.exception.handler": "deserialization.exception.handler",  # KIP-1056
    "default.dsl.store": "dsl.store.suppliers.class",  # KIP-954
    "default.production.exception.handler": "production.exception.handler",  # KIP-1056
}
"""Deprecated names of keys, used if the new key is not set."""

_FORMER_VALUES = {("default.dsl.store", "rocksDB"): "rocksdb"}
"""The current values of keys with a deprecated name."""


def environment_name(key: str) -> str:
    """Return the environment variable of `key`: `application.id` -> PENSTOCK_APPLICATION_ID.

    The prefix penstock. is not doubled.
    """
    name = key.replace(".", "_").replace("-", "_").upper()
    return name if name.startswith("PENSTOCK_") else f"PENSTOCK_{name}"


def redacted(key: str, value: Any) -> str:
    """Return `value` for display: secrets (passwords, tokens, JAAS lines ...) as [hidden]."""
    return "[hidden]" if any(part in key.lower() for part in _SECRET_PARTS) else str(value)


_warned: set[str] = set()


def warn_without_effect(key: str, why: str) -> None:
    """Log, once per process, that the configuration `key` has no effect.

    Args:
        key: as written by the user.
        why: the reason, and the key to set instead, if any.
    """
    _warn_once(key, "The configuration %s is ignored: %s.", key, why)


def warn_of_keys_without_effect(config: StreamsConfig, host: str) -> None:
    """Warn of the user's keys that have no effect on `host`; keys without a row are the clients'."""
    for key in config.given():
        if key in KEYS and host in KEYS[key].without_effect:
            warn_without_effect(key, KEYS[key].without_effect[host])


def _warn_once(key: str, message: str, *arguments: str) -> None:
    if key not in _warned:
        _warned.add(key)
        _log.warning(message, *arguments)


def current_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with each key under its current name (Kafka class: StreamsConfigUtils).

    If both names are set, the deprecated one is kept and has no effect. Both cases are logged once per process.
    """
    found = dict(values)
    for old, new in FORMER_NAMES.items():
        if old not in found:
            continue
        if new in found:
            _warn_once(old, "The deprecated configuration %s is ignored, since %s is set too.", old, new)
        else:
            value = found.pop(old)
            found[new] = _FORMER_VALUES.get((old, value), value) if isinstance(value, str) else value
            _warn_once(old, "The configuration %s is deprecated; set %s instead.", old, new)
    return found


def _check_known(given: Mapping[str, Any]) -> None:
    """Raise ConfigError for an unknown key with Penstock's prefix; other keys may be a client's."""
    for key in given:
        if key.startswith(_OWN_PREFIX) and key not in KEYS:
            own = [each.removeprefix(_OWN_PREFIX) for each in KEYS if each.startswith(_OWN_PREFIX)]
            # The prefix alone would make every key similar to a short one.
            meant = get_close_matches(key.removeprefix(_OWN_PREFIX), own, n=1)
            hint = f"did you mean {_OWN_PREFIX}{meant[0]}?" if meant else "Penstock has no such key."
            raise ConfigError(f"Unknown configuration {key}: {hint}")


def did_you_mean(key: str, known: Iterable[str]) -> str:
    """Return a question about the most similar `known` key, or an empty text."""
    close = get_close_matches(key, list(known), n=1)
    return f": did you mean {close[0]}?" if close else ""


_VARIABLES = {environment_name(key): key for key in (*KEYS, *FORMER_NAMES)}
"""The keys by their environment variables."""


@cache
def _variable_like(name: str) -> str | None:
    """Return the variable whose name is most similar to `name`, None without a similar one."""
    close = get_close_matches(name, _VARIABLES, n=1, cutoff=_MISSPELT)
    return close[0] if close else None


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the keys set by environment variables; empty variables are ignored."""
    found: dict[str, str] = {}
    for variable, value in environment.items():
        if not variable.startswith("PENSTOCK_") or not value.strip():
            continue
        if variable not in _VARIABLES:
            if meant := _variable_like(variable):
                _warn_once(variable, "The environment variable %s is ignored: did you mean %s?", variable, meant)
        elif variable.endswith("_PORT") and _OF_KUBERNETES.match(value):
            _warn_once(variable, "%s=%s is ignored: Kubernetes sets it for a service of that name.", variable, value)
        else:
            found[_VARIABLES[variable]] = value
    return found


def keys_of(config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the keys of a user's configuration; raises TypeError unless a dict or a StreamsConfig."""
    if config is not None and not isinstance(config, Mapping):
        raise TypeError(
            f"Expected a dict or a StreamsConfig as configuration, got {config!r:.100}. The topology comes first: "
            "KafkaStreams(topology, config)."
        )
    return config.given() if isinstance(config, StreamsConfig) else (config or {})


class StreamsConfig(ConfigConstants, Mapping[str, Any]):
    """The validated configuration of one application (Kafka class: StreamsConfig).

    A key with a row but without a value has its default.

    Args:
        values: by dotted key; they take precedence over the environment.
        environment: the environment variables; None for os.environ.

    Raises:
        ConfigError: a value is invalid.
    """

    def __init__(self, values: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None) -> None:
        around = current_names(_from_environment(os.environ if environment is None else environment))
        own = current_names(keys_of(values))
        given = {**around, **own}
        _check_known(given)
        self._given: dict[str, Any] = given
        self._values: dict[str, Any] = dict(given)
        for name, row in KEYS.items():
            value = given.get(name)
            try:
                self._values[name] = row.default if value is None else row.parse(name, value)
            except ConfigError as error:
                if name not in own:
                    raise ConfigError(f"{error} The environment variable {environment_name(name)} sets it.") from error
                raise

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def given(self) -> Mapping[str, Any]:
        """Return the keys and values given by the user (mapping and environment)."""
        return dict(self._given)

    def overridden(self, values: Mapping[str, Any]) -> StreamsConfig:
        """Return this configuration overridden by `values`; raises ConfigError for an invalid value."""
        return StreamsConfig({**self._given, **current_names(values)}, environment={}) if values else self

    def required(self, key: str) -> Any:
        """Return the value of `key`.

        Raises ConfigError with the key and its environment variable if it is not set.
        """
        value = self._values.get(key)
        if value is None:
            raise ConfigError(
                f"Missing required configuration {key!r}: set it in the config or as {environment_name(key)}."
            )
        return value

    def client_config(self) -> dict[str, Any]:
        """Return the keys without a row (a client's own, such as security settings), and bootstrap.servers."""
        own = {key: value for key, value in self._given.items() if key not in KEYS}
        if self._values["bootstrap.servers"] is not None:
            own["bootstrap.servers"] = self._values["bootstrap.servers"]
        return own

    def client_id(self) -> str:
        """Return client.id, by default the application.id."""
        return str(self._values["client.id"] or self._values["application.id"] or "")

    def default_interactive_query_isolation_level(self) -> IsolationLevel:
        """Return default.interactive.query.isolation.level.

        It is READ_COMMITTED by default with exactly once, otherwise READ_UNCOMMITTED.
        """
        given: str | None = self._values["default.interactive.query.isolation.level"]
        if given is not None:
            return IsolationLevel(given)
        exactly_once = self._values["processing.guarantee"] == ConfigConstants.EXACTLY_ONCE_V2
        return IsolationLevel.READ_COMMITTED if exactly_once else IsolationLevel.READ_UNCOMMITTED

    def checkpoint_directory(self) -> str:
        """Return penstock.checkpoint.dir, by default <state.dir>/<application.id>/checkpoint."""
        chosen: str | None = self._values["penstock.checkpoint.dir"]
        return chosen or str(Path(self._values["state.dir"]) / self.required("application.id") / "checkpoint")

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={redacted(key, value)}" for key, value in sorted(self._given.items()))
        return f"StreamsConfig({shown})"
