"""What a configuration key is, and how values are read (Kafka class: ConfigDef).

A reader takes the name of the key and the value that was given; it returns what that means, or raises ConfigError with
the name. It knows in words what it takes, for the reference. Not here: the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.errors import ConfigError
from penstock.exception_handlers import BUILT_IN, ExceptionHandler
from penstock.serdes import Serde, Serdes
from penstock.topic_names import why_illegal


@dataclass(frozen=True)
class Reader:
    """Reads the values of a key. takes: in words, the values that it takes."""

    takes: str
    read: Callable[[str, Any], Any]

    def __call__(self, name: str, value: Any) -> Any:
        """Return what `value` means for the key `name`; raises ConfigError."""
        return self.read(name, value)


def reader(takes: str) -> Callable[[Callable[[str, Any], Any]], Reader]:
    """Return a decorator that makes a Reader of a function."""
    return partial(Reader, takes)


@dataclass(frozen=True)
class ConfigKey:
    """One key: how its value is read, what it is if not set, how much it matters (high, medium, low) and what it does.

    change: what another value at the next start means for an application that has state, beyond the value itself.
    """

    name: str
    parse: Reader
    default: Any
    importance: str
    doc: str
    change: str = ""


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
    """Return a string that names a topic or begins the names of topics; raises ConfigError for anything else."""
    why = why_illegal(text(name, value))
    if why is not None:
        raise ConfigError(f"Invalid value {value!r} for configuration {name}: it {why}, which no topic may have.")
    return str(value)


def whole(minimum: int) -> Reader:
    """Return the reader of whole numbers, also written as texts, of `minimum` or more."""

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
    """Return true or false, also written as a text; raises ConfigError for anything else."""
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ConfigError(f"Invalid value {value!r} for configuration {name}: expected true or false.")


def one_of(*choices: str) -> Reader:
    """Return the reader of a value that must be one of `choices`, in small letters or capitals: as Kafka's constants
    are written."""
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
    """Return a serde, given as an object, a class or the name of one of `Serdes`, also as Java names it
    (`org.apache.kafka.common.serialization.Serdes$StringSerde`); raises ConfigError for anything else."""
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
"""The serdes that a configuration may name: as `Serdes` calls them, and as Kafka's Java classes are called."""


@reader("object or class")
def anything(name: str, value: Any) -> Any:
    """Return any value unchanged: the code that uses it checks it."""
    return value


def handler(kind: type[ExceptionHandler]) -> Reader:
    """Return the reader of an exception handler: a class, an object, or the name of a built-in one."""

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


@reader("function")
def function(name: str, value: Any) -> Any:
    """Return what can be called; raises ConfigError for anything else."""
    if not callable(value):
        raise ConfigError(f"Invalid value {value!r} for configuration {name}: expected a function.")
    return value


@reader("object or class")
def rocksdb_config_setter(name: str, value: Any) -> Any:
    """Return a RocksDBConfigSetter, or its class, with both of its methods; raises ConfigError for anything else."""
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
"""What a RocksDBConfigSetter must have, and what for."""
