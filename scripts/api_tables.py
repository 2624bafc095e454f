"""Writes the tables of docs/api: each public name with its first sentence, for readers without the site.

python scripts/api_tables.py           write the tables
python scripts/api_tables.py --check   fail if a page is not what would be written

A page lists its entries as directives of autodoc in comments. The site shows them whole, from the docstrings, in place
of the tables (docs/extensions/public_api.py); where Markdown is shown as it is, such as on a Git host, the tables are
what is seen.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from sphinx.pycode import ModuleAnalyzer

if not __package__:  # run as a script: the root of the repository is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs.extensions.public_api import ENTRIES, PAGES

_HEAD: Final = "| name | what it is |\n|---|---|\n"
_DIRECTIVE: Final = re.compile(r"^\.\. auto(?P<kind>\w+):: (?P<path>[\w.]+)\n(?P<options>(?: +:.*\n)*)", re.MULTILINE)
_END_OF_SENTENCE: Final = re.compile(r"(?<=[.!?])\s|:$")


def page(path: Path) -> str:
    """Return the text of a page with the tables that its entries make."""
    return ENTRIES.sub(lambda found: f"<!-- entries\n{found['directives']}-->\n\n{_table(found)}", _text(path))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _table(found: re.Match[str]) -> str:
    rows = (row for entry in _DIRECTIVE.finditer(found["directives"]) for row in _rows(entry))
    return _HEAD + "".join(f"| {name} | {sentence} |\n" for name, sentence in rows)


def _rows(entry: re.Match[str]) -> Iterator[tuple[str, str]]:
    """Yield the row of an entry, and those of its methods."""
    module, _, name = entry["path"].rpartition(".")
    value = getattr(import_module(module), name)
    if entry["kind"] == "data":
        yield f"**`{name}`**", _first_sentence(_data_docstring(name))
        return
    yield f"**{_shown(name, value)}**", _first_sentence(inspect.getdoc(value))
    if entry["kind"] == "class":
        for method, member in _members(value, entry["options"]):
            yield _shown(f"{name}.{method}", member), _first_sentence(inspect.getdoc(member))


def _data_docstring(name: str) -> str | None:
    """Return the docstring that follows the assignment of a public name, in the module that has it."""
    for module in [module for module in sys.modules if module.startswith("penstock.")]:
        if name in vars(sys.modules[module]):
            lines = ModuleAnalyzer.for_module(module).find_attr_docs().get(("", name))
            if lines is not None:
                return "\n".join(lines)
    return None


def _members(owner: type, options: str) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that an entry shows, as autodoc does."""
    excluded = re.search(r":inherited-members: (.*)", options)
    hidden = excluded[1].split(", ") if excluded else []
    shown = [base for base in owner.__mro__ if base is owner or (excluded and base.__name__ not in hidden)]
    seen: set[str] = set()
    for base in (base for base in shown if base.__module__.startswith("penstock")):
        for name, member in vars(base).items():
            is_shown = inspect.isfunction(member) or isinstance(member, classmethod | staticmethod | property)
            if is_shown and not name.startswith("_") and name not in seen and inspect.getdoc(member):
                seen.add(name)
                yield name, getattr(member, "__func__", member)


def _shown(name: str, value: Any) -> str:
    """Return a name, of a function with those of its parameters."""
    if not inspect.isfunction(value):
        return f"`{name}`"
    parameters = inspect.signature(value).parameters.values()
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    names = [f"{stars.get(each.kind, '')}{each.name}" for each in parameters if each.name not in ("self", "cls")]
    return f"`{name}({', '.join(names)})`"


def _first_sentence(docstring: str | None) -> str:
    paragraph = (docstring or "").split("\n\n")[0]
    return _END_OF_SENTENCE.split(" ".join(paragraph.split()))[0].replace("|", "\\|").replace("<", "\\<")


def main() -> int:
    """Write the pages, or with `--check` compare them; return the exit code."""
    for path in sorted(PAGES.glob("*.md")):
        written = page(path)
        if "--check" not in sys.argv[1:]:
            path.write_text(written, encoding="utf-8")
        elif _text(path) != written:
            print(f"{path.name} is out of date: run python scripts/api_tables.py.", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
