"""Writes the reference of docs/configuration.md below its introduction: every configuration key, from the code.

python scripts/configuration.py           write the reference
python scripts/configuration.py --check   fail if it is not what would be written
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from penstock.client import settings
from penstock.config import FORMER_NAMES
from penstock.config.definition import ConfigKey
from penstock.config.keys import KEYS
from penstock.exception_handlers import ExceptionHandler
from penstock.host.threads.keys import WITHOUT_EFFECT as ON_THREADS

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "configuration.md"
HEADING: Final = "## Keys of Kafka Streams\n"

ON_SPARK: Final = settings.rows_without_effect()
"""The keys that have no effect on Spark, and why; ON_THREADS has those of the other host."""

_IMPORTANCE: Final = ("high", "medium", "low")
_OF_THE_MACHINE: Final = {"state.dir": "`~/.local/state/penstock`, on macOS `~/Library/Application Support/penstock`"}
"""Defaults that depend on the machine."""


def default(key: ConfigKey) -> str:
    """Return the default of a key, as the page shows it; nothing if there is none."""
    if key.name in _OF_THE_MACHINE:
        return _OF_THE_MACHINE[key.name]
    match key.default:
        case None | "":
            return ""
        case bool() as truth:
            return f"`{str(truth).lower()}`"
        case ExceptionHandler() as handler:
            return f"`{type(handler).__name__}`"
        case other:
            return f"`{other}`"


def meaning(key: ConfigKey) -> str:
    """Return what a key does, and what to set instead on a host where it has no effect."""
    parts = [key.doc]
    if key.name in ON_SPARK:
        parts.append(f"Without effect on Spark: {ON_SPARK[key.name]}.")
    if key.name in ON_THREADS:
        parts.append(f"Without effect on threads: {ON_THREADS[key.name]}.")
    return " ".join(parts)


def host(key: str) -> str:
    """Return the hosts on which a key has an effect."""
    return ", ".join(name for name, without in (("Spark", ON_SPARK), ("threads", ON_THREADS)) if key not in without)


def why_ignored() -> Mapping[str, str]:
    """Return the keys that have no effect, and why; for both hosts if the reasons differ."""
    return {
        key: f"On Spark: {why}. On threads: {ON_THREADS[key]}" if key in ON_THREADS else why
        for key, why in sorted(settings.ignored_keys().items())
    }


def table(keys: Iterable[ConfigKey]) -> Iterator[str]:
    """Yield the table of some keys, the most important ones first."""
    yield "| key | type | default | importance | host | meaning |"
    yield "|---|---|---|---|---|---|"
    for key in sorted(keys, key=lambda each: (_IMPORTANCE.index(each.importance), each.name)):
        cells = (
            f"`{key.name}`",
            key.parse.takes,
            default(key),
            key.importance,
            host(key.name),
            meaning(key),
        )
        yield f"| {' | '.join(cell(each) for each in cells)} |"


def cell(text: str) -> str:
    """Return `text` for a cell of a table, with links to the pages that it names."""
    linked = re.sub(r"docs/(([\w-]+\.md)(#[\w-]+)?)", r"[docs/\2](\1)", text)
    return linked.replace("|", "\\|").replace("<", "\\<")


def pairs(first: str, second: str, rows: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table of keys and what is said of each."""
    yield f"| {first} | {second} |"
    yield "|---|---|"
    for key, what in rows.items():
        yield f"| `{key}` | {cell(str(what))} |"


def reference() -> Iterator[str]:
    """Yield the lines of the reference."""
    own = [key for key in KEYS.values() if key.name.startswith("penstock.")]
    yield from table(key for key in KEYS.values() if key not in own)
    yield from ("", "## Keys of Penstock", "")
    yield from table(own)
    yield from ("", "## What another value means for an application with state", "")
    yield "Any other key may simply have another value at the next start."
    yield ""
    yield from pairs("key", "with another value", {key.name: key.change for key in KEYS.values() if key.change})
    yield from ("", "## Former names", "")
    yield "A deprecated name holds if the new one is not set."
    yield ""
    yield from pairs("name", "now", {old: f"`{new}`" for old, new in FORMER_NAMES.items()})
    yield from ("", "## Keys without effect", "")
    yield "Penstock takes these keys of Kafka Streams and of the Java clients, so that a configuration can stay the"
    yield "same. The log names each once, with the reason."
    yield ""
    yield from pairs("key", "why", why_ignored())
    yield from ("", "## Defaults of the clients", "")
    yield "librdkafka's defaults hold, except for these, and on threads for those of"
    yield "[docs/threads.md](threads.md#configuration)."
    yield ""
    yield "| client | key | default |"
    yield "|---|---|---|"
    for role, defaults in settings.client_defaults().items():
        for key, value in sorted(defaults.items()):
            yield f"| {role} | `{key}` | `{str(value).lower() if isinstance(value, bool) else value}` |"


def page() -> str:
    """Return the page with the reference as the code has it."""
    introduction = PAGE.read_text(encoding="utf-8").partition(HEADING)[0]
    return f"{introduction}{HEADING}\n" + "\n".join(reference()).rstrip() + "\n"


def main() -> int:
    """Write the page, or with `--check` compare it; return the exit code."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        print("docs/configuration.md is not up to date: run python scripts/configuration.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
