"""Writes docs/coverage.md: every public name of Kafka Streams' kstream, processor, query, state and Topology API, and
its counterpart in the package; and the end of docs/coming-from/java.md: the names that snake_case does not give.

    python scripts/coverage.py           write the pages
    python scripts/coverage.py --check   fail if a page is not what would be written

kafka_api/kafka-streams-4.4.0.txt lists Kafka's names. The script looks for a class under its own name in `penstock`,
and for a method in snake_case on that class. kafka_api/coverage.toml lists the names that differ, the interfaces that
Python functions replace, and what is left out and why. A name that is in neither place is an error.
"""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "coverage.md"
JAVA_PAGE = ROOT / "docs" / "coming-from" / "java.md"
JAVA_HEADING = "## Names that change\n"
NAMES = ROOT / "scripts" / "kafka_api" / "kafka-streams-4.4.0.txt"
DECISIONS = ROOT / "scripts" / "kafka_api" / "coverage.toml"

PACKAGES = {
    "": "Topology, StreamsBuilder, and the types that KafkaStreams takes and returns",
    "kstream": "kstream",
    "processor": "processor",
    "processor.api": "processor.api",
    "query": "query",
    "state": "state",
}
INTRODUCTION = """# Coverage of the Kafka Streams API

This page lists every public class and method of Kafka Streams 4.4.0 in the packages `kstream`, `processor`, `query` and
`state`, and of `KafkaStreams`, `StreamsConfig`, `Topology` and `StreamsBuilder`. `scripts/coverage.py` writes it: the
script looks up each name in the package, in snake_case unless `scripts/kafka_api/coverage.toml` gives another name.
"""


class CoverageError(Exception):
    """Names of Kafka that are neither covered nor left out with a reason, or decisions about unknown names."""


@dataclass(frozen=True)
class Entry:
    """A class of Kafka: its counterpart (None if it has none), the methods that exist, and those left out, with the
    reasons (the empty name stands for the class itself)."""

    name: str
    offered: str | None
    present: tuple[str, ...]
    left_out: dict[str, str]


def kafka_api() -> dict[str, list[str]]:
    """Return the methods of each class of Kafka."""
    lines = [line for line in NAMES.read_text().splitlines() if line and not line.startswith("#")]
    return {name: methods.split() for name, _, methods in (line.partition(":") for line in lines)}


def entries() -> Iterator[Entry]:
    """Yield an entry for each class; raises CoverageError for names without a decision and decisions without a name."""
    decisions = tomllib.loads(DECISIONS.read_text())
    functions, classes, methods, left_out = (decisions[key] for key in ("functions", "classes", "methods", "left_out"))
    api = kafka_api()
    known = {*api, *(f"{name}.{method}" for name, names in api.items() for method in names)}
    unknown = [name for section in decisions.values() for name in section if name not in known]
    missing: list[str] = []
    for name, names in api.items():
        if name in left_out:
            yield Entry(name, None, (), {"": left_out[name]})
            continue
        reasons = {method: left_out[f"{name}.{method}"] for method in names if f"{name}.{method}" in left_out}
        if name in functions:
            yield Entry(name, functions[name], (), reasons)
            continue
        path = classes.get(name, f"penstock.{name.rpartition('.')[2]}")
        found = sought(path)
        if found is None:
            missing.append(f"{name} (looked up as {path})")
            continue
        offered = {method: methods.get(f"{name}.{method}", snake(method)) for method in names if method not in reasons}
        missing.extend(
            f"{name}.{method} (looked up as {path}.{there})"
            for method, there in offered.items()
            if not (sought(there) if "." in there else is_member(found, there))
        )
        yield Entry(name, path, tuple(dict.fromkeys(offered.values())), reasons)
    if missing or unknown:
        raise CoverageError(
            "\n".join([*(f"not offered: {name}" for name in missing), *(f"no such name: {name}" for name in unknown)])
        )


