"""Writes docs/errors.md below its introduction: every error of Penstock with its meaning and its remedy, from the
docstrings. An error of another module than penstock.errors is on it if its docstring has a remedy.

python scripts/errors.py           write the page
python scripts/errors.py --check   fail if it is not what would be written
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

from penstock import errors

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "errors.md"
SOURCES: Final = (ROOT / "src", ROOT / "packages" / "penstock-broker" / "src")

SECTIONS: Final[dict[str, type[BaseException]]] = {
    "Programs, records and state": BaseException,
    "Reading state": errors.InvalidStateStoreError,
    "Brokers": errors.KafkaError,
    "Rights": errors.AuthorizationError,
}
"""The sections of the page; an error is in the last one whose class it is."""

REMEDY: Final = "What to do: "


def public_errors() -> list[type[Exception]]:
    """Return the classes of penstock.errors, in the order of their definition."""
    return [each for each in vars(errors).values() if isinstance(each, type) and each.__module__ == errors.__name__]


@cache
def other_errors() -> tuple[type[Exception], ...]:
    """Return the errors with a remedy of all other modules, by name; only those modules are imported."""
    found = [
        each
        for source in SOURCES
        for path in source.rglob("*.py")
        if REMEDY in path.read_text(encoding="utf-8")
        for each in vars(import_module(".".join(path.relative_to(source).with_suffix("").parts))).values()
        if isinstance(each, type) and issubclass(each, Exception) and REMEDY in (each.__doc__ or "")
    ]
    return tuple(sorted(set(found) - set(public_errors()), key=lambda error: error.__name__))


def parts(error: type[Exception]) -> tuple[str, str, str]:
    """Return what an error means, what to do about it, and what else its docstring says."""
    paragraphs = [paragraph.replace("\n", " ") for paragraph in (inspect.getdoc(error) or "").split("\n\n")]
    remedies = [paragraph for paragraph in paragraphs if paragraph.startswith(REMEDY)]
    others = [paragraph for paragraph in paragraphs[1:] if not paragraph.startswith(REMEDY)]
    return paragraphs[0], " ".join(remedies).removeprefix(REMEDY), " ".join(others)


def entry(error: type[Exception]) -> Iterator[str]:
    """Yield the paragraphs of one error."""
    meaning, remedy, more = parts(error)
    base = error.__bases__[0]
    is_shown = base in (*public_errors(), *other_errors())
    kind = f" Base class: [{base.__name__}](#{base.__name__.lower()})." if is_shown else ""
    yield f"### {error.__name__}"
    yield linked(f"{meaning}{kind}")
    if more:
        yield linked(f"Attributes: {more}")
    yield linked(f"**{REMEDY.strip()}** {remedy}")


def linked(text: str) -> str:
    """Return `text` with links where it names a page of docs."""
    return re.sub(r"docs/(([\w-]+\.md)(#[\w-]+)?)", r"[docs/\2](\1)", text)


def page() -> str:
    """Return the page as the docstrings have it."""
    section = {
        error: [name for name, base in SECTIONS.items() if issubclass(error, base)][-1] for error in public_errors()
    }
    blocks = [PAGE.read_text(encoding="utf-8").partition("\n## ")[0].rstrip()]
    for name in SECTIONS:
        blocks.append(f"## {name}")
        for error in public_errors():
            if section[error] == name:
                blocks.extend(entry(error))
    blocks.append("## Commands, processes, groups and tables")
    blocks.append("These classes are not in `penstock.errors`: programs need not catch them by name.")
    for error in other_errors():
        blocks.extend(entry(error))
    return "\n\n".join(blocks) + "\n"


def main() -> int:
    """Write the page, or with `--check` compare it; return the exit code."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        print("docs/errors.md is not up to date: run python scripts/errors.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
