"""Writes docs/ui-api.md below its introduction: what each address of a running application answers in JSON, from the
types of penstock.tools.ui.schema.

python scripts/ui_api.py           write the page
python scripts/ui_api.py --check   fail if it is not what would be written
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_type_hints

from penstock.tools.ui import openapi, schema

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "ui-api.md"


def type_text(of: Mapping[str, Any]) -> str:
    """Return the type of a schema in words."""
    match of:
        case {"$ref": str() as reference}:
            name = reference.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"anyOf": list() as choices}:
            return " or ".join(type_text(each) for each in choices)
        case {"type": "array", "items": dict() as items}:
            return f"array of {type_text(items)}"
        case {"type": "object", "additionalProperties": dict() as values}:
            return f"object of {type_text(values)}"
        case {"type": str() as name}:
            return name
        case _:
            return "any"


def addresses() -> Iterator[str]:
    """Yield the table of addresses."""
    yield from ("| address | answer | what |", "|---|---|---|")
    for path, address in schema.ADDRESSES.items():
        method = "" if address.method == "get" else f"{address.method.upper()} "
        name = address.answer.__name__
        yield f"| `{method}{path}` | [{name}](#{name.lower()}) | {address.what} |"
    yield ""
    for path, address in schema.ADDRESSES.items():
        if address.parameters:
            yield from (f"Parameters of `{path}`; all of them may be left out:", "")
            yield from ("| parameter | meaning |", "|---|---|")
            yield from (f"| `{name}` | {what} |" for name, what in address.parameters.items())
            yield ""


def answer(name: str, described: Mapping[str, Any]) -> Iterator[str]:
    """Yield the entry of a type: its fields, in the order of the code, of dataclasses that of the schema."""
    yield from (f"### {name}", "", described["description"], "", "| field | type | meaning |", "|---|---|---|")
    for field in get_type_hints(vars(schema)[name]) if name in vars(schema) else described["properties"]:
        of = described["properties"][field]
        optional = "" if field in described["required"] else ", may be absent"
        yield f"| `{field}` | {type_text(of)}{optional} | {of['description']} |"
    yield ""


def reference() -> Iterator[str]:
    """Yield the lines of the reference."""
    schemas = openapi.document()["components"]["schemas"]
    yield from ("## Addresses", "")
    yield from addresses()
    yield from ("## Answers", "")
    own = [name for name, kind in vars(schema).items() if name in schemas and kind.__module__ == schema.__name__]
    for name in dict.fromkeys((*own, *schemas)):
        yield from answer(name, schemas[name])


def page() -> str:
    """Return the page as the code has it."""
    introduction = PAGE.read_text(encoding="utf-8").partition("\n## ")[0].rstrip()
    return f"{introduction}\n\n" + re.sub(r"\n+$", "\n", "\n".join(reference()) + "\n")


def main() -> int:
    """Write the page, or with `--check` compare it; return the exit code."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        print("docs/ui-api.md is not up to date: run python scripts/ui_api.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
