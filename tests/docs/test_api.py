"""The API pages of the site list the public names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
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


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the functions and methods that the pages show, with their names."""
    for path, value in documented().items():
        if inspect.isfunction(value):
            yield path, value
        elif isinstance(value, type):
            for base in (base for base in value.__mro__ if base.__module__.startswith("penstock")):
                for name, member in vars(base).items():
                    method = getattr(member, "__func__", member)
                    if inspect.isfunction(method):
                        yield f"{path}.{name}", method


def test_each_argument_has_a_line_of_its_own() -> None:
    wrong = set()
    for path, function in functions():
        _, _, arguments = (inspect.getdoc(function) or "").partition("Args:\n")
        for line in re.split(r"\n(?=\S)", arguments)[0].splitlines():
            after = [name for name in inspect.signature(function).parameters if re.search(rf"[.;] {name}: ", line)]
            wrong.update(f"{path}: {name}" for name in after)
    assert not wrong, "an argument after another one on a line of Args is shown as part of that one's text"
