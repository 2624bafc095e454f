"""Runs the store commands of FORMAT.md section 8.1, given as record values such as `put:x` or `range:a:c`."""

from __future__ import annotations

from typing import Any

from penstock import Serdes
from tests.oracle.interpreter.values import text


def _nullable(part: str) -> str | None:
    return None if part == "null" else part


def _entries(iterator: Any) -> str:
    with iterator:
        return ";".join(f"{text(key)}={text(value)}" for key, value in iterator)


def key_value(store: Any, key: Any, command: str) -> str:
    """Run one command on a key-value store and return its answer as text."""
    name, *arguments = command.split(":")
    given = [_nullable(argument) for argument in arguments]
    match name:
        case "put":
            store.put(key, given[0])
            return "ok"
        case "put_if_absent":
            return text(store.put_if_absent(key, given[0]))
        case "put_all":
            store.put_all([(given[i], given[i + 1]) for i in range(0, len(given) - 1, 2)])
            return "ok"
        case "delete":
            return text(store.delete(key))
        case "get":
            return text(store.get(key))
        case "range":
            return _entries(store.range(given[0], given[1]))
        case "reverse_range":
            return _entries(store.reverse_range(given[0], given[1]))
        case "all":
            return _entries(store.all())
        case "reverse_all":
            return _entries(store.reverse_all())
        case "prefix":
            return _entries(store.prefix_scan(arguments[0], Serdes.string()))
        case _:
            raise ValueError(f"The case has an unknown store command: {command!r}.")
