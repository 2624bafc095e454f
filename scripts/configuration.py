"""Writes the reference of docs/configuration.md below its introduction: every configuration key, from the code.

python scripts/configuration.py           write the reference
python scripts/configuration.py --check   fail if it is not what would be written
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from penstock.client import settings
from penstock.config import FORMER_NAMES
from penstock.config.definition import SPARK, THREADS, ConfigKey
from penstock.config.keys import KEYS
from penstock.exception_handlers import ExceptionHandler
from penstock.host.threads.keys import CLIENT_KEYS_WITHOUT_EFFECT as ON_THREADS

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "configuration.md"

HOSTS: Final[Mapping[str, str]] = {SPARK: "Spark", THREADS: "threads"}
"""The hosts by their names in the configuration, as the page calls them."""

_OF_THE_MACHINE: Final = {"state.dir": "`~/.local/state/penstock`, on macOS `~/Library/Application Support/penstock`"}
"""Defaults that depend on the machine."""


def default(key: ConfigKey) -> str:
    """Return the default of a key, as the page shows it."""
    if key.name in _OF_THE_MACHINE:
        return _OF_THE_MACHINE[key.name]
    match key.default:
        case None | "":
            return "not set"
        case bool() as truth:
            return f"`{str(truth).lower()}`"
        case ExceptionHandler() as handler:
            return f"`{type(handler).__name__}`"
        case other:
            return f"`{other}`"


def host(key: ConfigKey) -> str:
    """Return the hosts on which a key has an effect."""
    return ", ".join(name for host, name in HOSTS.items() if host not in key.without_effect)


def why_ignored() -> Mapping[str, str]:
    """Return the keys that have no effect, and why; for both hosts if the reasons differ."""
    return {
        key: f"On Spark: {why}. On threads: {ON_THREADS[key]}" if key in ON_THREADS else why
        for key, why in sorted(settings.ignored_keys().items())
    }


def entry(key: ConfigKey) -> Iterator[str]:
    """Yield the lines of one key."""
    yield f"### {key.name}"
    yield ""
    yield linked(key.doc)
    yield ""
    yield f"- Type: {key.parse.takes}. Default: {default(key)}. Importance: {key.importance}. Host: {host(key)}."
    for name, why in key.without_effect.items():
        yield linked(f"- On {HOSTS[name]}: {why}.")
    if key.change:
        yield linked(f"- With another value at a later start: {key.change}")
    yield ""


def linked(text: str) -> str:
    """Return `text` as Markdown, with links to the pages that it names."""
    return re.sub(r"docs/(([\w-]+\.md)(#[\w-]+)?)", r"[docs/\2](\1)", text).replace("<", "\\<")


def pairs(first: str, second: str, rows: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table of keys and what is said of each."""
    yield f"| {first} | {second} |"
    yield "|---|---|"
    for key, what in rows.items():
        yield f"| `{key}` | {linked(str(what))} |"


def reference() -> Iterator[str]:
    """Yield the lines of the reference."""
    for heading, is_own in (("Keys of Kafka Streams", False), ("Keys of Penstock", True)):
        yield from (f"## {heading}", "")
        for name, key in sorted(KEYS.items()):
            if name.startswith("penstock.") == is_own:
                yield from entry(key)
    yield from ("## Former names", "")
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
        for name, value in sorted(defaults.items()):
            yield f"| {role} | `{name}` | `{str(value).lower() if isinstance(value, bool) else value}` |"


def page() -> str:
    """Return the page with the reference as the code has it."""
    introduction = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    return f"{introduction}\n" + "\n".join(reference()).rstrip() + "\n"


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