def sought(path: str) -> Any:
    """Return the object `path`, None if there is none."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError):
        return None


def is_member(found: Any, name: str) -> bool:
    """Return whether `name` is a method, an attribute or a field of the class `found`."""
    return any(name in vars(base) or name in inspect.get_annotations(base) for base in found.__mro__)


def snake(name: str) -> str:
    """Return the Python name of a method of Java."""
    snaked = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    snaked = snaked if snaked.isupper() else snaked.lower()
    return f"{snaked}_" if snaked in ("as", "with") else snaked


def page() -> str:
    """Return the page; raises CoverageError."""
    found = list(entries())
    parts = [INTRODUCTION, summary(found)]
    for package, title in PACKAGES.items():
        rows = [entry for entry in found if package_of(entry.name) == package]
        parts.append(
            f"\n## {title}\n\n| Kafka | Penstock | left out, and why |\n|---|---|---|\n" + "".join(map(row, rows))
        )
    return "".join(parts)


def java_page() -> str:
    """Return the page for those who come from Java: what is there up to the heading, and the names that change."""
    decisions = tomllib.loads(DECISIONS.read_text())
    both = {**decisions["classes"], **decisions["methods"]}
    renamed = {name: there for name, there in both.items() if there.rpartition(".")[2] not in expected(name)}
    return (
        JAVA_PAGE.read_text().partition(JAVA_HEADING)[0]
        + JAVA_HEADING
        + "\n`scripts/coverage.py` writes these tables. An interface with one method is a function, or a text:\n"
        + java_table(decisions["functions"])
        + "\nMethods and classes whose names do not follow from the rules above:\n"
        + java_table(renamed)
    )


def expected(name: str) -> set[str]:
    """Return the names that the rules of the page give a class or a method: its own, in snake_case, without `get`."""
    own = name.rpartition(".")[2]
    without_get = own.removeprefix("get")
    return {own, snake(own), snake(without_get[0].lower() + without_get[1:])}


def java_table(names: dict[str, str]) -> str:
    """Return a table of names of Java without their packages, and what stands for them."""
    rows = {name.removeprefix(f"{package_of(name)}."): there for name, there in sorted(names.items())}
    cells = ((name, there.replace("|", "\\|")) for name, there in rows.items())
    return "\n| Java | Penstock |\n|---|---|\n" + "".join(f"| `{name}` | `{there}` |\n" for name, there in cells)


def package_of(name: str) -> str:
    """Return the package of a class or a method: the parts of its name before the first capital."""
    return ".".join(takewhile(str.islower, name.split(".")))


def summary(found: list[Entry]) -> str:
    """Return how many classes and methods exist, and how many are left out."""
    present = sum(len(entry.present) for entry in found)
    methods = sum(len(entry.left_out) for entry in found if entry.offered is not None)
    classes = sum(entry.offered is None for entry in found)
    covered = f"Penstock covers {len(found) - classes} classes with {present} methods"
    return f"\n{covered}; it leaves out {methods} methods and {classes} classes.\n"


def row(entry: Entry) -> str:
    """Return the row of the table for one class of Kafka's."""
    name = entry.name.removeprefix(f"{package_of(entry.name)}.")
    offered = "" if entry.offered is None else f"`{entry.offered}`".replace("|", "\\|")
    if entry.present:
        offered += ": " + ", ".join(f"`{method}`" for method in entry.present)
    reasons: dict[str, list[str]] = {}
    for method, reason in entry.left_out.items():
        reasons.setdefault(reason, []).append(f"`{method}`" if method else "")
    left_out = "; ".join(
        ", ".join(filter(None, names)) + (": " if any(names) else "") + reason for reason, names in reasons.items()
    )
    return f"| `{name}` | {offered} | {left_out} |\n"


def main() -> int:
    """Write the pages, or with `--check` compare them; return the exit code."""
    try:
        pages = {PAGE: page(), JAVA_PAGE: java_page()}
    except CoverageError as error:
        print(error, file=sys.stderr)
        return 1
    for path, written in pages.items():
        if "--check" not in sys.argv[1:]:
            path.write_text(written)
        elif path.read_text() != written:
            print(f"{path.relative_to(ROOT)} is out of date: run python scripts/coverage.py.", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
