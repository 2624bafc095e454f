"""Measures the source of both distributions against the limits of CONTRIBUTING.md.

    python -m tests.house.limits

writes what exceeds a limit today to `exceptions.toml`.
"""

from __future__ import annotations

import ast
import functools
import gc
import io
import json
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = (ROOT / "src", ROOT / "packages" / "penstock-broker" / "src")

EXCEPTIONS: Final = Path(__file__).with_name("exceptions.toml")

LIMITS: Final[Mapping[str, int]] = {
    "module_lines": 600,
    "class_lines": 450,
    "function_lines": 60,
    "parameters": 8,
    "attributes": 20,
}
"""The largest value that needs no exception. parameters: without self and cls. attributes: names that a class assigns
on self."""

COMMENTED_LINES: Final = 50
"""A function with more lines needs a comment inside."""

UNTESTED_LINES: Final = 40
"""A module with more lines needs its own test file."""

_TESTED_ELSEWHERE: Final = ("penstock/host/", "penstock/tools/", "penstock_broker/wire/schemas/")
"""Hosts and tools, which are tested as a whole, and generated modules."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
_PLAIN: Final = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr)
_LOADING: Final = ("__getattr__", "__dir__")
"""Functions that load public names when they are first asked for (PEP 562)."""


@dataclass(frozen=True)
class Module:
    """A module of a distribution. name: its path below src. tree, text: its source."""

    name: str
    tree: ast.Module
    text: str


@functools.cache
def modules() -> tuple[Module, ...]:
    """Return all modules of both distributions, sorted by name.

    The garbage collector passes over their trees: millions of objects that stay.
    """
    gc.disable()
    try:
        return tuple(
            Module(str(path.relative_to(source)), ast.parse(text := path.read_text()), text)
            for source in SOURCES
            for path in sorted(source.rglob("*.py"))
        )
    finally:
        gc.freeze()
        gc.enable()


def measured(found: Sequence[Module]) -> dict[str, dict[str, int]]:
    """Return the values above each limit, by place."""
    values: dict[str, dict[str, int]] = {name: {} for name in LIMITS}
    for module in found:
        values["module_lines"][module.name] = len(module.text.splitlines())
        for place, node in _definitions(module.tree):
            at = f"{module.name}:{place}"
            if isinstance(node, ast.ClassDef):
                values["class_lines"][at] = _lines(node)
                values["attributes"][at] = len(_attributes(node))
            else:
                values["function_lines"][at] = _lines(node)
                values["parameters"][at] = _parameters(node)
    return {
        name: {place: value for place, value in sorted(places.items()) if value > LIMITS[name]}
        for name, places in values.items()
    }


def packages_with_logic(found: Sequence[Module]) -> list[str]:
    """Return the `__init__` modules that hold more than imports, names and docstrings."""
    return [
        module.name
        for module in found
        if Path(module.name).name == "__init__.py" and not all(_is_plain(statement) for statement in module.tree.body)
    ]


def _is_plain(statement: ast.stmt) -> bool:
    """Return whether a statement only imports, names or documents."""
    match statement:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return all(_is_plain(each) for each in statement.body)
        case ast.FunctionDef(name=name):
            return name in _LOADING
        case _:
            return isinstance(statement, _PLAIN)


def shared_class_names(found: Sequence[Module]) -> dict[str, list[str]]:
    """Return the public class names that several modules of one distribution define, with those modules."""
    places = defaultdict[tuple[str, str], list[str]](list)
    for module in found:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name, module.name.partition("/")[0]].append(module.name)
    return {name: names for (name, _), names in sorted(places.items()) if len(names) > 1}


def uncommented(found: Sequence[Module]) -> list[str]:
    """Return the long functions without a comment inside."""
    places = []
    for module in found:
        long = {
            f"{module.name}:{place}": range(node.lineno, (node.end_lineno or 0) + 1)
            for place, node in _definitions(module.tree)
            if not isinstance(node, ast.ClassDef) and _lines(node) > COMMENTED_LINES
        }
        rows = {token.start[0] for token in _tokens(module.text) if token.type == tokenize.COMMENT} if long else set()
        places += [place for place, lines in long.items() if rows.isdisjoint(lines)]
    return sorted(places)


def untested(found: Sequence[Module]) -> list[str]:
    """Return the modules without a test file at the path of the module."""
    return [
        module.name
        for module in found
        if len(module.text.splitlines()) > UNTESTED_LINES
        and not module.name.startswith(_TESTED_ELSEWHERE)
        and not module.name.endswith("__init__.py")
        and not (ROOT / "tests" / _file_of_tests(module.name)).is_file()
    ]


def _file_of_tests(module: str) -> Path:
    """Return the path of a module's tests below `tests`; those of penstock-broker are in `tests/broker`."""
    distribution, _, path = module.partition("/")
    below = Path("broker", path) if distribution == "penstock_broker" else Path(path)
    return below.with_name(f"test_{below.name}")


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(text).readline)


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.ClassDef | Function]]:
    """Yield the classes and functions of a module with their qualified names."""
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        prefix, parent = waiting.pop()
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.ClassDef | Function):
                yield prefix + node.name, node
                waiting.append((f"{prefix}{node.name}.", node))
            else:
                waiting.append((prefix, node))


def _lines(node: ast.ClassDef | Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _parameters(node: Function) -> int:
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def _attributes(node: ast.ClassDef) -> set[str]:
    return {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }


def _written(found: Sequence[Module]) -> Iterator[str]:
    """Yield the lines of `exceptions.toml` for the source as it is."""
    yield "# What exceeds a limit of tests/house/limits.py today, with its value. Entries may only shrink and go;"
    yield "# `python -m tests.house.limits` writes them anew."
    for list_of in (packages_with_logic, uncommented, untested):
        name, places = list_of.__name__, list_of(found)
        yield f"\n{name} = [{'' if places else ']'}"
        if places:
            yield from (f"  {json.dumps(place)}," for place in places)
            yield "]"
    for limit, values in measured(found).items():
        yield f"\n[{limit}]"
        yield from (f"{json.dumps(place)} = {value}" for place, value in values.items())
    yield "\n[shared_class_names]"
    yield from (f"{name} = {json.dumps(names)}" for name, names in shared_class_names(found).items())


if __name__ == "__main__":
    EXCEPTIONS.write_text("\n".join(_written(modules())) + "\n")
