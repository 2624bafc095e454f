"""Definitions of configuration keys and readers of their values (Kafka class: ConfigDef).

A reader takes the name of a key and its raw value, and returns the parsed value, or raises ConfigError with the name.
It describes its values in words for the reference documentation. The keys themselves are in `keys`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from penstock.errors import ConfigError
from penstock.exception_handlers import BUILT_IN, ExceptionHandler
from penstock.serdes import Serde, Serdes
from penstock.topic_names import why_illegal

SPARK: Final = "spark"
THREADS: Final = "threads"
"""The values of `penstock.host`."""


@dataclass(frozen=True)
class Reader:
    """Reads the values of a key.

    Args:
        takes: a description of the valid values.
        read: parses a value; takes the name of the key and the raw value.
    """

    takes: str
    read: Callable[[str, Any], Any]

    def __call__(self, name: str, value: Any) -> Any:
        """Return the parsed `value` of the key `name`; raises ConfigError."""
        return self.read(name, value)


def reader(takes: str) -> Callable[[Callable[[str, Any], Any]], Reader]:
    """Return a decorator that turns a function into a Reader."""
    return partial(Reader, takes)


@dataclass(frozen=True)
class ConfigKey:
    """A key of the configuration.

    Args:
        name: of the key.
        parse: the reader of its values.
        default: its value if not set.
        importance: high, medium or low.
        doc: its purpose.
        change: the consequences of a changed value at the next start for an application with state, beyond the value
            itself.
        without_effect: the hosts on which the key has no effect, with the reason and the key to set instead.
    """

    name: str
    parse: Reader
    default: Any
    importance: str
    doc: str
    change: str = ""
    without_effect: Mapping[str, str] = field(default_factory=dict)


@reader("string")
def text(name: str, value: Any) -> str:
    """Return a string unchanged; raises ConfigError for anything else."""
    if not isinstance(value, str):
        several = isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
        hint = f", such as {','.join(value)!r}" if several and value else ""
        raise ConfigError(f"Invalid value {value!r} for configuration {name}: expected a string{hint}.")
    return value


@reader("string of letters, digits, '.', '_' and '-'")
def topic_name(name: str, value: Any) -> str:
    """Return a topic name or prefix; raises ConfigError for an illegal one."""
    why = why_illegal(text(name, value))
    if why is not None:
        raise ConfigError(f"Invalid value {value!r} for configuration {name}: it {why}, which no topic may have.")
    return str(value)


def whole(minimum: int) -> Reader:
    """Return the reader of whole numbers of at least `minimum`, also as strings."""

    @reader(f"whole number, {minimum} or more")
    def parse(name: str, value: Any) -> int:
        try:
            number = int(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"Invalid value {value!r} for configuration {name}: expected a whole number.") from error
        if isinstance(value, bool) or number < minimum:
            raise ConfigError(f"Invalid value {value!r} for configuration {name}: expected {minimum} or more.")
        return number

    return parse


@reader("true or false")
def boolean(name: str, value: Any) -> bool:
    """Return a boolean, also from a string; raises ConfigError for anything else."""
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ConfigError(f"Invalid value {value!r} for configuration {name}: expected true or false.")


def one_of(*choices: str) -> Reader:
    """Return the reader of one of `choices`, case-insensitive like Kafka's constants."""
    by_letters = {choice.lower(): choice for choice in choices}

    @reader(", ".join(choices))
    def parse(name: str, value: Any) -> str:
        choice = by_letters.get(value.lower()) if isinstance(value, str) else None
        if choice is None:
            raise ConfigError(
                f"Invalid value {value!r} for configuration {name}: expected one of {', '.join(choices)}."
            )
        return choice

    return parse


@reader("Serde, its class or its name")
def serde(name: str, value: Any) -> Serde:
    """Return a serde, given as an object, a class or a name.

    A name is that of a method of `Serdes` or of Java's class
    (`org.apache.kafka.common.serialization.Serdes$StringSerde`). Raises ConfigError for anything else.
    """
    if isinstance(value, type) and issubclass(value, Serde):
        return value()
    if isinstance(value, str) and (named := _SERDES.get(value.rpartition("Serdes$")[2])) is not None:
        return named()
    if not isinstance(value, Serde):
        call = ": call it" if getattr(value, "__qualname__", "").startswith("Serdes.") else ""
        raise ConfigError(
            f"Invalid value {value!r} for configuration {name}: expected a Serde, such as Serdes.string(){call}, or "
            f"one of the names {', '.join(each for each in _SERDES if each.islower())}."
        )
    return value


