"""Compares what came out of a case with what it expects, and says each difference in one readable line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

_LIST_OF_NAMES = re.compile(r"(--> |<-- |\(stores: \[|\(topics: \[)([^\]\n]*)")
_ABSENT = "(absent)"
_JAVA_METHOD = re.compile(r"'\.[a-z]+[A-Za-z]*\(\)'")
_REPORTS = (
    " If you do not add stores manually, please file a bug report at https://issues.apache.org/jira/projects/KAFKA."
)


def normalised_description(text: str) -> str:
    """Return the text of describe() with every list of names sorted (FORMAT.md section 2)."""
    return _LIST_OF_NAMES.sub(lambda found: found[1] + ", ".join(sorted(found[2].split(", "))), text)


def differences(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """Return one line for each difference; an empty list says that they are equal."""
    return list(_differences(expected, actual))


def _differences(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> Iterator[str]:
    yield from _error_differences("error", expected.get("error"), actual.get("error"))
    if "describe" in expected:
        before, after = normalised_description(expected["describe"]), actual.get("describe", "")
        lines = zip_longest(before.split("\n"), after.split("\n"), fillvalue=_ABSENT)
        for number, (left, right) in enumerate(lines, 1):
            if left != right:
                yield f"describe, line {number}: expected {left!r}, got {right!r}"
    if "internal_topics" in expected:
        for kind, topics in expected["internal_topics"].items():
            found = actual.get("internal_topics", {}).get(kind, {})
            yield from _mapping_differences(f"internal topics, {kind}", topics, found)
    for topic, rows in expected.get("topics", {}).items():
        found = actual.get("topics", {}).get(topic, [])
        for number, (left, right) in enumerate(zip_longest(rows, found, fillvalue=_ABSENT)):
            yield from _difference(f"topic {topic}, record {number}", left, right)
    for number, (left, right) in enumerate(
        zip_longest(expected.get("steps", []), actual.get("steps", []), fillvalue=_ABSENT)
    ):
        yield from _difference(f"step {number}", left, right)
    if "stores" in expected:
        yield from _mapping_differences("stores", expected["stores"], actual.get("stores", {}))
    if "dropped_records" in expected:
        yield from _difference("dropped records", expected["dropped_records"], actual.get("dropped_records", _ABSENT))


def _error_differences(
    where: str, expected: Mapping[str, Any] | None, actual: Mapping[str, Any] | None
) -> Iterator[str]:
    if expected is None or actual is None:
        yield from _difference(where, expected, actual)
        return
    left, right = _comparable(expected.get("class")), _comparable(actual.get("class"))
    yield from _difference(f"{where}, class", left, right)
    compared = ["phase", "at"] if expected.get("message_java_only") else ["phase", "at", "message"]
    for name in compared:
        if name in expected:
            yield from _difference(f"{where}, {name}", _in_python(expected[name]), actual.get(name, _ABSENT))
    if "cause" in expected:
        yield from _error_differences(f"{where}, cause", expected["cause"], actual.get("cause"))


def _in_python(text: Any) -> Any:
    """Return Kafka's message with the names of methods as they are here, and without where Kafka takes reports."""
    if not isinstance(text, str):
        return text
    named = _JAVA_METHOD.sub(lambda method: re.sub("([A-Z])", r"_\1", method[0]).lower(), text)
    return named.replace(_REPORTS, "")


def _comparable(class_name: str | None) -> str | None:
    # Python has one class, TypeError, where Java has two.
    return "NullPointerException" if class_name == "ClassCastException" else class_name


def _mapping_differences(where: str, expected: Mapping[str, Any], actual: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*expected, *actual}):
        yield from _difference(f"{where}, {name}", expected.get(name, _ABSENT), actual.get(name, _ABSENT))


def _difference(where: str, expected: Any, actual: Any) -> Iterator[str]:
    if expected != actual:
        yield f"{where}: expected {_shown(expected)}, got {_shown(actual)}"


def _shown(value: Any) -> str:
    return value if value is _ABSENT else json.dumps(value, ensure_ascii=False)
