"""Runs the store commands of FORMAT.md section 8.1, given as record values such as `put:x` or `range:a:c`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock import PUT_RETURN_CODE_NOT_PUT, Serdes, SessionWindow, VersionedRecord, Windowed
from tests.oracle.interpreter.values import text

Command = Callable[..., Any]
"""Takes store, key and the arguments of the command."""


def _nullable(part: str) -> str | None:
    return None if part == "null" else part


def _entries(iterator: Any) -> str:
    with iterator:
        return ";".join(f"{text(key)}={text(value)}" for key, value in iterator)


def _session(key: Any, start: str, end: str) -> Windowed[Any]:
    return Windowed(key, SessionWindow(int(start), int(end)))


def version(found: VersionedRecord | None) -> str:
    """Return V(found) of FORMAT.md: `none`, or VALUE@FROM..TO with `open` for the latest."""
    if found is None:
        return "none"
    return f"{text(found.value)}@{found.timestamp}..{'open' if found.valid_to is None else found.valid_to}"


def put_result(valid_to: int) -> str:
    """Return what a put into a versioned store returned, `no` if it was refused."""
    return "no" if valid_to == PUT_RETURN_CODE_NOT_PUT else text(valid_to)


def _put_all(store: Any, key: Any, *parts: str) -> None:
    store.put_all([(parts[i], _nullable(parts[i + 1])) for i in range(0, len(parts) - 1, 2)])


_KEY_VALUE: Mapping[str, Command] = {
    "put": lambda store, key, value: store.put(key, _nullable(value)),
    "put_if_absent": lambda store, key, value: text(store.put_if_absent(key, _nullable(value))),
    "put_all": _put_all,
    "delete": lambda store, key: text(store.delete(key)),
    "get": lambda store, key: text(store.get(key)),
    "range": lambda store, key, first, last: _entries(store.range(_nullable(first), _nullable(last))),
    "reverse_range": lambda store, key, first, last: _entries(store.reverse_range(_nullable(first), _nullable(last))),
    "all": lambda store, key: _entries(store.all()),
    "reverse_all": lambda store, key: _entries(store.reverse_all()),
    "prefix": lambda store, key, prefix: _entries(store.prefix_scan(prefix, Serdes.string())),
}

_WINDOW: Mapping[str, Command] = {
    "put": lambda store, key, value, start: store.put(key, _nullable(value), int(start)),
    "get": lambda store, key, start: text(store.fetch(key, int(start))),
    "fetch": lambda store, key, first, last: _entries(store.fetch(key, int(first), int(last))),
    "backward_fetch": lambda store, key, first, last: _entries(store.backward_fetch(key, int(first), int(last))),
    "fetch_range": lambda store, key, low, high, first, last: _entries(
        store.fetch_range(_nullable(low), _nullable(high), int(first), int(last))
    ),
    "backward_fetch_range": lambda store, key, low, high, first, last: _entries(
        store.backward_fetch_range(_nullable(low), _nullable(high), int(first), int(last))
    ),
    "fetch_all": lambda store, key, first, last: _entries(store.fetch_all(int(first), int(last))),
    "backward_fetch_all": lambda store, key, first, last: _entries(store.backward_fetch_all(int(first), int(last))),
    "all": lambda store, key: _entries(store.all()),
    "backward_all": lambda store, key: _entries(store.backward_all()),
}

_SESSION: Mapping[str, Command] = {
    "put": lambda store, key, value, start, end: store.put(_session(key, start, end), _nullable(value)),
    "remove": lambda store, key, start, end: store.remove(_session(key, start, end)),
    "get": lambda store, key, start, end: text(store.fetch_session(key, int(start), int(end))),
    "find": lambda store, key, end, start: _entries(store.find_sessions(key, int(end), int(start))),
    "backward_find": lambda store, key, end, start: _entries(store.backward_find_sessions(key, int(end), int(start))),
    "find_range": lambda store, key, low, high, end, start: _entries(
        store.find_sessions_range(_nullable(low), _nullable(high), int(end), int(start))
    ),
    "backward_find_range": lambda store, key, low, high, end, start: _entries(
        store.backward_find_sessions_range(_nullable(low), _nullable(high), int(end), int(start))
    ),
    "fetch": lambda store, key: _entries(store.fetch(key)),
    "backward_fetch": lambda store, key: _entries(store.backward_fetch(key)),
    "fetch_range": lambda store, key, low, high: _entries(store.fetch_range(_nullable(low), _nullable(high))),
}

_VERSIONED: Mapping[str, Command] = {
    "put": lambda store, key, value, time: put_result(store.put(key, _nullable(value), int(time))),
    "delete": lambda store, key, time: version(store.delete(key, int(time))),
    "get": lambda store, key: version(store.get(key)),
    "get_as_of": lambda store, key, time: version(store.get(key, int(time))),
}


def _run(commands: Mapping[str, Command], store: Any, key: Any, command: str) -> str:
    name, *arguments = command.split(":")
    if name not in commands:
        raise ValueError(f"The case has an unknown store command: {command!r}.")
    answer = commands[name](store, key, *arguments)
    return "ok" if answer is None else str(answer)


def key_value(store: Any, key: Any, command: str) -> str:
    """Run one command on a key-value store and return its answer as text."""
    return _run(_KEY_VALUE, store, key, command)


def window(store: Any, key: Any, command: str) -> str:
    """Run one command on a window store and return its answer as text."""
    return _run(_WINDOW, store, key, command)


def session(store: Any, key: Any, command: str) -> str:
    """Run one command on a session store and return its answer as text."""
    return _run(_SESSION, store, key, command)


def versioned(store: Any, key: Any, command: str) -> str:
    """Run one command on a versioned store and return its answer as text."""
    return _run(_VERSIONED, store, key, command)
