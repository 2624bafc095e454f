"""Writes docs/commands-reference.md below its introduction: every command with its arguments and options.

python scripts/commands.py           write the reference
python scripts/commands.py --check   fail if it is not what would be written
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final

from typer.core import TyperArgument, TyperGroup

from penstock.tools.cli.main import COMMANDS, command

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "commands-reference.md"
_LARGEST_SHOWN: Final = 10**9
"""A larger default stands for no limit."""


def every_command() -> Iterator[tuple[str, Any]]:
    """Yield the commands with their whole names, a group before the commands in it."""
    for name in COMMANDS:
        found = command(name)
        yield name, found
        if isinstance(found, TyperGroup):
            for inner, each in found.commands.items():
                yield f"{name} {inner}", each


def shown_name(parameter: Any) -> str:
    """Return how a parameter is written on the command line."""
    if isinstance(parameter, TyperArgument):
        name = str(parameter.metavar or parameter.name.upper())
        return name if parameter.required or name.startswith("[") else f"[{name}]"
    names = ", ".join(parameter.opts)
    return names if parameter.is_flag else f"{names} {_value(parameter)}"


def _value(option: Any) -> str:
    """Return the placeholder of the value of an option."""
    if option.metavar:
        return str(option.metavar)
    if isinstance(choices := option.type_descriptor.annotation, type) and issubclass(choices, Enum):
        return "|".join(each.value for each in choices)
    return {int: "NUMBER", float: "NUMBER", Path: "PATH"}.get(choices, "TEXT")


def default(parameter: Any) -> str:
    """Return what the page says of the default of a parameter; nothing if there is none, or its help says it."""
    value = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
    is_hidden = value in (None, False, "") or callable(value) or "default" in (parameter.help or "").lower()
    if is_hidden or (isinstance(value, int) and value > _LARGEST_SHOWN):
        return ""
    return f" Default: `{value!r}`." if isinstance(value, str) and value.isspace() else f" Default: `{value}`."


def entry(name: str, found: Any) -> Iterator[str]:
    """Yield the lines of one command."""
    yield f"{'###' if ' ' in name else '##'} {name}"
    yield ""
    paragraphs = [" ".join(paragraph.split()) for paragraph in str(found.help).split("\n\n")]
    yield "\n\n".join(paragraphs).replace("<", "\\<")
    yield ""
    if isinstance(found, TyperGroup):
        return
    arguments = [each for each in found.params if isinstance(each, TyperArgument)]
    options = [each for each in found.params if not isinstance(each, TyperArgument) and not each.hidden]
    yield "```text"
    yield " ".join(["penstock", name, *(["[OPTIONS]"] if options else []), *map(shown_name, arguments)])
    yield "```"
    yield ""
    yield "| argument or option | meaning |"
    yield "|---|---|"
    for each in (*arguments, *options):
        is_required = " Required." if each.required and each in options else ""
        meaning = f"{each.help}{is_required}{default(each)}".replace("<", "\\<")
        cells = [cell.replace("|", "\\|") for cell in (f"`{shown_name(each)}`", meaning)]
        yield f"| {' | '.join(cells)} |"
    yield ""


def page() -> str:
    """Return the page with the reference as the code has it."""
    introduction = PAGE.read_text(encoding="utf-8").partition("\n## ")[0].rstrip()
    lines = [line for name, found in every_command() for line in entry(name, found)]
    return f"{introduction}\n\n" + "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write the page, or with `--check` compare it; return the exit code."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        print("docs/commands-reference.md is not up to date: run python scripts/commands.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
