"""Configuration values stored in the environment or in files (KIP-297).

    ${env:NAME}            the environment variable NAME (Kafka class: EnvVarConfigProvider)
    ${file:/path:key}      the value of a key in a properties file (Kafka class: FileConfigProvider)
    ${directory:/path:name}  the content of a file in a directory, such as a mounted secret (Kafka class:
                           DirectoryConfigProvider)

A reference is resolved when a client is created, in each process that creates one. A stored or sent configuration
contains only the reference, so no checkpoint contains a password, and the next client picks up a replaced file.
Messages show the reference, never its value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError

_REFERENCE = re.compile(r"\$\{(?P<provider>[^}:]*):(?:(?P<path>[^}]*):)?(?P<key>[^}:]*)\}")

# The format of java.util.Properties: a backslash at the end of a line continues it; `=`, `:` or blanks end a key.
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\n[ \t\f]*")
_PROPERTY = re.compile(r"(?P<key>(?:\\.|[^\\=:\s])+)(?:\s*[=:]\s*|\s+|$)(?P<value>.*)")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

PROVIDERS: Mapping[str, str] = {"env": "env", "file": "file", "directory": "directory", "dir": "directory"}
"""The default provider names in references."""

_CLASSES = {"EnvVarConfigProvider": "env", "FileConfigProvider": "file", "DirectoryConfigProvider": "directory"}
_KEY = "config.providers"


def providers(given: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the providers available to references, including those of `config.providers`.

    Raises ConfigError for a class that is not one of Kafka's three.
    """
    found = dict(PROVIDERS)
    for name in filter(None, (each.strip() for each in str(given.get(_KEY, "")).split(","))):
        key = f"{_KEY}.{name}.class"
        kind = _CLASSES.get(str(given.get(key, "")).rpartition(".")[2])
        if kind is None and name not in PROVIDERS:
            raise ConfigError(f"Invalid configuration {key}: it must be one of {', '.join(sorted(_CLASSES))}.")
        found[name] = kind or PROVIDERS[name]
    return found


def is_of_providers(key: str) -> bool:
    """Return whether a key configures providers."""
    return key == _KEY or key.startswith(f"{_KEY}.")


def resolved(key: str, value: Any, known: Mapping[str, str] = PROVIDERS) -> Any:
    """Return a configuration value with its references resolved; references to unknown providers are kept.

    Args:
        key: of the configuration, for messages.
        value: any value; only strings contain references.
        known: the providers by name, as returned by `providers`.

    Raises:
        ConfigError: the variable, the file or its key is missing.
    """
    if not isinstance(value, str) or "${" not in value:
        return value

    def found(reference: re.Match[str]) -> str:
        name, path = reference["key"], reference["path"] or ""
        match known.get(reference["provider"]):
            case "env":
                there = os.environ.get(name)
            case "file":
                there = _properties(key, reference[0], path).get(name)
            case "directory":
                there = _read(key, reference[0], Path(path) / name)
            case _:
                return reference[0]
        if there is None:
            raise ConfigError(
                f"Invalid configuration {key}: {reference[0]} has no value. Set it, or correct the reference."
            )
        return there

    return _REFERENCE.sub(found, value)


def _read(key: str, reference: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ConfigError(
            f"Invalid configuration {key}: {reference} cannot be read in this process: {error.strerror}. The file must "
            "be on each machine that creates Kafka clients."
        ) from error


def _properties(key: str, reference: str, path: str) -> dict[str, str]:
    text = _CONTINUED.sub(r"\1", _read(key, reference, Path(path)).replace("\r\n", "\n"))
    lines = (line.lstrip() for line in text.split("\n"))
    matches = (_PROPERTY.fullmatch(line) for line in lines if line and line[0] not in "#!")
    return {_plain(match["key"]): _plain(match["value"]) for match in matches if match is not None}


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda each: chr(int(each[1], 16)) if each[1] else _CONTROL.get(each[2], each[2]), text)
