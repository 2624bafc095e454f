"""The tables of docs/security.md on what Penstock decodes, against its code."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import limits

pytestmark = pytest.mark.xdist_group("source")

ROOT = Path(__file__).parents[2]

RUN_CODE = {"cloudpickle", "dill", "jsonpickle", "marshal", "pickle", "runpy", "shelve", "yaml", "joblib"}
"""Modules whose readers may run code that stands in the data."""
ONLY_DATA = {"json", "msgspec", "orjson", "tomllib"}
READERS = {
    "Decoder",
    "Unpickler",
    "decode",
    "load",
    "load_all",
    "loads",
    "open",
    "run_module",
    "run_path",
    "unsafe_load",
}
BUILT_IN = {"__import__", "eval", "exec"}


def readers_of(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each call that decodes something, as (module, the function that contains it)."""
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {(each.asname or each.name).partition(".")[0]: each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            modules |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    yield from _readers_below(tree, "", modules)


def _readers_below(node: ast.AST, inside: str, modules: dict[str, str]) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        name = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else ""
        if (module := _module_of(child, modules)) is not None:
            yield module, inside
        yield from _readers_below(child, ".".join(filter(None, (inside, name))), modules)


def _module_of(node: ast.AST, modules: dict[str, str]) -> str | None:
    """Return the module whose reader `node` refers to: called, or passed on to be called."""
    if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
        return "pickle"
    if not (names := _dotted(node)):
        return None
    first, *more = names
    module, *rest = [*modules.get(first, f"builtins.{first}").split("."), *more]
    if module == "builtins":
        return module if {*rest} & BUILT_IN else None
    if module == "numpy" and rest[-1:] == ["load"]:
        return "pickle"
    return module if module in RUN_CODE | ONLY_DATA and rest and rest[-1] in READERS else None


def _dotted(node: ast.AST) -> list[str]:
    """Return the names of a dotted expression such as `json.loads`, or an empty list."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


def listed(heading: str, columns: int) -> set[tuple[str, ...]]:
    """Return the first cells of the rows of the table below a heading, without the backquotes."""
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    section = page.split(f"### {heading}\n", 1)[1].split("\n#", 1)[0]
    rows = [line.split("|")[1 : columns + 1] for line in section.splitlines() if line.startswith("| `")]
    return {tuple(cell.strip(" `") for cell in row) for row in rows}


@functools.cache
def all_readers() -> set[tuple[str, str, str]]:
    """Return each call of the code that decodes something, as (module of the reader, path, function)."""
    return {
        (read, module.name.removeprefix("penstock/"), inside)
        for module in limits.modules()
        for read, inside in readers_of(module.tree)
    }


def found(wanted: set[str]) -> set[tuple[str, str]]:
    return {(path, inside) for read, path, inside in all_readers() if read in wanted}


def test_the_page_lists_whatever_can_run_code_that_stands_in_data() -> None:
    assert listed("Data that can contain code", 2) == found(RUN_CODE | {"builtins"})


def test_the_page_lists_whatever_decodes_data_without_code() -> None:
    assert listed("Data without code", 1) == {(path,) for path, _ in found(ONLY_DATA)}


def test_readers_are_found_however_they_are_written() -> None:
    text = """
import json, pickle as p, numpy as np, cloudpickle
from marshal import loads as read
def f(data):
    class A:
        def g(self):
            return p.loads(data), read(data), map(cloudpickle.loads, data), eval(data)
    np.load(data)
    fromfile(data, allow_pickle=True)
    return json.loads(data), json.dumps(data).decode(), A.load(data)
"""
    assert sorted(readers_of(ast.parse(text))) == [
        ("builtins", "f.A.g"),
        ("cloudpickle", "f.A.g"),
        ("json", "f"),
        ("marshal", "f.A.g"),
        ("pickle", "f"),
        ("pickle", "f"),
        ("pickle", "f.A.g"),
    ]