_SERDES: Mapping[str, Callable[[], Serde]] = {
    "string": Serdes.string,
    "StringSerde": Serdes.string,
    "integer": Serdes.integer,
    "IntegerSerde": Serdes.integer,
    "long": Serdes.long,
    "LongSerde": Serdes.long,
    "short": Serdes.short,
    "ShortSerde": Serdes.short,
    "float": Serdes.float,
    "FloatSerde": Serdes.float,
    "double": Serdes.double,
    "DoubleSerde": Serdes.double,
    "boolean": Serdes.boolean,
    "BooleanSerde": Serdes.boolean,
    "bytes": Serdes.bytes,
    "ByteArraySerde": Serdes.bytes,
    "BytesSerde": Serdes.bytes,
    "ByteBufferSerde": Serdes.byte_buffer,
    "uuid": Serdes.uuid,
    "UUIDSerde": Serdes.uuid,
    "void": Serdes.void,
    "VoidSerde": Serdes.void,
    "json": Serdes.json,
}
"""The serdes by their names in `Serdes` and in Kafka's Java classes."""


@reader("object or class")
def anything(name: str, value: Any) -> Any:
    """Return any value unchanged; the code that uses it validates it."""
    return value


def handler(kind: type[ExceptionHandler]) -> Reader:
    """Return the reader of an exception handler: a class, an object, or the name of a built-in handler."""

    @reader(f"{kind.__name__}, its class, or the name of a built-in one")
    def parse(name: str, value: Any) -> ExceptionHandler:
        named = BUILT_IN.get(value.rpartition(".")[2]) if isinstance(value, str) else value
        found = named() if isinstance(named, type) else named
        if not isinstance(found, kind):
            names = ", ".join(each.__name__ for each in BUILT_IN.values() if issubclass(each, kind))
            raise ConfigError(
                f"Invalid value {value!r} for configuration {name}: expected a {kind.__name__}, its class, or one of "
                f"{names}."
            )
        return found

    return parse


@reader("dictionary, or the text of a JSON object")
def mapping(name: str, value: Any) -> dict[str, Any]:
    """Return a dictionary, also from JSON; raises ConfigError for anything else, without the value."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ConfigError(f"Invalid value for configuration {name}: expected a JSON object. {error}.") from error
    if not isinstance(found, Mapping):
        raise ConfigError(f"Invalid value for configuration {name}: expected a dictionary, got {type(found).__name__}.")
    return dict(found)


@reader("function")
def function(name: str, value: Any) -> Any:
    """Return a callable; raises ConfigError for anything else."""
    if not callable(value):
        raise ConfigError(f"Invalid value {value!r} for configuration {name}: expected a function.")
    return value


@reader("object or class")
def rocksdb_config_setter(name: str, value: Any) -> Any:
    """Return a RocksDBConfigSetter, or its class; raises ConfigError if it lacks one of its methods."""
    if isinstance(value, str):
        raise ConfigError(f"Invalid value {value!r} for configuration {name}: expected a class, not the name of one.")
    kind = value if isinstance(value, type) else type(value)
    for method, does in _OF_ROCKSDB_CONFIG_SETTERS.items():
        found = getattr(kind, method, None)
        if not callable(found) or getattr(found, "__isabstractmethod__", False):
            raise ConfigError(
                f"Invalid value {value!r} for configuration {name}: {kind.__name__} has no {method}, which {does}."
            )
    return value


_OF_ROCKSDB_CONFIG_SETTERS: Mapping[str, str] = {
    "set_config": "changes the options of a database before it opens: define set_config(self, name, options, config)",
    "close": "releases what set_config created for a database: define close(self, name, options), "
    "with only pass if there is nothing to release",
}
"""The methods of a RocksDBConfigSetter, and their purposes."""
