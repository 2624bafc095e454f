"""The API pages of the site list the public names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import penstock
from docs.extensions.public_api import PAGES, documented
from penstock import errors, exception_handlers, kip28, savepoints, serdes, spark, testing


def defined_in(module: Any) -> dict[str, Any]:
    """Return the public classes and functions that `module` defines."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and getattr(value, "__module__", None) == module.__name__
    }


def listed(module: Any) -> dict[str, Any]:
    return {name: getattr(module, name) for name in module.__all__}


def test_every_public_name_has_an_entry() -> None:
    entries = [*documented().values(), *defined_in(errors).values()]
    public = {
        f"{module.__name__}.{name}": value
        for module, names in (
            *((module, listed(module)) for module in (penstock, testing, kip28, serdes, spark)),
            *((module, defined_in(module)) for module in (exception_handlers, savepoints)),
        )
        for name, value in names.items()
    }
    missing = [path for path, value in public.items() if not any(value is entry for entry in entries)]
    assert not missing, "add them to a page in docs/api"


def test_no_name_has_two_entries() -> None:
    lines = [
        line
        for page in Path(PAGES).glob("*.md")
        for line in re.findall(r"^\.\. auto\w+:: .*", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert len(lines) == len(set(lines)) == len(documented())
